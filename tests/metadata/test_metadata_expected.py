"""Behaviour of every metadata store: batches that are accepted only at their expected offset."""

import asyncio
from typing import Any

import pytest

from bearlake.metadata.model import BATCH_NAMED, Outcome, OutcomeKind, partition_key

ACCEPTED, DUPLICATE, OUT_OF_ORDER, FENCED, NOT_FOUND, UNEXPECTED_OFFSET, TERMINATED, UNKNOWN_PRODUCER, UNSURE, *_ = (
    OutcomeKind
)


@pytest.fixture
async def key(scene: Any) -> Any:
    return await scene.partition()


async def test_a_batch_is_stored_at_the_offset_that_it_expects(scene: Any, key: Any) -> None:
    first = await scene.commit(scene.batch(key, 3, expected=0))
    second = await scene.commit(scene.batch(key, 2, expected=3))

    assert first.outcomes == [Outcome(ACCEPTED, 0, 0)]
    assert second.outcomes == [Outcome(ACCEPTED, 3, 0)]


@pytest.mark.parametrize("expected", [0, 2, 4, 2**62])
async def test_another_expected_offset_is_refused_with_the_end(scene: Any, key: Any, expected: int) -> None:
    await scene.commit(scene.batch(key, 3))
    refused = await scene.commit(scene.batch(key, 2, expected=expected))

    assert refused.outcomes == [Outcome(UNEXPECTED_OFFSET, 3, 0)]
    assert (refused.position, list(refused.slices)) == (0, [])
    assert (await scene.metadata.log.bounds([key]))[key].end == 3


async def test_the_batches_of_an_object_are_decided_in_order(scene: Any, key: Any) -> None:
    committed = await scene.commit(
        scene.batch(key, 2, expected=0),
        scene.batch(key, 2, expected=0),
        scene.batch(key, 1),
        scene.batch(key, 1, expected=3),
        scene.batch(key, 1),
        scene.batch(key, 9, expected=3),
        scene.batch(key, 1),
    )

    assert [outcome[:2] for outcome in committed.outcomes] == [
        (ACCEPTED, 0),
        (UNEXPECTED_OFFSET, 2),
        (ACCEPTED, 2),
        (ACCEPTED, 3),
        (ACCEPTED, 4),
        (UNEXPECTED_OFFSET, 5),
        (ACCEPTED, 5),
    ]
    assert [(piece.base_offset, piece.record_count, piece.position) for piece in committed.slices] == [
        (0, 2, 0),
        (2, 3, 200),
        (5, 1, 600),
    ]


async def test_a_moved_start_does_not_change_the_expected_offset(scene: Any, key: Any) -> None:
    await scene.commit(scene.batch(key, 3))
    await scene.metadata.log.trim(key, 3)
    committed = await scene.commit(scene.batch(key, expected=0), scene.batch(key, expected=3))

    assert committed.outcomes == [Outcome(UNEXPECTED_OFFSET, 3, 3), Outcome(ACCEPTED, 3, 3)]


async def test_a_duplicate_stays_a_duplicate_whatever_offset_it_expects(scene: Any, key: Any) -> None:
    (producer,) = await scene.metadata.producers.allocate(1)
    batch = scene.batch(key, 2, producer=producer, sequence=0, expected=0)
    await scene.commit(batch)

    assert (await scene.commit(batch)).outcomes == [Outcome(DUPLICATE, 0, 0)]


async def test_a_refused_batch_uses_up_no_sequence(scene: Any, key: Any) -> None:
    (producer,) = await scene.metadata.producers.allocate(1)
    named = (await scene.metadata.producers.named(key, "name")).producer_id
    await scene.commit(scene.batch(key, 5))
    committed = await scene.commit(
        scene.batch(key, 2, producer=producer, sequence=0, expected=4),
        scene.batch(key, 2, producer=producer, sequence=0, expected=5),
        scene.batch(key, 2, producer=producer, sequence=2, expected=5),
        scene.batch(key, 2, producer=producer, sequence=2, expected=7),
        scene.batch(key, 1, producer=named, sequence=8, flags=BATCH_NAMED, expected=5),
        scene.batch(key, 1, producer=named, sequence=8, flags=BATCH_NAMED, expected=9),
    )

    assert [outcome[:2] for outcome in committed.outcomes] == [
        (UNEXPECTED_OFFSET, 5),
        (ACCEPTED, 5),
        (UNEXPECTED_OFFSET, 7),
        (ACCEPTED, 7),
        (UNEXPECTED_OFFSET, 9),
        (ACCEPTED, 9),
    ]
    assert [state.last_sequence for state in await scene.metadata.log.producers(key)] == [3]
    assert (await scene.metadata.producers.named(key, "name")).last_sequence == 8


async def test_an_out_of_order_sequence_is_reported_first(scene: Any, key: Any) -> None:
    (producer,) = await scene.metadata.producers.allocate(1)
    committed = await scene.commit(
        scene.batch(key, producer=producer, sequence=7, expected=7), scene.batch(partition_key(99, 0), expected=0)
    )

    assert committed.outcomes == [Outcome(OUT_OF_ORDER, -1, 0), Outcome(NOT_FOUND, -1, -1)]


async def test_one_of_many_that_expect_the_same_offset_wins(scene: Any, key: Any, peer: Any) -> None:
    async with asyncio.TaskGroup() as group:
        sent = [
            group.create_task(scene.commit(scene.batch(key, expected=0), by=(scene.metadata, peer)[turn % 2]))
            for turn in range(12)
        ]
    outcomes = [tuple(task.result().outcomes[0]) for task in sent]

    assert sorted(outcomes) == [(ACCEPTED, 0, 0)] + [(UNEXPECTED_OFFSET, 1, 0)] * 11


async def test_a_repeated_token_gets_the_first_result(scene: Any, key: Any) -> None:
    batches = (scene.batch(key, expected=0), scene.batch(key, expected=0))
    first = await scene.commit(*batches, token="wal/one")

    assert await scene.commit(*batches, token="wal/one") == first
    await scene.maintain(0)
    assert await scene.commit(*batches, token="wal/one") == first
