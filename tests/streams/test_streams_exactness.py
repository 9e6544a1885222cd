"""I5 and I6 as a property: what consumers get for an offset is the same before and after compaction, and so are the offsets
that times are resolved to."""

import asyncio
import struct
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bearlake import kernel
from bearlake.metadata.model import BATCH_CONTROL, BATCH_TRANSACTIONAL, BatchCommit, ObjectCommit
from bearlake.records.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    COMPRESSION_MASK,
    HEADER_BYTES,
    Compression,
)
from bearlake.records.codec import Producer, Record, decode, encode, stamp
from bearlake.streams.catalog import StreamView
from bearlake.streams.offsets import OffsetAnswer, OffsetQuestion, OffsetSpec
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.service import Streams
from fixtures.deployment import Deployment, create, deployment, fetch
from fixtures.history import COLD, PlanningWorker
from simulator.loop import virtual_time

STAMP_MS = 1_700_000_000_500


class Made(NamedTuple):
    """A batch as a producer might have sent it, and what kind it is."""

    kind: str
    raw: bytes
    record_count: int
    producer: Producer


def patched(raw: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(raw)
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, kernel.crc32c(changed, 21))
    return bytes(changed)


def make(kind: str, records: list[Record], codec: Compression, producer_id: int, sequence: int) -> Made:
    producer = Producer(id=producer_id, epoch=3, base_sequence=sequence) if producer_id >= 0 else Producer()
    raw = encode(records, codec=codec, producer=producer)
    if kind == "stamped":
        raw = bytes(stamp(raw, STAMP_MS))
    elif kind == "control":
        producer = Producer()
        raw = patched(
            encode([Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0", timestamp=records[0].timestamp)]),
            21,
            ">h",
            ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL,
        )
        return Made(kind, raw, 1, producer)
    elif kind == "undecodable":
        raw = patched(encode(records), HEADER_BYTES, ">b", 101)
        producer = Producer()
    elif kind == "inexact":
        raw = encode([*records, Record(headers=(("caf\udce9", b"1"),), timestamp=5)], codec=codec, producer=producer)
        return Made(kind, raw, len(records) + 1, producer)
    return Made(kind, raw, len(records), producer)


optional_bytes = st.none() | st.binary(max_size=40)
times = st.integers(-1, 60) | st.just(2**40)
record = st.builds(
    Record,
    key=optional_bytes,
    value=optional_bytes | st.just(b"v" * 300),
    headers=st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3).map(tuple),
    timestamp=times,
)
batch = st.tuples(
    st.sampled_from(["plain", "plain", "plain", "stamped", "control", "undecodable", "inexact"]),
    st.lists(record, min_size=1, max_size=5),
    st.sampled_from(list(Compression)),
    st.integers(-1, 1),
    st.integers(0, 2),  # partition
)


async def commit(
    stores: Deployment, streams: Streams, view: StreamView, key: str, batches: list[tuple[int, Made]]
) -> None:
    """Commit an object with the batches as they are, even those that admission would refuse."""
    ordered = sorted(batches, key=lambda batch: batch[0])
    body = b"".join(made.raw for _, made in ordered)
    position = 0
    commits = []
    for index, made in ordered:
        header = kernel.batches(made.raw, 0, len(made.raw))[0][2]
        flags = BATCH_CONTROL | BATCH_TRANSACTIONAL if made.kind == "control" else 0
        commits.append(
            BatchCommit(
                view.partition(index), position, len(made.raw), made.record_count, header.max_timestamp,
                made.producer.id, made.producer.epoch, made.producer.base_sequence, flags,
            )
        )  # fmt: skip
        position += len(made.raw)
    await stores.store.put(key, [body])
    result = await stores.metadata.log.commit(
        ObjectCommit(token=key, server=streams.server, size=len(body), batches=commits)
    )
    assert all(outcome.kind == 0 for outcome in result.outcomes), result


async def read_batches(streams: Streams, view: StreamView, index: int, start: int, bytes_max: int) -> dict[int, Any]:
    """Base offset → what a client can see of the batch, reading from `start` to the end."""
    found: dict[int, Any] = {}
    offset = start
    while True:
        fetched = await fetch(streams, view, offset, index=index, bytes_max=bytes_max)
        assert fetched.error is None, fetched.error
        if offset == fetched.end:
            return found
        for part in fetched.views:
            for position, base, header in kernel.batches(part, 0, len(part)):
                assert base <= offset <= base + header.last_offset_delta
                raw = bytes(part[position : position + header.length])
                assert struct.unpack_from(">I", raw, 17)[0] == kernel.crc32c(raw, 21)
                assert struct.unpack_from(">i", raw, 12)[0] == -1
                found[base] = seen(raw, header)
                offset = base + header.last_offset_delta + 1
        assert fetched.views


def seen(raw: bytes, header: kernel.BatchHeader) -> Any:
    """The properties of a batch that a consumer can observe: all except its compression."""
    producer = (header.producer_id, header.producer_epoch, header.base_sequence)
    common = (header.last_offset_delta, header.attributes & ~COMPRESSION_MASK, *producer)
    if header.attributes & ATTRIBUTE_CONTROL or header.record_count == 0:
        return header.last_offset_delta, "no records"
    if raw[HEADER_BYTES] == 101:
        return common, raw
    stamped = header.max_timestamp if header.attributes & ATTRIBUTE_LOG_APPEND_TIME else None
    return common, stamped, decode(raw, 1 << 30)


def spread(found: dict[int, Any]) -> dict[int, Any]:
    """Neighbours without records as single offsets: where one empty batch ends and the next begins does not matter."""
    flat: dict[int, Any] = {}
    for base, what in found.items():
        if what[1] == "no records":
            flat.update(dict.fromkeys(range(base, base + what[0] + 1), "no records"))
        else:
            flat[base] = what
    return flat


async def ask_times(streams: Streams, view: StreamView) -> list[tuple[int, int]]:
    stamps = [*range(-1, 62), STAMP_MS - 1, STAMP_MS, STAMP_MS + 1, 2**40, 2**40 + 1]
    questions = [
        OffsetQuestion(view.partition(index), stamp)
        for index in range(3)
        for stamp in [*(at for at in stamps if at >= 0), OffsetSpec.MAX_TIMESTAMP]
    ]
    answers = await streams.offsets(questions)
    assert all(answer.error is None for answer in answers), answers
    return [(answer.offset, answer.timestamp) for answer in answers]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    objects=st.lists(st.lists(batch, min_size=1, max_size=5), min_size=1, max_size=5),
    row_group_bytes=st.sampled_from([1, 300, 2_000, 1 << 20]),
    file_bytes_max=st.sampled_from([1, 4_000, 1 << 20]),
    bytes_max=st.sampled_from([1, 200, 1 << 20]),
    trim=st.integers(0, 6),
    is_merged=st.booleans(),
)
def test_consumers_see_the_same_before_and_after(
    objects: list[Any], row_group_bytes: int, file_bytes_max: int, bytes_max: int, trim: int, is_merged: bool
) -> None:
    @virtual_time
    async def body() -> None:
        async with deployment() as stores:
            streams = await stores.serve(COLD)
            view = await create(streams, partition_count=3)
            compactor = PlanningWorker(stores, row_group_bytes=row_group_bytes, file_bytes_max=file_bytes_max)
            sequences: dict[tuple[int, int], int] = {}
            for number, batches in enumerate(objects):
                made = []
                for kind, records, codec, producer_id, index in batches:
                    if kind in ("control", "undecodable"):
                        producer_id = -1
                    sequence = sequences.get((index, producer_id), 0)
                    batch = make(kind, records, codec, producer_id, sequence)
                    sequences[index, producer_id] = sequence + batch.record_count
                    made.append((index, batch))
                await commit(stores, streams, view, f"wal/{number}", made)
                is_last = number == len(objects) - 1
                if is_merged and not is_last:
                    await compactor.compact(view)
            starts = []
            for index in range(3):
                bounds = (await streams.bounds([view.partition(index)]))[view.partition(index)]
                starts.append(min(trim, bounds.end))
                await streams.trim(ANONYMOUS, "orders", index, starts[-1])
            await asyncio.sleep(1)
            reader = await stores.serve(COLD)
            before = [await read_batches(reader, view, index, starts[index], bytes_max) for index in range(3)]
            has_oddities = any(kind in ("undecodable", "control") for batches in objects for kind, *_ in batches)
            times_before = None if has_oddities else await ask_times(reader, view)

            if await compactor.ranges(view):
                await compactor.compact(view)
            if is_merged and len(await stores.metadata.objects.data_files(view.stream.number)) > 1:
                await compactor.merge(view)
            await compactor.sweep()
            await asyncio.sleep(1)

            for server in (reader, await stores.serve(COLD)):
                after = [await read_batches(server, view, index, starts[index], bytes_max) for index in range(3)]
                assert [spread(batch) for batch in after] == [spread(batch) for batch in before]
                if times_before is not None:
                    assert await ask_times(server, view) == times_before

    body()


@virtual_time
async def test_records_without_timestamps_have_no_largest_one() -> None:
    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams, partition_count=3)
        await commit(
            stores, streams, view, "wal/0", [(0, make("plain", [Record(value=b"v")], Compression.NONE, -1, 0))]
        )
        asked = [OffsetQuestion(view.partition(0), OffsetSpec.MAX_TIMESTAMP)]

        before = await streams.offsets(asked)
        await PlanningWorker(stores).compact(view)
        await asyncio.sleep(1)

        assert before == await streams.offsets(asked) == [OffsetAnswer(-1, -1)]


@virtual_time
async def test_an_offset_without_rows_is_passed_although_its_row_group_and_the_next_have_later_rows() -> None:
    def values(count: int) -> list[Record]:
        return [Record(value=b"x" * 300, timestamp=at) for at in range(count)]

    def made(kind: str, count: int) -> Made:
        return make(kind, values(count), Compression.NONE, -1, 0)

    async with deployment() as stores:
        streams = await stores.serve(COLD)
        view = await create(streams, partition_count=3)
        # offset 3 has no row; offsets 4 and 5 have rows, but are kept; row group 1 belongs to two partitions
        first = [(0, made("plain", 3)), (0, made("control", 1)), (0, made("inexact", 1)), (0, made("plain", 2))]
        await commit(stores, streams, view, "wal/0", [*first, (1, made("plain", 1)), (1, made("plain", 3))])
        await PlanningWorker(stores, row_group_bytes=1_750).compact(view)
        await asyncio.sleep(1)

        (empty, *_), *_ = [
            kernel.batches(part, 0, len(part)) for part in (await fetch(streams, view, 3, bytes_max=1)).views
        ]
        found = await read_batches(streams, view, 0, 0, 200)

        assert (empty[1], empty[2].last_offset_delta, empty[2].record_count) == (3, 0, 0)
        assert list(found) == [0, 3, 4, 6]
