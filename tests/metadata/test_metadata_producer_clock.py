"""Behaviour of every metadata store: the producer clock counts minutes, and it alone decides which producers are idle."""

from typing import Any

import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.model import OutcomeKind
from fixtures.idle_producers import pass_minutes

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


async def test_the_clock_starts_at_0_and_is_read_without_an_advance(metadata: Metadata, peer: Metadata) -> None:
    assert [await metadata.producers.advance_clock(-1), await peer.producers.advance_clock(-1)] == [0, 0]


async def test_servers_that_saw_the_same_minute_advance_the_clock_once(metadata: Metadata, peer: Metadata) -> None:
    assert [await metadata.producers.advance_clock(0), await peer.producers.advance_clock(0)] == [1, 1]


async def test_an_advance_that_arrives_late_has_no_effect(metadata: Metadata, peer: Metadata) -> None:
    for minute in range(3):
        await metadata.producers.advance_clock(minute)

    assert await peer.producers.advance_clock(1) == 3
    assert await peer.producers.advance_clock(-1) == 3


@pytest.mark.parametrize("jump_ms", [HOUR_MS, 400 * DAY_MS])
async def test_no_producer_expires_when_the_stores_clock_jumps(scene: Any, peer: Metadata, jump_ms: int) -> None:
    """A client whose reply was lost sends the batch again and gets the first result."""
    key = await scene.partition()
    (producer,) = await scene.metadata.producers.allocate(1)
    name = await scene.metadata.producers.named(key, "name")
    first = await scene.commit(scene.batch(key, 2, producer=producer))
    await scene.maintain()
    await scene.backend.advance(jump_ms)
    expired = await peer.producers.expire(idle_ms=60_000, limit=100)
    again = await scene.commit(scene.batch(key, 2, producer=producer), token="wal/2999010100/again")

    assert expired == 0
    assert (again.outcomes[0].kind, again.outcomes[0].base_offset) == (OutcomeKind.DUPLICATE, 0)
    assert first.outcomes[0].base_offset == 0
    assert (await peer.producers.named(key, "name")).producer_id == name.producer_id


async def test_a_producer_is_kept_for_all_of_its_time(scene: Any, peer: Metadata) -> None:
    """The batch may have been sent at the end of its minute, so that minute does not count."""
    key = await scene.partition()
    (producer,) = await scene.metadata.producers.allocate(1)
    await pass_minutes(scene.metadata, 7)
    await scene.commit(scene.batch(key, producer=producer))
    await scene.maintain()
    found = []
    for _ in range(5):
        await pass_minutes(peer, 1)
        found.append(await peer.producers.expire(idle_ms=3 * 60_000, limit=100))

    assert found == [0, 0, 0, 1, 0]


async def test_each_batch_begins_the_time_anew(scene: Any, peer: Metadata) -> None:
    key = await scene.partition()
    busy, idle = await scene.metadata.producers.allocate(2)
    await scene.commit(scene.batch(key, producer=busy), scene.batch(key, producer=idle))
    for sequence in range(1, 6):
        await scene.maintain()
        await pass_minutes(peer, 1)
        await scene.commit(scene.batch(key, producer=busy, sequence=sequence))
    await scene.maintain()
    await peer.producers.expire(idle_ms=3 * 60_000, limit=100)

    assert [state.producer_id for state in await scene.metadata.log.producers(key)] == [busy]


async def test_each_request_for_a_name_begins_its_time_anew(scene: Any, peer: Metadata) -> None:
    key = await scene.partition()
    first = await scene.metadata.producers.named(key, "name")
    for _ in range(5):
        await pass_minutes(peer, 1)
        await peer.producers.named(key, "name")
    await peer.producers.expire(idle_ms=60_000, limit=100)

    assert await scene.metadata.producers.named(key, "name") == first
    await pass_minutes(peer, 2)
    await peer.producers.expire(idle_ms=60_000, limit=100)
    assert (await scene.metadata.producers.named(key, "name")).producer_id > first.producer_id
