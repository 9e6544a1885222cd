"""Behaviour of every metadata store: a batch that hung until its producer expired, or of another stream, is not stored twice."""

from typing import Any

import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.model import BATCH_IN_STEP, BATCH_NAMED, OutcomeKind, StreamSpec
from fixtures import by_name
from fixtures.idle_producers import forget_all, pass_minutes


@pytest.fixture
async def key(scene: Any) -> Any:
    return await scene.partition()


def kinds(committed: Any) -> list[OutcomeKind]:
    return [outcome.kind for outcome in committed.outcomes]


async def expire(scene: Any, limit: int = 100) -> None:
    """The store forgets all producers."""
    await scene.maintain()
    await forget_all(scene.metadata, limit)


async def end(scene: Any, key: Any) -> int:
    return int((await scene.metadata.log.bounds([key]))[key].end)


@pytest.mark.parametrize("came", ["before it was stored", "after it was stored"])
@pytest.mark.parametrize("has_others", [False, True])
async def test_a_batch_whose_commit_hung_until_its_producer_expired_is_not_stored_again(
    scene: Any, key: Any, peer: Metadata, came: str, has_others: bool
) -> None:
    """Two servers get the batch; one commit hangs, the other is acknowledged."""
    (producer,) = await scene.metadata.producers.allocate(1)
    late = scene.object(scene.batch(key, 3, producer=producer))
    if came == "before it was stored":
        late = scene.seeing(late, await scene.metadata.log.head())
    assert kinds(await scene.commit(scene.batch(key, 3, producer=producer))) == [OutcomeKind.ACCEPTED]
    if has_others:
        await scene.commit(scene.batch(key))
    if came == "after it was stored":
        late = scene.seeing(late, await scene.metadata.log.head())
    await expire(scene)
    before = await end(scene, key)
    first = await peer.log.commit(late)

    assert (first.position, kinds(first)) == (0, [OutcomeKind.UNSURE])
    assert (await scene.metadata.log.commit(late)).outcomes == first.outcomes
    assert await end(scene, key) == before


async def test_a_server_that_has_seen_the_expiry_continues_although_nothing_else_happens(scene: Any, key: Any) -> None:
    old, _ = await scene.metadata.producers.allocate(2)
    await scene.commit(scene.batch(key, producer=old + 1))
    await expire(scene)
    scene.seen = await scene.metadata.log.head()

    assert kinds(await scene.commit(scene.batch(key, producer=old))) == [OutcomeKind.ACCEPTED]


async def test_followers_see_an_expiry(scene: Any, key: Any, peer: Metadata) -> None:
    (producer,) = await scene.metadata.producers.allocate(1)
    await scene.commit(scene.batch(key, producer=producer))
    before = await peer.log.head()
    await expire(scene)
    page = await peer.log.follow(before, limit=10)

    assert [entry.position for entry in page.entries] == [before + 1] == [await scene.metadata.log.head()]


async def test_only_first_batches_of_producers_that_may_have_expired_are_unsure(scene: Any, key: Any) -> None:
    """A lagging server stores everything else, even in the same object."""
    idle, busy = await scene.metadata.producers.allocate(2)
    named = (await scene.metadata.producers.named(key, "name")).producer_id
    await scene.commit(scene.batch(key, producer=idle))
    await expire(scene)
    scene.seen = await scene.metadata.log.head()
    await scene.commit(scene.batch(key, producer=busy), scene.batch(key, producer=idle, epoch=1))
    named = (await scene.metadata.producers.named(key, "name")).producer_id
    (young,) = await scene.metadata.producers.allocate(1)
    scene.seen = 0
    committed = await scene.commit(
        scene.batch(key, producer=young),
        scene.batch(key, producer=busy, sequence=1),
        scene.batch(key, producer=idle, epoch=2),
        scene.batch(key, producer=named, flags=BATCH_NAMED),
        scene.batch(key),
    )

    assert set(kinds(committed)) == {OutcomeKind.ACCEPTED}


async def test_a_token_that_was_decided_is_answered_as_before(scene: Any, key: Any) -> None:
    (producer,) = await scene.metadata.producers.allocate(1)
    commit = scene.object(scene.batch(key, 2, producer=producer), token="wal/2099010100/a")
    first = await scene.metadata.log.commit(commit)
    await forget_all(scene.metadata, limit=1)

    assert await scene.metadata.log.commit(commit) == first


async def test_all_producers_may_expire_at_once(scene: Any, key: Any) -> None:
    """In as many steps as there are producers: no earlier batch of any of them is stored again."""
    producers = await scene.metadata.producers.allocate(7)
    late = []
    for producer in producers:
        late.append(scene.object(scene.batch(key, producer=producer)))
        await scene.commit(scene.batch(key, producer=producer))
    late = [scene.seeing(commit, await scene.metadata.log.head()) for commit in late]
    await expire(scene, limit=1)

    assert [kinds(await scene.metadata.log.commit(commit)) for commit in late] == [[OutcomeKind.UNSURE]] * 7
    scene.seen = await scene.metadata.log.head()
    assert kinds(await scene.commit(*(scene.batch(key, producer=producer, epoch=1) for producer in producers))) == (
        [OutcomeKind.ACCEPTED] * 7
    )


async def test_a_batch_that_may_be_stored_stays_unsure_when_the_stream_is_terminated(scene: Any, key: Any) -> None:
    (producer,) = await scene.metadata.producers.allocate(1)
    late = scene.object(scene.batch(key, producer=producer))
    await scene.commit(scene.batch(key, producer=producer))
    await expire(scene)
    await by_name.terminate(scene.metadata, "orders")
    again = scene.seeing(scene.object(scene.batch(key, producer=producer)), await scene.metadata.log.head())

    assert kinds(await scene.metadata.log.commit(late)) == [OutcomeKind.UNSURE]
    assert kinds(await scene.metadata.log.commit(again)) == [OutcomeKind.TERMINATED]


# Named producers begin by registration only.


@pytest.mark.parametrize("flags", [BATCH_NAMED, BATCH_NAMED | BATCH_IN_STEP])
@pytest.mark.parametrize("has_written", [False, True])
async def test_a_name_that_was_forgotten_begins_under_a_new_id(
    scene: Any, key: Any, peer: Metadata, flags: int, has_written: bool
) -> None:
    """A session that opened a name and was idle for days sends its first message, loses the receipt, and opens the name again."""
    rested = await scene.metadata.producers.named(key, "name")
    if has_written:
        await scene.commit(scene.batch(key, producer=rested.producer_id, flags=flags))
    await expire(scene)
    before = await end(scene, key)
    late = scene.object(scene.batch(key, producer=rested.producer_id, flags=flags))
    assert kinds(await scene.metadata.log.commit(late)) == [OutcomeKind.UNKNOWN_PRODUCER]
    opened = await peer.producers.named(key, "name")
    assert opened.last_sequence == -1
    scene.seen = opened.floor  # the message arrives at an open session
    message = scene.batch(key, producer=opened.producer_id, flags=flags)
    assert kinds(await scene.commit(message, by=peer)) == [OutcomeKind.ACCEPTED]
    again = await scene.metadata.producers.named(key, "name")

    assert (again.producer_id, again.last_sequence) == (opened.producer_id, 0)
    assert kinds(await scene.commit(message)) == [OutcomeKind.DUPLICATE]
    assert kinds(await scene.commit(scene.batch(key, producer=rested.producer_id, flags=flags))) == [
        OutcomeKind.UNKNOWN_PRODUCER
    ]
    assert await end(scene, key) == before + 1


@pytest.mark.parametrize("flags", [BATCH_NAMED, BATCH_NAMED | BATCH_IN_STEP])
@pytest.mark.parametrize("is_terminated", [False, True])
async def test_a_reregistered_name_stores_nothing_that_arrived_before_it_was_forgotten(
    scene: Any, key: Any, peer: Metadata, flags: int, is_terminated: bool
) -> None:
    """Two servers get a message. One server stores it; the other server looks up the name after it has expired."""
    first = await scene.metadata.producers.named(key, "name")
    came = await peer.log.head()
    message = scene.batch(key, 3, producer=first.producer_id, flags=flags)
    assert kinds(await scene.commit(message)) == [OutcomeKind.ACCEPTED]
    await expire(scene)
    before = await end(scene, key)
    again = await peer.producers.named(key, "name")
    repeat = scene.batch(key, 3, producer=again.producer_id, flags=flags)
    if is_terminated:
        await by_name.terminate(scene.metadata, "orders")
    late = scene.seeing(scene.object(repeat), came)
    told = await peer.log.commit(late)

    assert again.floor > came
    assert (told.position, kinds(told)) == (0, [OutcomeKind.UNSURE])
    assert (await scene.metadata.log.commit(late)).outcomes == told.outcomes
    assert await end(scene, key) == before


@pytest.mark.parametrize("flags", [BATCH_NAMED, BATCH_NAMED | BATCH_IN_STEP])
async def test_a_message_that_arrives_after_its_name_was_forgotten_is_stored(scene: Any, key: Any, flags: int) -> None:
    first = await scene.metadata.producers.named(key, "name")
    await scene.commit(scene.batch(key, producer=first.producer_id, flags=flags))
    await expire(scene)
    again = await scene.metadata.producers.named(key, "name")
    scene.seen = await scene.metadata.log.head()
    assert kinds(await scene.commit(scene.batch(key, producer=again.producer_id, flags=flags))) == [
        OutcomeKind.ACCEPTED
    ]
    scene.seen = 0

    assert kinds(await scene.commit(scene.batch(key, producer=again.producer_id, sequence=1, flags=flags))) == [
        OutcomeKind.ACCEPTED
    ]
    assert await scene.metadata.producers.named(key, "name") == again._replace(epoch=0, last_sequence=1)


@pytest.mark.parametrize("flags", [BATCH_NAMED, BATCH_NAMED | BATCH_IN_STEP])
async def test_names_that_were_registered_before_another_was_forgotten_continue(
    scene: Any, key: Any, peer: Metadata, flags: int
) -> None:
    """A lagging server stores their first messages."""
    gone = await scene.metadata.producers.named(key, "gone")
    await scene.commit(scene.batch(key, producer=gone.producer_id, flags=flags))
    await scene.maintain()
    await pass_minutes(scene.metadata, 1)
    kept = await peer.producers.named(key, "kept")
    assert await scene.metadata.producers.expire(idle_ms=0, limit=100) == 1
    scene.seen = 0

    assert kinds(await scene.commit(scene.batch(key, producer=kept.producer_id, flags=flags))) == [OutcomeKind.ACCEPTED]


async def test_followers_see_that_a_name_was_forgotten(scene: Any, key: Any, peer: Metadata) -> None:
    name = await scene.metadata.producers.named(key, "name")
    await scene.commit(scene.batch(key, producer=name.producer_id, flags=BATCH_NAMED))
    before = await peer.log.head()
    await expire(scene)
    page = await peer.log.follow(before, limit=10)

    assert [entry.position for entry in page.entries] == [before + 1]
    assert (await peer.producers.named(key, "name")).floor == before + 1


@pytest.mark.parametrize("flags", [BATCH_NAMED, BATCH_NAMED | BATCH_IN_STEP])
async def test_a_name_of_another_partition_counts_for_nothing(scene: Any, flags: int) -> None:
    stream = await scene.stream("wide", 40)
    elsewhere = (await scene.metadata.producers.named(stream.partition(39), "name")).producer_id
    committed = await scene.commit(scene.batch(stream.partition(38), producer=elsewhere, flags=flags))

    assert kinds(committed) == [OutcomeKind.UNKNOWN_PRODUCER]


# A topic that was deleted and created again under a running producer.


async def test_a_producer_that_is_older_than_its_stream_is_unknown_there(scene: Any, peer: Metadata) -> None:
    old = await scene.stream()
    (running,) = await scene.metadata.producers.allocate(1)
    await scene.commit(scene.batch(old.partition(0), 7, producer=running))
    await by_name.delete(scene.metadata, "orders")
    new = (await by_name.create(peer, StreamSpec(name="orders", partition_count=1))).partition(0)
    (young,) = await scene.metadata.producers.allocate(1)
    head = await scene.commit(scene.batch(new, producer=running, sequence=7), by=peer)
    bumped = await scene.commit(scene.batch(new, producer=running, epoch=1))
    gap = await scene.commit(scene.batch(new, producer=young, sequence=1), by=peer)

    assert kinds(head) == [OutcomeKind.UNKNOWN_PRODUCER]
    assert kinds(bumped) == [OutcomeKind.ACCEPTED]
    assert kinds(gap) == [OutcomeKind.OUT_OF_ORDER]


async def test_a_producer_that_is_older_than_a_new_stream_misses_a_batch(scene: Any) -> None:
    """The stream is the first of its name, so its producers have lost nothing."""
    (running,) = await scene.metadata.producers.allocate(1)
    key = await scene.partition()

    assert kinds(await scene.commit(scene.batch(key, producer=running, sequence=7))) == [OutcomeKind.OUT_OF_ORDER]
