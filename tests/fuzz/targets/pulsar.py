"""Pulsar: frames, commands, messages, entries, message ids, schemas and names, as clients send them."""

import json
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from bearlake import kernel
from bearlake.errors import Invalid
from bearlake.kernel import fallback
from bearlake.metadata.model import PartitionKey
from bearlake.protocols.pulsar import entries, framing, key_values, message_ids, names, schema_types
from bearlake.protocols.pulsar.commands import NAMES, NUMBERS
from bearlake.protocols.pulsar.errors import Refused
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand, MessageIdData, Schema
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata
from bearlake.records import blocks
from bearlake.records.blocks import BlockCodec
from bearlake.records.codec import Record, encode
from bearlake.streams.catalog import NAME_PATTERN
from fixtures.pulsar_entries import metadata, pack
from fuzz.mutation import change_json
from fuzz.target import Choices, Target, exact, outcome
from fuzz.targets.kernel import ERRORS, HEADER_BYTES, batches, native, repair

LIMIT = 256 * 1024
TEXTS = ("", "t", "persistent://public/default/t", "größe", "__pulsar.entry")


def filled(kind: Any, random: Random, depth: int = 0) -> Message:
    """Return a message with values in most of its fields (Any: a descriptor of either implementation of protobuf)."""
    made: Message = GetMessageClass(kind)()
    for field in kind.fields:
        needed = field.has_presence and field.is_required
        if not needed and (random.random() < 0.3 or (depth > 2 and field.message_type is not None)):
            continue
        for _ in range(2 if field.is_repeated else 1):
            _set(made, field, random, depth)
    return made


def _set(made: Message, field: Any, random: Random, depth: int) -> None:
    value: Any
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        getattr(made, field.name)[random.choice(TEXTS)] = random.choice(TEXTS)  # all maps are of texts
    elif field.message_type is not None:
        value = filled(field.message_type, random, depth + 1)
        target = getattr(made, field.name)
        (target.append if field.is_repeated else target.CopyFrom)(value)
    elif field.is_repeated:
        getattr(made, field.name).append(_usual(field, random))
    else:
        setattr(made, field.name, _usual(field, random))


def _usual(field: Any, random: Random) -> Any:
    if field.enum_type is not None:
        return random.choice(field.enum_type.values).number
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = random.choice(TEXTS)
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    return random.choice((0, 1, 2, 7, 2**31 - 1))


def change_fields(random: Random, message: Message) -> None:
    """Give one field another value of its type, or remove it; sometimes a field of a nested message."""
    fields = message.DESCRIPTOR.fields
    if not fields:
        return
    field: Any = random.choice(fields)
    if (
        field.message_type is not None
        and not field.is_repeated
        and message.HasField(field.name)
        and random.random() < 0.6
    ):
        change_fields(random, getattr(message, field.name))
    elif random.random() < 0.2:
        message.ClearField(field.name)
    elif field.message_type is not None or field.enum_type is not None:
        _set(message, field, random, 1)
    else:
        value = _hostile(random, field)
        if field.is_repeated:
            getattr(message, field.name).extend([value] * random.choice((1, 2, 100)))
        else:
            setattr(message, field.name, value)


def _hostile(random: Random, field: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = random.choice(
            (*TEXTS, "a" * 300, "*", "..", "-1", "x\0", "[", "(a+)+$", "persistent://a/b/" + "c" * 300)
        )
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return random.choice((0.0, -1.0, float("inf"), float("nan")))
    bits = 64 if field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64) else 32
    is_signed = field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_INT32)
    signed = (-1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return random.choice((0, 1, 2, *(signed if is_signed else (2 ** (bits - 1), 2**bits - 1))))


def commands() -> Iterator[bytes]:
    """Frames without their total size: every command that there is, twice."""
    random = Random("commands")
    for number, name in NAMES.items():
        for _ in range(2):
            body = filled(BaseCommand.DESCRIPTOR.fields_by_name[name].message_type, random)
            command = BaseCommand(type=number, **{name: body}).SerializeToString()  # type: ignore[arg-type]  # by name
            yield struct.pack(">I", len(command)) + command


def command(data: bytes) -> object:
    """Read a frame, and every field of its command."""
    frame = framing.read_frame(memoryview(data))
    name = NAMES.get(frame.command.type, "")
    if name:
        _read_all(getattr(frame.command, name))
    return name, len(frame.message) > 0


def _read_all(message: Message) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for nested in value if field.is_repeated else [value]:
                _read_all(nested)


def message_frames() -> Iterator[bytes]:
    """Messages after SEND: single ones, batches, compressed, chunks, encrypted."""
    random = Random("messages")
    payload = pack([(SingleMessageMetadata(partition_key="k", event_time=5), b"value" * 5)] * 3)
    for codec in BlockCodec:
        head = metadata(
            num_messages_in_batch=3, compression=int(codec), uncompressed_size=len(payload), partition_key="k"
        )
        yield _message(head, bytes(blocks.compress(codec, payload)))
    yield _message(metadata(), b"value")
    yield _message(metadata(num_chunks_from_msg=3, chunk_id=1, uuid="u", total_chunk_msg_size=100), b"part")
    yield _message(metadata(event_time=9, properties=[KeyValue(key="k", value="v")], null_value=True), b"")
    for _ in range(8):
        yield _message(filled(MessageMetadata.DESCRIPTOR, random), b"value")


def _message(head: Message, payload: bytes) -> bytes:
    serialized = head.SerializeToString()
    covered = struct.pack(">I", len(serialized)) + serialized + payload
    return struct.pack(">HI", 0x0E01, kernel.crc32c(covered)) + covered


def message(data: bytes) -> object:
    """Read a message, store it as a batch, and make the entry of it that a consumer gets."""
    found = framing.read_message(memoryview(data))
    stored = entries.to_batch(found.metadata, found.payload, LIMIT)
    batch = memoryview(stored.batch)
    assert not isinstance(kernel.inspect(batch, 0, len(batch)), int)
    entry = entries.from_batch(batch, 1000, message_bytes_max=LIMIT * 8, uncompressed_bytes_max=LIMIT * 2)
    entries.routing(batch, LIMIT * 2)
    framing.read_message(memoryview(entry.headers_and_payload))
    return found.metadata.compression, entry.is_batch, min(entry.message_count, 9)


def _message_checksum(random: Random, data: bytearray) -> None:
    """Repair the checksum, and sometimes the size of the metadata."""
    if len(data) < 10:
        return
    data[:2] = b"\x0e\x01"
    if random.random() < 0.1:
        struct.pack_into(">I", data, 6, min(len(data) - 10, struct.unpack_from(">I", data, 6)[0]))
    struct.pack_into(">I", data, 2, kernel.crc32c(data, 6))


def encoded(data: bytes) -> object:
    """Store an entry with both kernels: metadata and payload as a client wrote them."""
    choices = Choices(data)
    is_opaque, size = choices.byte() % 8 == 7, choices.byte() << 8 | choices.byte()
    rest = choices.rest
    head, payload = rest[:size], rest[size:]
    theirs = outcome(ERRORS, fallback.encode_entry, head, payload, is_opaque)
    ours = outcome(ERRORS, native.encode_entry, exact(head), exact(payload), is_opaque)
    assert ours == theirs, f"native {ours!r:.300}, Python {theirs!r:.300}"
    if not isinstance(theirs[0], bytes):
        return theirs[0]
    _decode(theirs[0], None, 5)
    return theirs[1]


def _encoded_seeds() -> Iterator[bytes]:
    for frame in message_frames():
        (size,) = struct.unpack_from(">I", frame, 6)
        for flag in (0, 7):
            yield bytes([flag]) + struct.pack(">H", size) + frame[10:]


def _decode(batch: bytes, records: bytes | None, base: int, limit: int = LIMIT) -> Any:
    theirs = outcome(ERRORS, fallback.decode_entry, batch, records, base, limit)
    exactly = None if records is None else exact(records)
    ours = outcome(ERRORS, native.decode_entry, exact(batch), exactly, base, limit)
    assert ours == theirs, f"native {ours!r:.300}, Python {theirs!r:.300}"
    routed = [outcome(ERRORS, module.entry_routing, exact(batch), exactly) for module in (native, fallback)]
    assert routed[0] == routed[1], f"native {routed[0]!r:.300}, Python {routed[1]!r:.300}"
    count = int.from_bytes(batch[23:27], "big", signed=True) + 1 if len(batch) > 27 else 1
    deliveries = [(base, count, exact(batch), 0, ()), (base, count, exact(batch), 2, [(base, base + 1)])]
    arguments = (deliveries, 0, 1, 7, -1, None, limit, 2 * limit)
    sent = [outcome(ERRORS, module.encode_messages, *arguments) for module in (native, fallback)]
    assert sent[0] == sent[1], f"native {sent[0]!r:.300}, Python {sent[1]!r:.300}"
    return theirs


def decoded(data: bytes) -> object:
    """Make entries of a batch of any protocol with both kernels."""
    choices = Choices(data)
    base, limit, part = choices.offset(), choices.of((LIMIT, LIMIT, 50)), choices.byte()
    batch = choices.rest
    found = _decode(batch, batch[HEADER_BYTES:] if part % 8 == 7 else None, base, limit)
    return found[1:] if isinstance(found[0], bytes) else found[0]


def _decoded_seeds() -> list[bytes]:
    made = [
        outcome(ERRORS, fallback.encode_entry, frame[10 : 10 + size], frame[10 + size :], is_opaque)
        for frame, size in _sized()
        for is_opaque in (False, True)
    ]
    stored = [entry[0] for entry in made if isinstance(entry[0], bytes)]
    foreign = [
        encode([Record(key=b"k", value=b"v", headers=(("__pulsar.entry", b"\1\2\x08"), ("a", None)), timestamp=5)]),
        encode([Record(value=b"v", headers=(("__pulsar.message", b"\x08\1"),))] * 3),
    ]
    return [bytes([0, 9, 0, 0]) + batch for batch in (*stored, *foreign, *batches())]


def _sized() -> Iterator[tuple[bytes, int]]:
    for frame in message_frames():
        yield frame, struct.unpack_from(">I", frame, 6)[0]


def sends(data: bytes) -> object:
    """Parse SENDs in a receive buffer with both kernels, and take them into a write buffer."""
    choices = Choices(data)
    count, limit = choices.byte() % 8, choices.of((LIMIT, LIMIT, 20))
    frames = choices.rest
    theirs = outcome(ERRORS, fallback.parse_sends, frames, 0, len(frames), count, limit, limit)
    ours = outcome(ERRORS, native.parse_sends, exact(frames), 0, len(frames), count, limit, limit)
    assert ours == theirs, f"native {ours!r:.300}, Python {theirs!r:.300}"
    return len(theirs), _taken(frames, count, limit)


def _taken(frames: bytes, count: int, limit: int) -> object:
    """Take the same SENDs with both kernels, into a buffer that they may fill; returns their number."""
    is_deduplicated = count % 2
    binding = kernel.SendBinding(1, PartitionKey(7 << 20), bytes(16), LIMIT, 0, 1 << 62, 5, 0, -1, is_deduplicated)
    told = []
    for module, memory in ((native, exact(frames)), (fallback, frames)):
        buffer, call = module.WriteBuffer(limit, 3), module.SendResults((8, -1, -1))
        arguments = (buffer, call, memory, 0, len(frames), binding, count, limit, limit, 0)
        found = outcome(ERRORS, module.take_sends, *arguments)
        content: object = None
        if buffer.count:
            content = bytes(buffer.join(0, 0)), list(buffer.commits())
            buffer.resolve([(at % 3, 2**40 + at, 0) for at in range(buffer.count)])
        sender = module.next_sender(memory, 0, len(frames))
        told.append((found, sender, len(call), content, outcome(ERRORS, call.receipts, 1, 2, count - 1)))
    assert told[0] == told[1], f"native {told[0]!r:.300}, Python {told[1]!r:.300}"
    return told[0][2]


def _send_seeds() -> Iterator[bytes]:
    from bearlake.protocols.pulsar.proto.commands_pb2 import CommandSend

    for frame in message_frames():
        for body in (
            CommandSend(producer_id=1, sequence_id=7),
            CommandSend(producer_id=1, sequence_id=7, num_messages=3, highest_sequence_id=9),
        ):
            whole = framing.message_frame(BaseCommand(type=NUMBERS["send"], send=body), frame)
            yield b"\7\0" + whole
            yield b"\7\0" + whole * 2


def _send_checksum(random: Random, data: bytearray) -> None:
    """Repair sizes and checksum of the first frame."""
    if len(data) < 20:
        return
    struct.pack_into(">I", data, 2, len(data) - 6)
    (size,) = struct.unpack_from(">I", data, 6)
    at = 10 + size
    if at + 6 < len(data):
        part = data[at:]
        _message_checksum(random, part)
        data[at:] = part


def ids(data: bytes) -> object:
    """Read message ids."""
    try:
        found = MessageIdData.FromString(data)
    except Exception as error:  # noqa: BLE001 - protobuf's own
        return type(error)
    places = [
        message_ids.start_offset(found, PartitionKey(key), is_whole=whole)
        for key in (1 << 32, 7)
        for whole in (False, True)
    ]
    assert all(-2 <= place < 2**63 for place in places)
    return message_ids.bits(found.ack_set) > 0


def _id_seeds() -> list[bytes]:
    made = [(0, 1, -1), (1, 5, 3), (2**64 - 1, 2**64 - 1, -1), (2**63 - 1, 2**63 - 1, 0)]
    return [
        MessageIdData(ledger_id=ledger, entry_id=entry, batch_index=index, ack_set=acks).SerializeToString()
        for ledger, entry, index in made
        for acks in ([], [-1, 5])
    ]


def schema(data: bytes) -> object:
    """Convert a schema of a client to the registry's form."""
    choices = Choices(data)
    type_, properties = choices.of(sorted(Schema.Type.values())), choices.byte() % 4
    kinds = (("STRING", "AVRO"), ("AVRO", "JSON"), ("", "x"), ("JSON", "INT32"))[properties]
    given = [KeyValue(key="key.schema.type", value=kinds[0]), KeyValue(key="value.schema.type", value=kinds[1])]
    draft = schema_types.draft_of(Schema(name="s", type=type_, schema_data=choices.rest, properties=given))
    return type_, draft.type


def _schema_seeds() -> Iterator[bytes]:
    avro = json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", "R"]}]}).encode()
    native_ = json.dumps(
        {"fileDescriptorSet": "", "rootMessageTypeName": "a.B", "rootFileDescriptorName": "b"}
    ).encode()
    for at in range(len(Schema.Type.values())):
        for kinds, content in (
            (0, avro),
            (1, key_values.joined(avro, avro)),
            (3, native_),
            (0, key_values.joined(b"", avro)),
        ):
            yield bytes([at, kinds]) + content


def _schema_json(random: Random, data: bytearray) -> None:
    """Change the JSON of the schema, or of the value of a KEY_VALUE schema."""
    head, body = data[:2], data[2:]
    try:
        key, value = key_values.split(bytes(body))
    except Refused:
        change_json(random, body)
        data[:] = head + body
        return
    changed = bytearray(value)
    change_json(random, changed)
    data[:] = head + key_values.joined(key, bytes(changed))


def name(data: bytes) -> object:
    """Parse a topic's name; the name of its stream leads back to it."""
    text = data.decode("utf-8", "surrogateescape" if data[:1] == b"\xff" else "replace")
    topic = names.topic_of(text) if NAME_PATTERN.match(text) else None
    if topic is not None:
        assert topic.stream == text
    parsed = names.parse(text)
    parsed.split_partition()
    assert names.topic_of(parsed.stream) == parsed, parsed
    return parsed.namespace == names.PUBLIC_DEFAULT


TARGETS = [
    Target(name="Pulsar commands", seeds=lambda: list(commands()), run=command, share=2, short_inputs=1500),
    Target(
        name="Pulsar messages",
        seeds=lambda: list(message_frames()),
        run=message,
        change=_message_checksum,
        memory_bytes=8 * LIMIT,
        memory_factor=200,
    ),
    Target(name="Pulsar message ids", seeds=_id_seeds, run=ids, share=0.5),
    Target(
        name="Pulsar schemas",
        seeds=lambda: list(_schema_seeds()),
        run=schema,
        errors=(Invalid, Refused),
        change=_schema_json,
        bytes_max=8192,
    ),
    Target(
        name="Pulsar names",
        seeds=lambda: [
            text.encode()
            for text in ("t", "persistent://a/b/c", "a..b..c", "public..default..x...2ey", "a/b/größe-partition-3")
        ],
        run=name,
        tokens=(b"..", b"...", b"://", b"-partition-", b"%", b"/"),
        bytes_max=400,
        share=0.5,
    ),
]
KERNEL_TARGETS = [
    Target(name="kernel encode entry", seeds=lambda: list(_encoded_seeds()), run=encoded, memory_factor=256, share=2),
    Target(
        name="kernel decode entry",
        seeds=_decoded_seeds,
        run=decoded,
        change=lambda random, data: repair(random, data, 4),
        memory_bytes=8 * LIMIT,
        share=2,
    ),
    Target(name="kernel sends", seeds=lambda: list(_send_seeds()), run=sends, change=_send_checksum),
]
