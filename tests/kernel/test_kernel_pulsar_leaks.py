"""The native transcoding of Pulsar entries releases every reference, block and buffer, also on its error paths."""

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from bearlake.errors import BearlakeError
from bearlake.kernel import PartitionKey, SendBinding, fallback
from bearlake.protocols.pulsar import framing
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue, SingleMessageMetadata
from bearlake.records.codec import Record, encode
from fixtures.pulsar_entries import metadata, pack

HEAD = metadata(num_messages_in_batch=3, uncompressed_size=1).SerializeToString()
PAYLOAD = pack(
    [
        (SingleMessageMetadata(sequence_id=7, partition_key="QQ==", partition_key_b64_encoded=True), b"v" * 200),
        (SingleMessageMetadata(sequence_id=9, properties=[KeyValue(key="a", value="b")] * 9), b""),
        (SingleMessageMetadata(sequence_id=9, partition_key="k", ordering_key=b"o"), b"v"),
    ]
)
SINGLE = metadata(partition_key="k").SerializeToString()
BATCH = fallback.encode_entry(HEAD, PAYLOAD, False)[0]
SMALL = fallback.encode_entry(SINGLE, b"v", False)[0]
COVERED = len(HEAD).to_bytes(4, "big") + HEAD + PAYLOAD
SENDS = 2 * framing.message_frame(
    BaseCommand(type=6, send={"highest_sequence_id": 1}),
    b"\x0e\x01" + fallback.crc32c(COVERED).to_bytes(4, "big") + COVERED,
)
FOREIGN = encode([Record(key=b"\xff" * 90, headers=(("a", b"\xff" * 99),) * 9)] * 4)
GIVEN = [(2**40, 3, memoryview(BATCH), 1, ())]
SWAPPED = encode([Record(headers=(("__pulsar.message", b"\x0a"), ("__pulsar.entry", b"\1\0" + HEAD)))] * 3)


def calls(native: ModuleType) -> list[Callable[[], Any]]:
    return [
        lambda: native.encode_entry(HEAD, PAYLOAD, False),
        lambda: native.encode_entry(HEAD, PAYLOAD, True),
        lambda: native.encode_entry(SINGLE, PAYLOAD, False),
        lambda: native.encode_entry(HEAD, PAYLOAD[:-1], False),
        lambda: native.encode_entry(HEAD[:-1], PAYLOAD, False),
        lambda: native.encode_entry(HEAD, 7, False),
        lambda: native.encode_entry(7, PAYLOAD, False),
        lambda: native.encode_entry(HEAD, PAYLOAD),
        lambda: native.decode_entry(BATCH, None, 2**40, 10**6),
        lambda: native.decode_entry(BATCH[:61], BATCH[61:], 2**40, 10**6),
        lambda: native.decode_entry(BATCH, None, 2**40, 100),
        lambda: native.decode_entry(BATCH[:-1], None, 2**40, 10**6),
        lambda: native.decode_entry(BATCH[:50], None, 2**40, 10**6),
        lambda: native.decode_entry(BATCH, 7, 2**40, 10**6),
        lambda: native.decode_entry(BATCH, None, "x", 10**6),
        lambda: native.decode_entry(SMALL, None, 2**40, 10**6),
        lambda: native.decode_entry(SMALL, None, 2**40, 0),
        lambda: native.decode_entry(SMALL[:-1], None, 2**40, 0),
        lambda: native.decode_entry(FOREIGN, None, 2**40, 10**6),
        lambda: native.decode_entry(FOREIGN, None, 2**40, 400),
        lambda: native.decode_entry(SWAPPED, None, 2**40, 10**6),
        lambda: native.entry_routing(BATCH, None),
        lambda: native.entry_routing(FOREIGN[:61], FOREIGN[61:]),
        lambda: native.entry_routing(BATCH[:70], None),
        lambda: native.entry_routing(BATCH, 7),
        lambda: native.encode_messages(GIVEN * 3, 1, 1, 2, 3, 4, 10**6, 10**6),
        lambda: native.encode_messages(tuple(GIVEN * 3), 0, 1, 2, 3, None, 10**6, 900),
        lambda: native.encode_messages(GIVEN, 0, 1, 2, 3, None, 90, 10**6),
        lambda: native.encode_messages([(0, 1, FOREIGN[:70], 0, ())], 0, 1, 2, 3, None, 10**6, 10**6),
        lambda: native.encode_messages([(0, 1, FOREIGN[:60], 0, ())], 0, 1, 2, 3, None, 10**6, 10**6),
        lambda: native.encode_messages([(0, 1, BATCH, 0)], 0, 1, 2, 3, None, 10**6, 10**6),
        lambda: native.encode_messages(GIVEN, 2, 1, 2, 3, None, 10**6, 10**6),
        lambda: native.parse_sends(SENDS, 0, len(SENDS), 9, 10**6, 10**6),
        lambda: native.parse_sends(SENDS, 0, len(SENDS) - 1, 9, 10**6, 10**6),
        lambda: native.parse_sends(SENDS, 0, len(SENDS), 9, 10, 10**6),
        lambda: native.parse_sends(SENDS, 0, len(SENDS) + 1, 9, 10**6, 10**6),
        lambda: native.parse_sends(7, 0, 0, 9, 10**6, 10**6),
        lambda: native.next_sender(SENDS, 0, len(SENDS)),
        lambda: native.next_sender(SENDS, 0, 9),
        lambda: native.next_sender(SENDS, 9, 0),
        lambda: taken(native),
        lambda: taken(native, is_dropped=True),
        lambda: taken(native, size_max=len(BATCH) + 9),
        lambda: taken(native, size_max=9),
        lambda: taken(native, binding=BINDING._replace(batch_bytes_max=9)),
        lambda: taken(native, binding=BINDING._replace(stream_id=b"x")),
        lambda: taken(native, binding=BINDING._replace(producer_id=9)),
        lambda: taken(native, payload_bytes_max=10),
        lambda: taken(native, end=len(SENDS) + 1),
        lambda: taken(native, SENDS[: len(SENDS) // 2] + b"x" * 999),
        lambda: taken(native, 7),
        lambda: taken(native, partition="x"),
        lambda: native.encode_receipts(1, 2, 3, [(7, 8), (2**63, None)], [(0, 9, 0), (1, -1, 0)], 0),
        lambda: native.encode_receipts(1, 2, 3, [(7, 8)], [(7, -1, 0)], 0),
        lambda: native.encode_receipts(1, 2, 3, [(7,)], [(0, 9, 0)], 0),
        lambda: native.encode_receipts(1, 2, 3, [(7, 8)], [(0, 9)], 0),
    ]


BINDING = SendBinding(0, PartitionKey(1 << 20), bytes(16), 10**6, 0, 2**62, 7, 0, -1, 0)


def taken(native: ModuleType, frames: Any = SENDS, binding: SendBinding = BINDING, **changes: Any) -> None:
    """Take SENDs, store them, and encode their receipts."""
    buffer, call = native.WriteBuffer(changes.get("size_max", 10**6)), native.SendResults((8, -1, -1))
    end = changes.get("end", len(SENDS))
    native.take_sends(buffer, call, frames, 0, end, binding, 9, changes.get("payload_bytes_max", 10**6), 10**6, 0)
    if buffer.count and "is_dropped" not in changes:
        buffer.join(0, 0)
        buffer.resolve([(0, 5, 0)] * buffer.count)
    call.receipts(1, 2, changes.get("partition", 3))
    native.take_sends(buffer, call, frames, 0, end, binding, 9, 10**6, 10**6, 0)  # raises ValueError


def repeat(call: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        with contextlib.suppress(BearlakeError, ValueError, TypeError):
            call()


def counts(native: ModuleType) -> list[int]:
    return [
        sys.getrefcount(value) for value in (None, True, False, native, HEAD, PAYLOAD, BATCH, FOREIGN, BearlakeError)
    ]


def test_nothing_of_an_entry_is_leaked(native: ModuleType) -> None:
    for call in calls(native):
        repeat(call, 50)
        before, blocks = counts(native), sys.getallocatedblocks()

        repeat(call, 500)

        assert sys.getallocatedblocks() - blocks < 50
        assert all(abs(now - then) < 50 for now, then in zip(counts(native), before, strict=True))


def test_buffers_of_entries_are_released(native: ModuleType) -> None:
    buffer = bytearray(BATCH)
    for call in (
        lambda: native.encode_entry(buffer, buffer, False),
        lambda: native.encode_entry(buffer, 7, False),
        lambda: native.encode_entry(HEAD, buffer, False),
        lambda: native.decode_entry(buffer, None, 0, 10**6),
        lambda: native.decode_entry(buffer, buffer, 0, 10**6),
        lambda: native.decode_entry(buffer, 7, 0, 10**6),
        lambda: native.entry_routing(buffer, buffer),
        lambda: native.next_sender(buffer, 0, 9),
        lambda: taken(native, buffer, end=9),
        lambda: taken(native, buffer, end=10**6),
    ):
        repeat(call, 3)

    buffer.append(0)  # raises BufferError while a view is held
