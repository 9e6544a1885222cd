"""Commits in every store: offsets, producers' sequences, tokens, fences. Rules by Kafka: KIP-98, KAFKA-5793; and I9."""

import asyncio
from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Metadata
from bearlake.metadata.model import Outcome, OutcomeKind, ServerRef, Slice, partition_key
from fixtures import by_name

ACCEPTED, DUPLICATE, OUT_OF_ORDER, FENCED, NOT_FOUND, UNEXPECTED_OFFSET, TERMINATED, UNKNOWN_PRODUCER, UNSURE, *_ = (
    OutcomeKind
)
SEQUENCE_MAX = 2**31 - 1


def kinds(committed: Any) -> list[OutcomeKind]:
    return [outcome.kind for outcome in committed.outcomes]


async def test_offsets_are_dense_per_partition_and_slices_name_the_bytes(scene: Any, peer: Metadata) -> None:
    stream = await scene.stream(partition_count=2)
    a, b = stream.partition(0), stream.partition(1)
    first = await scene.commit(scene.batch(a, 3, length=10), scene.batch(b, 2, length=20, timestamp=7))
    second = await scene.commit(scene.batch(b, 5, length=30), by=peer)

    assert first.outcomes == [Outcome(ACCEPTED, 0, 0), Outcome(ACCEPTED, 0, 0)]
    assert first.slices == [Slice(a, 0, 3, 0, 10, 1_000), Slice(b, 0, 2, 10, 20, 7)]
    assert second.outcomes == [Outcome(ACCEPTED, 2, 0)]
    assert second.slices == [Slice(b, 2, 5, 0, 30, 1_000)]
    assert second.position > first.position
    assert await peer.log.bounds([a, b]) == {a: (0, 3, 3), b: (0, 7, 7)}


async def test_adjacent_batches_of_a_partition_are_one_slice(scene: Any) -> None:
    partition = await scene.partition()
    committed = await scene.commit(
        scene.batch(partition, 3, length=10, timestamp=5),
        scene.batch(partition, 4, length=10, timestamp=9),
        scene.batch(partition, 1, length=10, timestamp=2),
    )

    assert [outcome.base_offset for outcome in committed.outcomes] == [0, 3, 7]
    assert committed.slices == [Slice(partition, 0, 8, 0, 30, 9)]


async def test_a_rejected_batch_between_accepted_ones_splits_the_slice(scene: Any) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition, 1, producer=1))
    committed = await scene.commit(
        scene.batch(partition, 2, length=10),
        scene.batch(partition, 2, length=10, producer=1, sequence=5),
        scene.batch(partition, 2, length=10),
    )

    assert kinds(committed) == [ACCEPTED, OUT_OF_ORDER, ACCEPTED]
    assert committed.slices == [Slice(partition, 1, 2, 0, 10, 1_000), Slice(partition, 3, 2, 20, 10, 1_000)]


async def test_the_entry_of_a_commit_is_what_the_commit_returned(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    committed = await scene.commit(scene.batch(partition, 3), token="wal/x")
    (entry,) = (await peer.log.follow(committed.position - 1, limit=10)).entries

    assert (entry.object_key, entry.object_size, entry.position) == ("wal/x", 100, committed.position)
    assert list(entry.slices) == list(committed.slices)


async def test_batches_without_a_partition_are_refused_alone(scene: Any) -> None:
    stream = await scene.stream()
    unknown_index, unknown_stream = stream.partition(1), partition_key(stream.number + 1000, 0)
    committed = await scene.commit(
        scene.batch(unknown_stream), scene.batch(stream.partition(0)), scene.batch(unknown_index)
    )

    assert committed.outcomes == [Outcome(NOT_FOUND, -1, -1), Outcome(ACCEPTED, 0, 0), Outcome(NOT_FOUND, -1, -1)]
    assert committed.slices == [Slice(stream.partition(0), 0, 1, 100, 100, 1_000)]


async def test_a_stream_deleted_meanwhile_is_refused_and_its_neighbours_are_not(scene: Any, peer: Metadata) -> None:
    kept, gone = await scene.stream("kept"), await scene.stream("gone")
    await scene.commit(scene.batch(kept.partition(0)), scene.batch(gone.partition(0)))
    await by_name.delete(peer, "gone")
    again = await scene.stream("gone")
    committed = await scene.commit(
        scene.batch(gone.partition(0)), scene.batch(kept.partition(0)), scene.batch(again.partition(0))
    )

    assert kinds(committed) == [NOT_FOUND, ACCEPTED, ACCEPTED]
    assert [outcome.base_offset for outcome in committed.outcomes] == [-1, 1, 0]


async def test_a_commit_without_accepted_batches_writes_no_entry(scene: Any) -> None:
    partition = await scene.partition()
    head = await scene.metadata.log.head()
    committed = await scene.commit(scene.batch(partition, producer=1, sequence=9))

    assert (committed.position, list(committed.slices)) == (0, [])
    assert kinds(committed) == [OUT_OF_ORDER]
    assert await scene.metadata.log.head() == head


async def test_an_object_without_batches_writes_no_entry(scene: Any) -> None:
    committed = await scene.commit()

    assert (committed.position, list(committed.outcomes)) == (0, [])


# Idempotent producers.


async def test_sequences_continue_where_the_last_batch_ended(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    first = await scene.commit(scene.batch(partition, 3, producer=1, sequence=0))
    second = await scene.commit(scene.batch(partition, 2, producer=1, sequence=3), by=peer)
    gap = await scene.commit(scene.batch(partition, 2, producer=1, sequence=6))

    assert [*kinds(first), *kinds(second), *kinds(gap)] == [ACCEPTED, ACCEPTED, OUT_OF_ORDER]


async def test_sequences_continue_within_one_object(scene: Any) -> None:
    partition = await scene.partition()
    committed = await scene.commit(
        scene.batch(partition, 3, producer=1, sequence=0),
        scene.batch(partition, 2, producer=1, sequence=3),
        scene.batch(partition, 2, producer=1, sequence=3),
        scene.batch(partition, 1, producer=1, sequence=9),
        scene.batch(partition, 1, producer=1, sequence=5),
    )

    assert kinds(committed) == [ACCEPTED, ACCEPTED, DUPLICATE, OUT_OF_ORDER, ACCEPTED]
    assert [outcome.base_offset for outcome in committed.outcomes] == [0, 3, 3, -1, 5]


async def test_producers_and_partitions_have_sequences_of_their_own(scene: Any) -> None:
    stream = await scene.stream(partition_count=2)
    a, b = stream.partition(0), stream.partition(1)
    committed = await scene.commit(
        scene.batch(a, 2, producer=1, sequence=0),
        scene.batch(a, 2, producer=2, sequence=0),
        scene.batch(a, 2),
        scene.batch(a, 2, producer=1, sequence=2),
        scene.batch(b, 2, producer=1, sequence=0),
    )

    assert kinds(committed) == [ACCEPTED] * 5
    assert [outcome.base_offset for outcome in committed.outcomes] == [0, 2, 4, 6, 0]


@pytest.mark.parametrize("is_maintained", [False, True])
async def test_each_of_the_last_five_batches_is_answered_with_its_first_offset(
    scene: Any, peer: Metadata, is_maintained: bool
) -> None:
    partition = await scene.partition()
    batches = [scene.batch(partition, 2, producer=1, sequence=2 * number) for number in range(7)]
    for batch in batches:
        await scene.commit(batch)
    if is_maintained:
        await scene.maintain()
    results = [(await scene.commit(batch, by=peer)).outcomes[0] for batch in batches]

    assert [outcome.kind for outcome in results] == [OUT_OF_ORDER] * 2 + [DUPLICATE] * 5
    assert [outcome.base_offset for outcome in results] == [-1, -1, 4, 6, 8, 10, 12]
    assert await scene.metadata.log.bounds([partition]) == {partition: (0, 14, 14)}


async def test_a_batch_that_shares_only_its_first_sequence_is_not_a_duplicate(scene: Any) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition, 3, producer=1, sequence=0))
    committed = await scene.commit(scene.batch(partition, 2, producer=1, sequence=0))

    assert kinds(committed) == [OUT_OF_ORDER]


async def test_sequences_wrap_after_the_largest_int32(scene: Any) -> None:
    partition = await scene.partition()
    await scene.commit(*(scene.batch(partition, SEQUENCE_MAX - 1, producer=producer) for producer in (1, 2)))
    results = [
        await scene.commit(scene.batch(partition, 2, producer=1, sequence=SEQUENCE_MAX - 1)),
        await scene.commit(scene.batch(partition, 4, producer=1, sequence=0)),
        await scene.commit(scene.batch(partition, 1, producer=2, sequence=SEQUENCE_MAX - 1)),
        await scene.commit(scene.batch(partition, 4, producer=2, sequence=SEQUENCE_MAX)),
        await scene.commit(scene.batch(partition, 1, producer=2, sequence=3)),
        await scene.commit(scene.batch(partition, 4, producer=2, sequence=SEQUENCE_MAX)),
    ]

    assert [kinds(result)[0] for result in results] == [ACCEPTED] * 5 + [DUPLICATE]
    assert results[5].outcomes[0].base_offset == results[3].outcomes[0].base_offset


async def test_an_older_producer_epoch_is_fenced(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition, 1, producer=1, epoch=3, sequence=0))
    await scene.commit(scene.batch(partition, 1, producer=1, epoch=5, sequence=0))
    committed = await scene.commit(scene.batch(partition, 1, producer=1, epoch=3, sequence=1), by=peer)

    assert committed.outcomes == [Outcome(FENCED, -1, 0)]


async def test_a_new_producer_epoch_starts_at_zero_and_forgets_the_former_batches(scene: Any) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition, 2, producer=1, epoch=0, sequence=0))
    results = [
        await scene.commit(scene.batch(partition, 2, producer=1, epoch=1, sequence=2)),
        await scene.commit(scene.batch(partition, 2, producer=1, epoch=1, sequence=0)),
        await scene.commit(scene.batch(partition, 2, producer=1, epoch=1, sequence=0)),
    ]

    assert [kinds(result)[0] for result in results] == [OUT_OF_ORDER, ACCEPTED, DUPLICATE]
    assert results[2].outcomes[0].base_offset == 2


# Tokens.


@pytest.mark.parametrize("is_maintained", [False, True])
async def test_a_repeated_token_returns_the_first_result_and_changes_nothing(
    scene: Any, peer: Metadata, is_maintained: bool
) -> None:
    stream = await scene.stream(partition_count=2)
    a, b = stream.partition(0), stream.partition(1)
    await scene.commit(scene.batch(a, 1, producer=1))
    batches = [
        scene.batch(a, 1, producer=1),
        scene.batch(a, 2, producer=1, sequence=1),
        scene.batch(b, 3),
        scene.batch(b, 3, producer=2, sequence=0, epoch=2),
    ]
    first = await scene.commit(*batches, token="wal/x")
    await scene.commit(scene.batch(a, 5), scene.batch(b, 5))
    if is_maintained:
        await scene.maintain()
    head = await scene.metadata.log.head()
    again = await scene.commit(*batches, token="wal/x", by=peer)

    assert kinds(first) == [DUPLICATE, ACCEPTED, ACCEPTED, ACCEPTED]
    assert (again.position, list(again.outcomes), list(again.slices)) == (
        first.position,
        list(first.outcomes),
        list(first.slices),
    )
    assert await scene.metadata.log.head() == head
    assert await scene.metadata.log.bounds([a, b]) == {a: (0, 8, 8), b: (0, 11, 11)}


async def test_concurrent_calls_with_one_token_commit_once(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    commit = scene.object(scene.batch(partition, 3), token="wal/x")
    results = await asyncio.gather(*(handle.log.commit(commit) for handle in [scene.metadata, peer] * 5))

    assert {(result.position, result.outcomes[0].base_offset) for result in results} == {(results[0].position, 0)}
    assert await peer.log.bounds([partition]) == {partition: (0, 3, 3)}


async def test_a_repeat_after_the_log_was_truncated_changes_nothing(scene: Any) -> None:
    partition = await scene.partition()
    first = await scene.commit(scene.batch(partition, 3), token="wal/x")
    await scene.commit(scene.batch(partition, 1))
    await scene.maintain(entry_count_min=0)

    again = await scene.commit(scene.batch(partition, 3), token="wal/x")

    assert (again.position, list(again.outcomes), list(again.slices)) == (
        first.position,
        list(first.outcomes),
        list(first.slices),
    )
    assert await scene.metadata.log.bounds([partition]) == {partition: (0, 4, 4)}


async def test_a_repeat_after_hours_is_a_conflict_and_changes_nothing(scene: Any, backend: Any) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition, 3), token="wal/x")
    await backend.advance(3_600_001)
    await scene.maintain(entry_count_min=0)

    with pytest.raises(Conflict):
        await scene.commit(scene.batch(partition, 3), token="wal/x")
    assert await scene.metadata.log.bounds([partition]) == {partition: (0, 3, 3)}


async def test_a_forbidden_token_is_fenced_forever(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()

    assert await peer.log.forbid(["wal/x", "wal/y"]) == {"wal/x", "wal/y"}
    assert await scene.metadata.log.forbid(["wal/x"]) == {"wal/x"}
    with pytest.raises(Fenced):
        await scene.commit(scene.batch(partition), token="wal/x")
    await scene.commit(scene.batch(partition), token="wal/z")
    assert await peer.log.bounds([partition]) == {partition: (0, 1, 1)}


@pytest.mark.parametrize("entry_count_min", [None, 1_000, 0])
async def test_a_committed_token_cannot_be_forbidden(scene: Any, peer: Metadata, entry_count_min: int | None) -> None:
    partition = await scene.partition()
    await scene.commit(scene.batch(partition), token="wal/x")
    if entry_count_min is not None:
        await scene.maintain(entry_count_min=entry_count_min)

    assert await peer.log.forbid(["wal/x", "wal/y"]) == {"wal/y"}
    assert await peer.log.forbid([]) == set()


# Fences and concurrency.


async def test_commits_of_a_former_epoch_are_fenced_and_change_nothing(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    newest = await scene.register(peer)
    head = await scene.metadata.log.head()

    with pytest.raises(Fenced):
        await scene.commit(scene.batch(partition))
    with pytest.raises(Fenced):
        await scene.metadata.log.commit(scene.object(scene.batch(partition), server=ServerRef(node_id=9, epoch=1)))
    assert await scene.metadata.log.head() == head
    committed = await scene.metadata.log.commit(scene.object(scene.batch(partition), server=newest))
    assert committed.outcomes == [Outcome(ACCEPTED, 0, 0)]


@pytest.mark.parametrize("how", ["replaced", "left"])
async def test_a_repeat_after_the_server_was_fenced_gets_the_first_result(scene: Any, peer: Metadata, how: str) -> None:
    """Otherwise the server would report to its clients that nothing was stored."""
    partition = await scene.partition()
    first = await scene.commit(scene.batch(partition, 3), token="wal/x")
    if how == "replaced":
        await scene.register(peer)
    else:
        await peer.servers.leave(scene.server)

    again = await scene.commit(scene.batch(partition, 3), token="wal/x")

    assert (again.position, list(again.outcomes)) == (first.position, list(first.outcomes))


async def test_a_draining_or_silent_server_may_still_commit(scene: Any) -> None:
    partition = await scene.partition()
    await scene.metadata.servers.drain(scene.server)
    await scene.backend.advance(60_000)

    assert kinds(await scene.commit(scene.batch(partition))) == [ACCEPTED]


async def test_two_servers_interleave_without_gaps(scene: Any, peer: Metadata) -> None:
    stream = await scene.stream(partition_count=3)
    other = await scene.register(peer, "server-1")
    ranges: dict[int, list[tuple[int, int]]] = {}
    for turn in range(20):
        handle, server = ((scene.metadata, scene.server), (peer, other))[turn % 2]
        partition = stream.partition(turn % 3)
        batch = scene.batch(partition, turn % 4 + 1)
        committed = await handle.log.commit(scene.object(batch, server=server))
        base = committed.outcomes[0].base_offset
        ranges.setdefault(partition, []).append((base, base + batch.record_count))

    for taken in ranges.values():
        assert [start for start, _ in taken] == [0, *(end for _, end in taken[:-1])]


async def test_concurrent_commits_take_dense_offsets(scene: Any, peer: Metadata) -> None:
    stream = await scene.stream(partition_count=4)
    partitions = [stream.partition(index) for index in range(4)]
    objects = [
        scene.object(*(scene.batch(key, 1 + (number + key) % 3) for key in partitions[number % 3 :]))
        for number in range(60)
    ]
    results = await asyncio.gather(
        *((scene.metadata, peer)[number % 2].log.commit(commit) for number, commit in enumerate(objects))
    )
    taken = sorted(
        (slice_.partition, slice_.base_offset, slice_.end_offset) for result in results for slice_ in result.slices
    )
    positions = sorted(result.position for result in results)

    assert len(set(positions)) == 60
    expected = dict.fromkeys(partitions, 0)
    for partition, base, end in taken:
        assert base == expected[partition], "I2: dense, each offset once"
        expected[partition] = end
    assert {key: bounds.end for key, bounds in (await peer.log.bounds(partitions)).items()} == expected


async def test_a_cancelled_commit_happens_whole_or_not_at_all(scene: Any, peer: Metadata) -> None:
    stream = await scene.stream(partition_count=2)
    a, b = stream.partition(0), stream.partition(1)
    commits = [scene.object(scene.batch(a, 2), scene.batch(b, 2)) for _ in range(10)]
    tasks = [asyncio.create_task(scene.metadata.log.commit(commit)) for commit in commits]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for commit in commits:
        await peer.log.commit(commit)

    assert await scene.metadata.log.bounds([a, b]) == {a: (0, 20, 20), b: (0, 20, 20)}
