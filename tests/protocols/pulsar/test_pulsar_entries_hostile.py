"""Entries with false sizes, compression or counts are refused with an error that names the fault, and never exceed the memory limit."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.errors import Corrupt, Invalid, TooLarge, Unsupported
from bearlake.protocols.pulsar import entries
from bearlake.protocols.pulsar.proto.metadata_pb2 import (
    LZ4,
    ZLIB,
    ZSTD,
    EncryptionKeys,
    MessageMetadata,
    SingleMessageMetadata,
)
from bearlake.records import blocks, codec
from bearlake.records.batch import Compression
from bearlake.records.codec import Record
from fixtures.pulsar_entries import metadata, pack, read

CODECS = [number for number in blocks.BlockCodec if number]


def compressed(number: int, content: bytes) -> bytes:
    return bytes(blocks.compress(blocks.BlockCodec(number), content))


@pytest.mark.parametrize("number", CODECS)
@pytest.mark.parametrize("said", [0, 99, 101, 10_000])
def test_a_wrong_uncompressed_size_is_refused(number: int, said: int) -> None:
    head = metadata(compression=number, uncompressed_size=said)

    with pytest.raises(Corrupt):
        entries.to_batch(head, compressed(number, bytes(100)))


@pytest.mark.parametrize("number", CODECS)
def test_a_bomb_is_refused_because_of_its_declared_size(number: int) -> None:
    head = metadata(compression=number, uncompressed_size=2**32 - 1)

    with pytest.raises(TooLarge, match=r"4294967295 bytes.* 67108864 bytes"):
        entries.to_batch(head, compressed(number, bytes(10**6)))


@pytest.mark.parametrize("number", CODECS)
def test_a_bomb_that_declares_less_than_its_size_is_refused(number: int) -> None:
    head = metadata(compression=number, uncompressed_size=1000)

    with pytest.raises(Corrupt):
        entries.to_batch(head, compressed(number, bytes(10**7)))


@pytest.mark.parametrize("number", CODECS)
@pytest.mark.parametrize("payload", [b"", b"\xff" * 20])
def test_damaged_compression_is_refused(number: int, payload: bytes) -> None:
    with pytest.raises(Corrupt):
        entries.to_batch(metadata(compression=number, uncompressed_size=100), payload)


def test_an_unknown_codec_is_refused() -> None:
    head = MessageMetadata.FromString(metadata().SerializeToString() + b"\x40\x09")

    with pytest.raises(Unsupported, match="9"):
        entries.to_batch(head, b"v")


def test_an_unknown_codec_of_an_encrypted_entry_is_left_to_clients() -> None:
    head = MessageMetadata.FromString(
        metadata(encryption_keys=[EncryptionKeys(key="k", value=b"x")]).SerializeToString() + b"\x40\x09"
    )

    stored = entries.to_batch(head, b"v")

    assert read(entries.from_batch(memoryview(stored.batch), 0).headers_and_payload)[:2] == (head, b"v")


def test_a_large_entry_is_refused() -> None:
    with pytest.raises(TooLarge, match=r"101 bytes.* 100 bytes"):
        entries.to_batch(metadata(), bytes(101), 100)


def test_an_entry_that_is_large_as_records_is_refused() -> None:
    messages = [(SingleMessageMetadata(ordering_key=b"k"), b"")] * 100

    payload = pack(messages)

    with pytest.raises(TooLarge):
        entries.to_batch(metadata(num_messages_in_batch=100), payload, len(payload))


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_wrong_count_is_refused(count: int) -> None:
    payload = pack([(SingleMessageMetadata(), b"v")] * 2)

    with pytest.raises(Invalid):
        entries.to_batch(metadata(num_messages_in_batch=count), payload)


@pytest.mark.parametrize("name", ["producer_name", "sequence_id", "publish_time"])
def test_metadata_without_required_fields_is_refused(name: str) -> None:
    head = metadata()
    head.ClearField(name)

    with pytest.raises(Invalid):
        entries.to_batch(head, b"v")


def test_encrypted_payloads_are_not_inspected() -> None:
    keys = [EncryptionKeys(key="k", value=b"x")]
    head = metadata(
        num_messages_in_batch=2**31 - 1, encryption_keys=keys, compression=ZSTD, uncompressed_size=2**32 - 1
    )

    stored = entries.to_batch(head, b"\xff" * 20)

    assert stored.record_count == 1
    assert entries.from_batch(memoryview(stored.batch), 0).message_count == 2**31 - 1


def test_a_kafka_batch_that_is_a_bomb_is_refused() -> None:
    batch = memoryview(codec.encode([Record(value=bytes(10**6))], codec=Compression.ZSTD))

    for function in (
        lambda: entries.from_batch(batch, 0, uncompressed_bytes_max=10**5),
        lambda: entries.routing(batch, 10**5),
    ):
        with pytest.raises(TooLarge):
            function()


def test_a_batch_of_an_unknown_codec_is_corrupt() -> None:
    batch = bytearray(codec.encode([Record()]))
    batch[22] = 7

    with pytest.raises(Corrupt, match="7"):
        entries.from_batch(memoryview(batch), 0)


@pytest.mark.parametrize("is_opaque", [False, True])
def test_an_entry_that_no_client_takes_is_too_large(is_opaque: bool) -> None:
    head = metadata(encryption_keys=[EncryptionKeys(key="k", value=b"x")] if is_opaque else [])
    content = b"".join(number.to_bytes(3, "big") for number in range(0, 2**24, 997))

    stored = entries.to_batch(head, content)

    with pytest.raises(TooLarge, match="1000 bytes"):
        entries.from_batch(memoryview(stored.batch), 0, message_bytes_max=1000)


def test_a_chunk_is_never_compressed_on_its_way_out() -> None:
    """Clients put chunks together before they uncompress anything."""
    stored = entries.to_batch(metadata(uuid="u", num_chunks_from_msg=2, total_chunk_msg_size=4_000), bytes(2_000))

    with pytest.raises(TooLarge, match="1000 bytes"):
        entries.from_batch(memoryview(stored.batch), 0, message_bytes_max=1000)


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from([0, LZ4, ZLIB, ZSTD]), st.integers(0, 200), st.binary(max_size=60), st.none() | st.integers(0, 3)
)
def test_any_payload_is_stored_or_refused(number: int, size: int, payload: bytes, count: int | None) -> None:
    head = metadata(compression=number, uncompressed_size=size)
    if count is not None:
        head.num_messages_in_batch = count

    with contextlib.suppress(Invalid):
        stored = entries.to_batch(head, payload)
        found = entries.from_batch(memoryview(stored.batch), 0)
        assert found.message_count == stored.record_count
