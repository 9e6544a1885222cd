"""Pulsar entries in their stored form: a message loses nothing, and other protocols see the expected records."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from bearlake import kernel
from bearlake.protocols.pulsar import entries
from bearlake.protocols.pulsar.proto.metadata_pb2 import (
    LZ4,
    NONE,
    SNAPPY,
    ZLIB,
    ZSTD,
    EncryptionKeys,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)
from bearlake.records import blocks, codec
from bearlake.records.batch import Compression
from bearlake.records.codec import Record
from fixtures.pulsar_entries import (
    BYTES,
    ENCRYPTION_KEYS,
    ENTRIES,
    TEXT,
    UNKNOWN_FIELDS,
    Singles,
    batches,
    metadata,
    pack,
    plain,
    read,
    unpack,
)
from fixtures.pulsar_sent import SENT

SETTINGS = settings(deadline=None, max_examples=150)
YEAR_10000_MS = 253_402_300_800_000
CODECS = {LZ4: Compression.LZ4, ZLIB: Compression.ZSTD, ZSTD: Compression.ZSTD, SNAPPY: Compression.SNAPPY}


def store(head: MessageMetadata, payload: bytes) -> bytes:
    """The stored batch, checked as the write path requires."""
    stored = entries.to_batch(head, payload)
    header = kernel.inspect(stored.batch, 0, len(stored.batch))
    assert isinstance(header, kernel.BatchHeader), header
    assert codec.first_bad_record(stored.batch, 10**9) == -1
    assert stored[1:] == (header.record_count, header.max_timestamp)
    return stored.batch


def records(batch: bytes) -> list[Record]:
    return codec.decode(batch, 10**9)


def compact(batch: bytes, base_offset: int) -> bytes:
    """The batch after it was read from the table."""
    builder = kernel.ColumnBuilder()
    body = codec.encode(records(batch))
    body = body[:27] + batch[27:35] + body[35:]  # so that the deltas fit, the base timestamp is that of the batch
    builder.append(0, base_offset, body, 0, len(body), [])
    columns = builder.take()
    rows, (found,) = kernel.encode_columns(columns, 0, columns.row_count)
    assert found.base_offset == base_offset
    return bytes(rows)


@SETTINGS
@given(batches(), st.integers(0, 2**60))
def test_a_batch_keeps_all_its_fields(batch: tuple[MessageMetadata, Singles], base_offset: int) -> None:
    head, messages = batch
    head.uncompressed_size = 1

    stored = store(head, pack(messages))
    found = entries.from_batch(memoryview(stored), base_offset)

    entry = read(found.headers_and_payload)
    assert found[1:] == (len(messages), True)
    assert entry.messages is not None
    assert [(plain(single), payload) for single, payload in entry.messages] == [
        (plain(single), payload) for single, payload in messages
    ]
    assert entry.metadata.uncompressed_size == len(entry.payload)
    head.uncompressed_size = len(entry.payload)
    assert entry.metadata.SerializeToString() == head.SerializeToString()


@SETTINGS
@given(ENTRIES, UNKNOWN_FIELDS, st.binary(max_size=6))
def test_a_single_message_keeps_all_its_fields(head: MessageMetadata, unknown: bytes, payload: bytes) -> None:
    head.MergeFromString(unknown)

    found = entries.from_batch(memoryview(store(head, payload)), 5)

    entry = read(found.headers_and_payload)
    assert found[1:] == (1, False)
    assert entry.payload == payload
    assert plain(entry.metadata) == plain(head)


@SETTINGS
@given(
    ENTRIES, ENCRYPTION_KEYS, st.sampled_from([None, 1, 3]), st.sampled_from([NONE, LZ4, ZSTD]), st.binary(max_size=9)
)
def test_an_encrypted_entry_is_returned_unchanged(
    head: MessageMetadata, keys: list[EncryptionKeys], count: int | None, compression: int, payload: bytes
) -> None:
    head.encryption_keys.extend(keys)
    head.compression = compression
    head.uncompressed_size = 1000
    if count is not None:
        head.num_messages_in_batch = count

    stored = store(head, payload)
    found = entries.from_batch(memoryview(stored), 5)

    entry = read(found.headers_and_payload)
    assert found[1:] == (count or 1, False)
    assert entry.payload == records(stored)[0].value == payload
    assert plain(entry.metadata) == plain(head)


@given(batches())
@SETTINGS
def test_an_entry_is_the_same_after_compaction(batch: tuple[MessageMetadata, Singles]) -> None:
    head, messages = batch
    head.publish_time %= YEAR_10000_MS  # batches with later times are kept unchanged as a whole
    for single, _ in messages:
        single.event_time %= YEAR_10000_MS
    stored = store(head, pack(messages))

    before = entries.from_batch(memoryview(stored), 7)
    after = entries.from_batch(memoryview(compact(stored, 7)), 7)

    assert after == before


def test_kafka_sees_key_value_properties_and_time() -> None:
    messages = [
        (SingleMessageMetadata(partition_key="k", properties=[KeyValue(key="a", value="b")], sequence_id=7), b"one"),
        (SingleMessageMetadata(event_time=500, null_value=True, sequence_id=8), b""),
        (SingleMessageMetadata(partition_key="AP8=", partition_key_b64_encoded=True, sequence_id=9), b""),
    ]

    batch = store(metadata(num_messages_in_batch=3), pack(messages))

    first, second, third = records(batch)
    assert (first.key, first.value, first.headers[:-1], first.timestamp) == (b"k", b"one", (("a", b"b"),), 1000)
    assert first.headers[-1][0] == "__pulsar.entry"
    assert (second.key, second.value, second.headers, second.timestamp) == (None, None, (), 500)
    assert (third.key, third.value, third.timestamp) == (b"\0\xff", b"", 1000)


@pytest.mark.parametrize(
    ("event_time", "timestamp"),
    [(0, 1000), (1, 1), (999, 999), (1000, 1000), (1001, 1000), (2**63 - 2, 1000), (2**64 - 1, 1000)],
)
@pytest.mark.parametrize("is_batch", [True, False])
def test_an_event_time_is_the_timestamp_unless_it_is_in_the_future(
    event_time: int, timestamp: int, is_batch: bool
) -> None:
    head, single = metadata(), SingleMessageMetadata(event_time=event_time)
    if is_batch:
        head.num_messages_in_batch = 1
    else:
        head.event_time = event_time

    stored = store(head, pack([(single, b"v")]) if is_batch else b"v")
    entry = read(entries.from_batch(memoryview(stored), 5).headers_and_payload)

    assert records(stored)[0].timestamp == timestamp
    assert (entry.messages[0][0] if entry.messages else entry.metadata).event_time == event_time


def test_a_simple_message_of_a_batch_needs_no_reserved_header() -> None:
    single = SingleMessageMetadata(partition_key="QQ==", partition_key_b64_encoded=True, sequence_id=7)
    other = SingleMessageMetadata(partition_key="QUI=", partition_key_b64_encoded=True, sequence_id=8, event_time=3)

    batch = store(metadata(num_messages_in_batch=2), pack([(single, b"v"), (other, b"v")]))

    assert [record.key for record in records(batch)] == [b"A", b"AB"]
    assert [len(record.headers) for record in records(batch)] == [1, 0]


@pytest.mark.parametrize("compression", list(CODECS))
@pytest.mark.parametrize("is_batch", [True, False])
def test_a_compressed_entry_is_stored_with_kafkas_codec_and_delivered_uncompressed(
    compression: int, is_batch: bool
) -> None:
    head, payload = metadata(compression=compression), b"value " * 100
    if is_batch:
        head.num_messages_in_batch = 2
        payload = pack([(SingleMessageMetadata(sequence_id=7 + index), payload) for index in range(2)])
    head.uncompressed_size = len(payload)
    block = bytes(blocks.compress(blocks.BlockCodec(compression), payload))

    stored = store(head, block)
    entry = read(entries.from_batch(memoryview(stored), 5).headers_and_payload)

    header = kernel.inspect(stored, 0, len(stored))
    assert isinstance(header, kernel.BatchHeader)
    assert header.attributes == CODECS[compression]
    assert entry.payload == payload
    head.ClearField("compression")
    assert entry.metadata == head


def test_an_entry_that_compression_does_not_shrink_is_stored_uncompressed() -> None:
    stored = store(
        metadata(compression=ZSTD, uncompressed_size=1), bytes(blocks.compress(blocks.BlockCodec.ZSTD, b"x"))
    )

    assert records(stored)[0].value == b"x"
    assert stored[22] == Compression.NONE


def test_a_chunk_of_a_compressed_message_is_not_decompressed() -> None:
    fields = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 9, "chunk_id": 0}
    packed = metadata(compression=ZSTD, uncompressed_size=5000, **fields)
    plain_chunk = metadata(uncompressed_size=9, **fields)

    first, second = (entries.from_batch(memoryview(store(head, b"\x28\xb5")), 5) for head in (packed, plain_chunk))

    assert read(first.headers_and_payload)[:2] == (packed, b"\x28\xb5")
    plain_chunk.uncompressed_size = 2
    assert read(second.headers_and_payload)[:2] == (plain_chunk, b"\x28\xb5")


def test_an_entry_larger_than_clients_accept_is_compressed() -> None:
    head = metadata(compression=LZ4, uncompressed_size=50_000, partition_key="k")
    stored = store(head, bytes(blocks.compress(blocks.BlockCodec.LZ4, bytes(50_000))))

    found = entries.from_batch(memoryview(stored), 5, message_bytes_max=1000)

    assert len(found.headers_and_payload) <= 1000
    entry = read(found.headers_and_payload)
    assert bytes(blocks.decompress(blocks.BlockCodec.ZSTD, entry.payload, 50_000)) == bytes(50_000)
    head.compression = ZSTD
    assert entry.metadata == head


def test_a_kafka_batch_is_a_pulsar_batch() -> None:
    batch = codec.encode(
        [
            Record(key=b"k", value=b"v", timestamp=5, headers=(("a", b"b"), ("", b""), ("a", b"c"))),
            Record(key=b"\xff", value=None, timestamp=0, headers=(("n", None), ("h", b"\xff"), ("\udcff", b"\xfe"))),
        ]
    )

    found = entries.from_batch(memoryview(batch), 40)

    entry = read(found.headers_and_payload)
    assert found[1:] == (2, True)
    assert entry.metadata == MessageMetadata(
        producer_name="",
        sequence_id=40,
        publish_time=5,
        num_messages_in_batch=2,
        uncompressed_size=len(entry.payload),
    )
    properties = [[(pair.key, pair.value) for pair in single.properties] for single, _ in entry.messages or []]
    assert properties == [
        [("a", "b"), ("", ""), ("a", "c")],
        [
            ("n", ""),
            ("h", "/w=="),
            ("__pulsar.base64.h", ""),
            ("__pulsar.name./w==", "/g=="),
            ("__pulsar.base64.__pulsar.name./w==", ""),
        ],
    ]
    for single, _ in entry.messages or []:
        single.ClearField("properties")
    assert entry.messages == [
        (SingleMessageMetadata(partition_key="k", event_time=5, sequence_id=40, payload_size=1), b"v"),
        (
            SingleMessageMetadata(
                partition_key="/w==", partition_key_b64_encoded=True, null_value=True, sequence_id=41, payload_size=0
            ),
            b"",
        ),
    ]


@pytest.mark.parametrize("compression", list(Compression))
def test_kafkas_codecs_are_decoded(compression: Compression) -> None:
    batch = codec.encode([Record(value=b"v" * 1000)] * 3, codec=compression)

    entry = read(entries.from_batch(memoryview(batch), 5).headers_and_payload)

    assert [payload for _, payload in entry.messages or []] == [b"v" * 1000] * 3


def test_removed_records_keep_the_positions_of_the_others() -> None:
    batch = codec.encode([Record(value=b"a", offset_delta=1), Record(value=b"b", offset_delta=3)])
    batch = batch[:23] + (5).to_bytes(4, "big") + batch[27:]

    found = entries.from_batch(memoryview(batch), 5)

    messages = read(found.headers_and_payload).messages or []
    assert found.message_count == 6
    assert [single.compacted_out for single, _ in messages] == [True, False, True, False, True, True]
    assert [payload for _, payload in messages] == [b"", b"a", b"", b"b", b"", b""]


def test_an_empty_batch_has_nothing_to_deliver() -> None:
    batch = codec.encode([Record()])
    batch = batch[:57] + bytes(4)

    assert entries.from_batch(memoryview(batch), 5) == (b"", 0, False)
    assert entries.routing(memoryview(batch)).ordering_key == b""


@pytest.mark.parametrize(
    ("head", "single", "expected"),
    [
        (metadata(), None, b""),
        (metadata(partition_key="k"), None, b"k"),
        (metadata(partition_key="QQ==", partition_key_b64_encoded=True), None, b"A"),
        (metadata(partition_key="k", ordering_key=b"o"), None, b"o"),
        (metadata(), SingleMessageMetadata(), b""),
        (metadata(), SingleMessageMetadata(partition_key="k"), b"k"),
        (metadata(), SingleMessageMetadata(partition_key="k", ordering_key=b"o"), b"o"),
        (metadata(ordering_key=b"e"), SingleMessageMetadata(partition_key="k", ordering_key=b"o"), b"e"),
        (metadata(partition_key="k", encryption_keys=[EncryptionKeys(key="n", value=b"x")]), None, b"k"),
    ],
)
def test_key_shared_uses_the_key_of_the_first_message(
    head: MessageMetadata, single: SingleMessageMetadata | None, expected: bytes
) -> None:
    payload = b"v"
    if single is not None:
        head.num_messages_in_batch = 2
        payload = pack([(single, b"v"), (SingleMessageMetadata(partition_key="other", ordering_key=b"other"), b"v")])

    assert entries.routing(memoryview(store(head, payload))).ordering_key == expected


def test_key_shared_uses_kafkas_key() -> None:
    batch = codec.encode([Record(key=b"\xff", value=b"v" * 100), Record(key=b"other")], codec=Compression.LZ4)

    assert entries.routing(memoryview(batch)).ordering_key == b"\xff"


@pytest.mark.parametrize(
    ("fields", "expected"), [({}, 0), ({"deliver_at_time": 2000}, 2000), ({"deliver_at_time": -1}, 0)]
)
def test_the_delivery_time_is_read_from_the_entry(fields: dict[str, int], expected: int) -> None:
    assert entries.routing(memoryview(store(metadata(**fields), b"v"))).deliver_at_ms == expected


def test_chunks_of_a_message_are_recognized() -> None:
    head = metadata(
        uuid="p-7", num_chunks_from_msg=3, chunk_id=2, total_chunk_msg_size=9, compression=ZSTD, partition_key="k"
    )

    assert entries.routing(memoryview(store(head, b"v"))) == (b"k", 0, b"p-7", 2, 3)
    assert entries.routing(memoryview(store(metadata(), b"v"))) == (b"", 0, b"", 0, 0)


@given(st.lists(st.tuples(TEXT, BYTES), max_size=3), st.none() | BYTES)
@SETTINGS
def test_reserved_header_names_of_a_kafka_client_become_properties(
    headers: list[tuple[str, bytes]], value: bytes | None
) -> None:
    batch = codec.encode([Record(value=value, headers=tuple(headers))])

    entry = read(entries.from_batch(memoryview(batch), 5).headers_and_payload)

    assert entry.messages is not None
    names = [pair.key for pair in entry.messages[0][0].properties]
    assert [name for name in names if not name.startswith("__pulsar.base64.")] == [name for name, _ in headers]


def test_entries_that_were_copied_into_other_batches_are_read_as_kafka_batches() -> None:
    first, second = (records(store(metadata(sequence_id=at), b"v")) for at in (1, 2))

    found = entries.from_batch(memoryview(codec.encode([first[0], replace(second[0], offset_delta=None)])), 5)

    assert found[1:] == (2, True)
    assert read(found.headers_and_payload).metadata.producer_name == ""


@pytest.mark.parametrize("name", list(SENT))
def test_entries_of_a_real_client_are_returned_unchanged(name: str) -> None:
    head, block = (bytes.fromhex(digits) for digits in SENT[name])
    sent = MessageMetadata.FromString(head)
    payload = bytes(blocks.decompress(blocks.BlockCodec(sent.compression), block, sent.uncompressed_size))

    stored = store(sent, block)
    entry = read(entries.from_batch(memoryview(stored), 5).headers_and_payload)

    assert [record.value for record in records(stored)] == [b"value %d " % index * 20 for index in range(3)]
    assert [record.key for record in records(stored)] == [None, b"k1", b"k2"]
    assert [record.timestamp for record in records(stored)] == [sent.publish_time, sent.publish_time, 5]
    assert entry.messages == unpack(payload, 3)
    sent.ClearField("compression")
    assert entry.metadata == sent
