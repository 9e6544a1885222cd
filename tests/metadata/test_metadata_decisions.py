"""I8 in every store: a commit token is decided once, however late a repeat arrives and whatever the store has forgotten."""

from dataclasses import replace
from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced
from bearlake.metadata import Metadata
from bearlake.metadata.model import BATCH_NAMED, ObjectKind, OutcomeKind
from bearlake.metadata.tokens import Forgotten
from bearlake.wal import keys
from fixtures.idle_producers import pass_minutes

START_MS = 1_700_000_000_000
"""When the stores' clocks begin."""
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LONG_MS = 8 * DAY_MS
"""Longer than any store remembers forbidden tokens."""


def token(at_ms: int, number: int = 0) -> str:
    """The key of an object that was sealed at that time."""
    return f"{keys.hour_prefix(START_MS + at_ms)}{keys.uuid7(START_MS + at_ms, number)}"


async def grow(scene: Any, partition: Any, count: int) -> None:
    await scene.commit(scene.batch(partition, count), token=token(1, count))


async def test_a_repeated_refused_commit_is_refused_again(scene: Any, peer: Metadata) -> None:
    partition = await scene.partition()
    late = scene.object(scene.batch(partition, expected=2), token=token(0))
    first = await scene.metadata.log.commit(late)
    await grow(scene, partition, 2)
    again = await peer.log.commit(late)

    assert [outcome.kind for outcome in first.outcomes] == [OutcomeKind.UNEXPECTED_OFFSET]
    assert (again.position, list(again.outcomes), list(again.slices)) == (0, list(first.outcomes), [])
    assert (await peer.log.bounds([partition]))[partition].end == 2


async def test_a_refused_commit_whose_answer_is_forgotten_is_never_accepted(scene: Any) -> None:
    partition = await scene.partition()
    late = scene.object(scene.batch(partition, expected=2), token=token(0))
    await scene.metadata.log.commit(late)
    await grow(scene, partition, 2)
    for delay_ms, kind in ((2 * HOUR_MS, Conflict), (LONG_MS, Forgotten)):
        await scene.backend.advance(delay_ms)
        await scene.maintain()
        with pytest.raises(kind):
            await scene.metadata.log.commit(late)

    assert (await scene.metadata.log.bounds([partition]))[partition].end == 2


async def test_an_object_without_accepted_batches_is_an_orphan(scene: Any, peer: Metadata) -> None:
    """Its bytes are deleted with those of objects that were never committed: the list of unused objects does not have it."""
    partition = await scene.partition()
    await scene.commit(scene.batch(partition, expected=2), token=token(0))
    await scene.maintain(entry_count_min=0)

    assert await peer.log.forbid([token(0)]) == {token(0)}
    assert await peer.objects.unused(ObjectKind.WAL, unused_ms=0) == []


async def test_a_commit_that_was_forbidden_long_ago_is_refused_although_the_store_has_forgotten_it(scene: Any) -> None:
    partition = await scene.partition()
    assert await scene.metadata.log.forbid([token(0)]) == {token(0)}
    await scene.backend.advance(LONG_MS)
    await scene.maintain(entry_count_min=0)

    with pytest.raises(Forgotten, match="clock"):
        await scene.commit(scene.batch(partition), token=token(0))
    assert (await scene.metadata.log.bounds([partition]))[partition].end == 0


async def test_a_commit_whose_bytes_were_deleted_long_ago_is_refused(scene: Any) -> None:
    stream = await scene.stream()
    partition = stream.partition(0)
    commit = scene.object(scene.batch(partition, 3), token=token(0))
    await scene.metadata.log.commit(commit)
    await scene.metadata.log.trim(partition, 3)
    await scene.maintain(entry_count_min=0)
    assert [found.object.key for found in await scene.metadata.objects.unused(ObjectKind.WAL, unused_ms=0)] == [
        token(0)
    ]
    await scene.metadata.objects.deleted([token(0)])
    for _ in range(3):
        await scene.backend.advance(LONG_MS)
        await scene.maintain(entry_count_min=0)

    with pytest.raises(Forgotten, match="clock"):
        await scene.metadata.log.commit(commit)
    assert (await scene.metadata.log.bounds([partition]))[partition].end == 3


async def test_only_forgotten_decisions_are_below_the_floor(scene: Any) -> None:
    """A store that has forgotten nothing refuses no token; a store that has forgotten tokens refuses no newer token."""
    partition = await scene.partition()
    await scene.backend.advance(LONG_MS)
    await scene.maintain()
    await scene.commit(scene.batch(partition), token=token(1))
    await scene.metadata.log.forbid([token(2)])
    await scene.backend.advance(LONG_MS)
    await scene.maintain()

    await scene.commit(scene.batch(partition), token=token(3))
    assert (await scene.metadata.log.bounds([partition]))[partition].end == 2


async def test_a_committed_object_is_remembered_below_the_floor(scene: Any) -> None:
    partition = await scene.partition()
    commit = scene.object(scene.batch(partition), token=token(0))
    await scene.metadata.log.commit(commit)
    await scene.metadata.log.forbid([token(1)])
    await scene.backend.advance(LONG_MS)
    await scene.maintain(entry_count_min=0)

    with pytest.raises(Conflict):
        await scene.metadata.log.commit(commit)
    with pytest.raises(Fenced):
        await scene.metadata.log.commit(replace(commit, token=token(0, 9)))


async def test_a_server_whose_clock_is_hours_behind_continues(scene: Any) -> None:
    partition = await scene.partition()
    for day in range(20):
        await scene.metadata.log.forbid([token(day * DAY_MS)])
        await scene.backend.advance(DAY_MS)
        await scene.maintain()
    now_ms = 20 * DAY_MS
    await scene.commit(scene.batch(partition), token=token(now_ms - 6 * DAY_MS, 1))

    with pytest.raises(Forgotten, match="behind the store's clock"):
        await scene.commit(scene.batch(partition), token=token(now_ms - 30 * DAY_MS))


async def test_a_token_from_the_future_stays_forbidden_until_its_time_has_passed(scene: Any) -> None:
    partition = await scene.partition()
    future = token(100 * DAY_MS)
    await scene.metadata.log.forbid([future])
    for number, day in enumerate((0, 50, 50, LONG_MS // DAY_MS)):
        await scene.backend.advance(day * DAY_MS)
        await scene.maintain()
        with pytest.raises(Fenced):
            await scene.commit(scene.batch(partition), token=future)
        await scene.commit(scene.batch(partition), token=token(101 * DAY_MS, number))


async def test_a_store_whose_clock_jumped_ahead_refuses_no_new_object(scene: Any) -> None:
    """The floor is a forgotten token, not a time: servers with a correct clock continue."""
    partition = await scene.partition()
    await scene.metadata.log.forbid([token(0)])
    await scene.backend.advance(1000 * DAY_MS)
    await scene.maintain()

    await scene.commit(scene.batch(partition), token=token(1))
    assert (await scene.metadata.log.bounds([partition]))[partition].end == 1


# I9: an unknown idempotent producer starts at sequence 0.


async def test_a_new_producer_starts_at_0_also_on_a_partition_with_records(scene: Any, peer: Metadata) -> None:
    """Its first batch may be missing because its object could not be stored: then the second one must not be stored either."""
    partition = await scene.partition()
    await scene.commit(scene.batch(partition))
    new = (await scene.metadata.producers.allocate(1))[0]
    gap = await scene.commit(scene.batch(partition, 2, producer=new, sequence=3))
    first = await scene.commit(scene.batch(partition, 3, producer=new, sequence=0), by=peer)
    second = await scene.commit(scene.batch(partition, 2, producer=new, sequence=3))

    kinds = [committed.outcomes[0].kind for committed in (gap, first, second)]
    assert kinds == [OutcomeKind.OUT_OF_ORDER, OutcomeKind.ACCEPTED, OutcomeKind.ACCEPTED]


@pytest.mark.parametrize("is_maintained", [False, True])
async def test_a_producer_that_expired_must_start_a_new_epoch(scene: Any, peer: Metadata, is_maintained: bool) -> None:
    partition = await scene.partition()
    old, idle, busy = await scene.metadata.producers.allocate(3)
    await scene.commit(*(scene.batch(partition, producer=producer) for producer in (old, idle, busy)))
    await scene.maintain()
    await pass_minutes(scene.metadata, 1)
    await scene.commit(scene.batch(partition, producer=busy, sequence=1))
    if is_maintained:
        await scene.maintain()
    while await peer.producers.expire(idle_ms=0, limit=100):
        pass
    head = await scene.commit(scene.batch(partition, producer=old, sequence=1))
    other = await scene.commit(scene.batch(partition, producer=busy, sequence=7))
    newest = (await scene.metadata.producers.allocate(1))[0]
    new = await scene.commit(scene.batch(partition, producer=newest, sequence=1), by=peer)
    scene.seen = await scene.metadata.log.head()
    bumped = await scene.commit(scene.batch(partition, producer=old, epoch=1, sequence=0))

    kinds = [committed.outcomes[0].kind for committed in (head, other, new, bumped)]
    assert kinds == [
        OutcomeKind.UNKNOWN_PRODUCER,
        OutcomeKind.OUT_OF_ORDER,
        OutcomeKind.OUT_OF_ORDER,
        OutcomeKind.ACCEPTED,
    ]


async def test_named_producers_that_expire_make_no_idempotent_one_unknown(scene: Any) -> None:
    partition = await scene.partition()
    idempotent = (await scene.metadata.producers.allocate(1))[0]
    named = await scene.metadata.producers.named(partition, "x")
    await scene.commit(scene.batch(partition, producer=named.producer_id, flags=BATCH_NAMED))
    await scene.maintain()
    await pass_minutes(scene.metadata, 1)
    assert await scene.metadata.producers.expire(idle_ms=0, limit=100) == 1
    committed = await scene.commit(scene.batch(partition, producer=idempotent, sequence=1))

    assert committed.outcomes[0].kind is OutcomeKind.OUT_OF_ORDER
