"""Behaviour of every metadata store: terminated streams accept no more batches from any producer."""

import asyncio
from typing import Any

import pytest

from bearlake.errors import Invalid, NotFound
from bearlake.metadata import Metadata
from bearlake.metadata.model import BATCH_NAMED, EntryKind, Outcome, OutcomeKind, Stream
from fixtures import by_name

ACCEPTED, DUPLICATE, OUT_OF_ORDER, FENCED, NOT_FOUND, UNEXPECTED_OFFSET, TERMINATED, UNKNOWN_PRODUCER, UNSURE, *_ = (
    OutcomeKind
)


@pytest.fixture
async def stream(scene: Any) -> Stream:
    made: Stream = await scene.stream(partition_count=40)  # more than share a row in PostgreSQL
    return made


async def test_no_partition_takes_a_batch_any_more_by_any_server(scene: Any, stream: Stream, peer: Metadata) -> None:
    keys = [stream.partition(index) for index in (0, 39)]
    await scene.commit(*(scene.batch(key, 3) for key in keys))
    await scene.commit(scene.batch(keys[0], 1), by=peer)  # both know the stream
    terminated = await by_name.terminate(peer, "orders")
    refused = await scene.commit(*(scene.batch(key, 2) for key in keys))

    assert terminated.is_terminated
    assert not terminated.is_deleted
    assert await scene.metadata.streams.get("orders") == terminated
    assert refused.outcomes == [Outcome(TERMINATED, -1, 0)] * 2
    assert (refused.position, list(refused.slices)) == (0, [])
    assert await peer.log.bounds(keys) == {keys[0]: (0, 4, 4), keys[1]: (0, 3, 3)}


async def test_batches_for_other_streams_in_the_object_are_taken(scene: Any, stream: Stream) -> None:
    other = await scene.partition("other")
    await by_name.terminate(scene.metadata, "orders")
    committed = await scene.commit(scene.batch(stream.partition(0), 2), scene.batch(other, 2))

    assert committed.outcomes == [Outcome(TERMINATED, -1, 0), Outcome(ACCEPTED, 0, 0)]


async def test_a_batch_that_was_stored_before_stays_a_duplicate(scene: Any, stream: Stream) -> None:
    """Its producer lost the answer, so the answer must not be that the batch is not stored."""
    key = stream.partition(0)
    (producer,) = await scene.metadata.producers.allocate(1)
    named = await scene.metadata.producers.named(key, "p")
    first = scene.batch(key, 2, producer=producer, sequence=0)
    second = scene.batch(key, 1, producer=named.producer_id, sequence=7, flags=BATCH_NAMED)
    await scene.commit(first, second)
    await by_name.terminate(scene.metadata, "orders")
    again = await scene.commit(
        first,
        second,
        first._replace(base_sequence=2),
        second._replace(base_sequence=8),
        first._replace(base_sequence=9),
        first._replace(producer_epoch=1),
    )

    assert again.outcomes == [Outcome(DUPLICATE, 0, 0), Outcome(DUPLICATE, 2, 0), *[Outcome(TERMINATED, -1, 0)] * 4]


async def test_a_refused_batch_changes_no_producer(scene: Any, stream: Stream) -> None:
    key = stream.partition(0)
    (producer,) = await scene.metadata.producers.allocate(1)
    await scene.commit(scene.batch(key, 2, producer=producer, sequence=0))
    before = await scene.metadata.log.producers(key)
    await by_name.terminate(scene.metadata, "orders")
    await scene.commit(scene.batch(key, 2, producer=producer, epoch=1), scene.batch(await scene.partition("other")))

    assert await scene.metadata.log.producers(key) == before


async def test_a_token_from_before_the_termination_gets_its_first_result(scene: Any, stream: Stream) -> None:
    batch = scene.batch(stream.partition(0), 2)
    first = await scene.commit(batch, token="wal/x")
    await by_name.terminate(scene.metadata, "orders")
    again = await scene.commit(batch, token="wal/x")

    assert (again.position, list(again.outcomes)) == (first.position, list(first.outcomes))


async def test_commits_and_a_termination_at_once_agree_on_the_end(scene: Any, stream: Stream, peer: Metadata) -> None:
    """I1, I2: every accepted batch lies below the end that the termination found; nothing follows the end."""
    key = stream.partition(0)
    await scene.commit(scene.batch(key, 1))

    async def terminate() -> int:
        await asyncio.sleep(0)
        await by_name.terminate(peer, "orders")
        end: int = (await peer.log.bounds([key]))[key].end
        return end

    objects = [scene.object(scene.batch(key, 1)) for _ in range(30)]
    commits = [(scene.metadata, peer)[number % 2].log.commit(commit) for number, commit in enumerate(objects)]
    *results, end = await asyncio.gather(*commits[:15], *commits[15:], terminate())

    outcomes = [result.outcomes[0] for result in results]
    accepted = sorted(outcome.base_offset for outcome in outcomes if outcome.kind is ACCEPTED)
    assert accepted == list(range(1, end))
    assert {outcome.kind for outcome in outcomes} <= {ACCEPTED, TERMINATED}
    assert (await scene.metadata.log.bounds([key]))[key].end == end


async def test_a_repeated_termination_adds_no_log_entry(scene: Any, stream: Stream, peer: Metadata) -> None:
    head = await scene.metadata.log.head()
    first = await by_name.terminate(scene.metadata, "orders")
    second = await by_name.terminate(peer, "orders")

    assert first == second
    (entry,) = (await peer.log.follow(head, limit=10)).entries
    assert (entry.kind, entry.stream_number, entry.position) == (EntryKind.STREAM, stream.number, first.version)


async def test_termination_survives_maintenance_and_a_new_handle(scene: Any, stream: Stream, backend: Any) -> None:
    await by_name.terminate(scene.metadata, "orders")
    await scene.maintain(entry_count_min=0)
    reopened = await backend.open()

    refused = await scene.commit(scene.batch(stream.partition(0)), by=reopened)
    assert refused.outcomes[0].kind is TERMINATED


async def test_a_terminated_stream_is_not_grown(scene: Any, stream: Stream) -> None:
    await by_name.terminate(scene.metadata, "orders")

    with pytest.raises(Invalid):
        await by_name.add_partitions(scene.metadata, "orders", 41)


async def test_a_terminated_stream_is_altered_trimmed_and_deleted_as_any(scene: Any, stream: Stream) -> None:
    key = stream.partition(0)
    await scene.commit(scene.batch(key, 3))
    await by_name.terminate(scene.metadata, "orders")
    altered = await by_name.alter(scene.metadata, "orders", set_configs={"a": "b"}, unset_configs=())
    bounds = await scene.metadata.log.trim(key, 2)
    deleted = await by_name.delete(scene.metadata, "orders")

    assert altered.is_terminated
    assert bounds == (2, 3, 3)
    assert deleted.is_deleted
    assert (await scene.commit(scene.batch(key))).outcomes == [Outcome(NOT_FOUND, -1, -1)]
    again = await scene.stream()
    assert not again.is_terminated
    assert (await scene.commit(scene.batch(again.partition(0)))).outcomes[0].kind is ACCEPTED


async def test_a_missing_stream_is_not_terminated(scene: Any) -> None:
    with pytest.raises(NotFound):
        await by_name.terminate(scene.metadata, "orders")
