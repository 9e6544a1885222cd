"""Admission of batches: sizes, timestamps, complete records, keys."""

import pytest

from bearlake import kernel
from bearlake.errors import TooLarge
from bearlake.records.batch import Compression, TimestampType, timestamp_type
from bearlake.records.codec import Record, encode
from bearlake.streams.admission import BadTimestamp
from bearlake.streams.checking import BadRecord
from fixtures.deployment import NOW_MS, append, append_of, batch_of, create, deployment, fetch
from simulator.loop import virtual_time


def at(*timestamps: int) -> bytes:
    return encode([Record(value=b"x", timestamp=timestamp) for timestamp in timestamps])


def damaged(codec: Compression = Compression.NONE) -> bytes:
    """A batch with a good header and checksum, and a second record that is not one."""
    batch = bytearray(encode([Record(key=b"k", value=b"v", timestamp=NOW_MS) for _ in range(3)]))
    batch[kernel.HEADER_BYTES + 9 : kernel.HEADER_BYTES + 12] = b"\xff\xff\xff"
    batch[17:21] = kernel.crc32c(batch, 21).to_bytes(4, "big")
    assert codec is Compression.NONE
    return bytes(batch)


@virtual_time
async def test_batches_larger_than_the_stream_allows_are_refused() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, max_message_bytes="100")

        append_of(view, batch_of(b"a"))
        with pytest.raises(TooLarge) as refused:
            append_of(view, batch_of(b"a" * 100))
        assert refused.value.bytes_max == 100


@virtual_time
async def test_timestamps_too_far_from_the_servers_clock_are_refused() -> None:  # KIP-937
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, message_timestamp_after_max_ms="1000", message_timestamp_before_max_ms="2000")

        append_of(view, at(NOW_MS + 1_000, NOW_MS - 2_000))
        append_of(view, at(-1))
        with pytest.raises(BadTimestamp):
            append_of(view, at(NOW_MS, NOW_MS + 1_001))
        with pytest.raises(BadTimestamp):
            append_of(view, at(NOW_MS - 2_001, NOW_MS))


@virtual_time
async def test_log_append_time_stamps_a_copy_and_is_served() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, message_timestamp_type="LogAppendTime")
        batch = at(5, 7)
        before = bytes(batch)

        await append(streams, view, batch)
        fetched = await fetch(streams, view)

        assert batch == before
        ((_, _, header),) = kernel.batches(fetched.views[0], 0, len(fetched.views[0]))
        assert timestamp_type(header.attributes) is TimestampType.LOG_APPEND_TIME
        assert header.max_timestamp == NOW_MS
        assert kernel.crc32c(fetched.views[0], 21) == int.from_bytes(fetched.views[0][17:21], "big")


@virtual_time
async def test_records_are_checked_unless_the_stream_asks_for_headers_only() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        plain = await create(streams, "plain", record_validation="header")
        strict = await create(streams, "strict")

        append_of(plain, damaged())
        append_of(strict, batch_of(b"a", b"b"))
        with pytest.raises(BadRecord) as refused:
            append_of(strict, damaged())
        assert refused.value.indexes == [1]


@virtual_time
async def test_key_compaction_needs_a_key_in_every_record() -> None:
    async with deployment() as stores:
        streams = await stores.serve()
        view = await create(streams, cleanup_policy="compact")
        records = [Record(key=b"k", value=b"a", timestamp=NOW_MS), Record(value=b"b", timestamp=NOW_MS)]

        append_of(view, encode(records[:1], codec=Compression.ZSTD))
        with pytest.raises(BadRecord) as refused:
            append_of(view, encode(records, codec=Compression.ZSTD))
        assert refused.value.indexes == [1]
