"""Behaviour of every metadata store: named producers, whose sequences count appends and may skip, and the partitions' epochs."""

from typing import Any

import pytest

from bearlake.errors import Conflict, Fenced, Invalid, NotFound
from bearlake.metadata.model import BATCH_IN_STEP, BATCH_NAMED, NamedProducer, Outcome, OutcomeKind, partition_key
from fixtures import by_name
from fixtures.idle_producers import pass_minutes
from fixtures.liveness import lapse

ACCEPTED, DUPLICATE, OUT_OF_ORDER, FENCED, NOT_FOUND, UNEXPECTED_OFFSET, TERMINATED, UNKNOWN_PRODUCER, UNSURE, *_ = (
    OutcomeKind
)
IN_STEP = BATCH_NAMED | BATCH_IN_STEP


@pytest.fixture
async def key(scene: Any) -> Any:
    return await scene.partition()


def kinds(committed: Any) -> list[OutcomeKind]:
    return [outcome.kind for outcome in committed.outcomes]


async def send(
    scene: Any, key: Any, producer_id: int, *sequences: int, epoch: int = 0, flags: int = BATCH_NAMED
) -> Any:
    """Batches of two records each, in one object."""
    return await scene.commit(
        *(scene.batch(key, 2, producer=producer_id, epoch=epoch, sequence=number, flags=flags) for number in sequences)
    )


async def test_a_name_keeps_its_id(scene: Any, key: Any, peer: Any) -> None:
    first = await scene.metadata.producers.named(key, "pulsar/one")

    assert (first.epoch, first.last_sequence, first.partition_epoch) == (-1, -1, 0)
    assert await peer.producers.named(key, "pulsar/one") == first
    assert (await scene.metadata.producers.named(key, "pulsar/two")).producer_id != first.producer_id
    assert first.producer_id not in await scene.metadata.producers.allocate(5)


async def test_the_same_name_elsewhere_is_another_producer(scene: Any) -> None:
    stream = await scene.stream("wide", 40)
    found = [await scene.metadata.producers.named(stream.partition(index), "name") for index in range(40)]
    assert len({producer.producer_id for producer in found}) == 40


async def test_sequences_count_appends_and_may_skip(scene: Any, key: Any, peer: Any) -> None:
    producer = await scene.metadata.producers.named(key, "name")
    committed = await send(scene, key, producer.producer_id, 5, 6, 2**40)

    assert committed.outcomes == [Outcome(ACCEPTED, base, 0) for base in (0, 2, 4)]
    assert await peer.producers.named(key, "name") == producer._replace(epoch=0, last_sequence=2**40)


async def test_a_message_that_was_stored_before_is_a_duplicate(scene: Any, key: Any) -> None:
    producer_id = (await scene.metadata.producers.named(key, "name")).producer_id
    await send(scene, key, producer_id, *range(0, 80, 10))
    again = await send(scene, key, producer_id, 70, 30, 20, 75, 71)

    assert again.outcomes == [
        Outcome(DUPLICATE, 14, 0),
        Outcome(DUPLICATE, 6, 0),
        Outcome(DUPLICATE, -1, 0),
        Outcome(ACCEPTED, 16, 0),
        Outcome(DUPLICATE, -1, 0),
    ]


async def test_a_message_sent_after_a_lost_batch_waits_for_that_batch(scene: Any, key: Any) -> None:
    producer_id = (await scene.metadata.producers.named(key, "name")).producer_id

    def batch(sequence: int, after: int) -> Any:
        return scene.batch(key, 1, producer=producer_id, sequence=sequence, flags=BATCH_NAMED, after=after)

    await scene.commit(batch(3, -1))
    assert kinds(await scene.commit(batch(9, 7), batch(12, 9))) == [OUT_OF_ORDER, OUT_OF_ORDER]
    again = await scene.commit(batch(3, -1), batch(7, 3), batch(9, 7), batch(12, 9))
    assert [outcome[:2] for outcome in again.outcomes] == [(DUPLICATE, 0), (ACCEPTED, 1), (ACCEPTED, 2), (ACCEPTED, 3)]


async def test_in_step_nothing_is_skipped(scene: Any, key: Any) -> None:
    producer_id = (await scene.metadata.producers.named(key, "name")).producer_id

    assert kinds(await send(scene, key, producer_id, 1, 0, 2, 1, 1, flags=IN_STEP)) == [
        OUT_OF_ORDER,
        ACCEPTED,
        OUT_OF_ORDER,
        ACCEPTED,
        DUPLICATE,
    ]


async def test_in_step_an_epoch_starts_at_zero(scene: Any, key: Any, peer: Any) -> None:
    producer_id = (await scene.metadata.producers.named(key, "name")).producer_id
    await send(scene, key, producer_id, 0, 1, 2, flags=IN_STEP)
    epoch = 2**40

    assert kinds(await send(scene, key, producer_id, 3, 0, 1, epoch=epoch, flags=IN_STEP)) == [
        OUT_OF_ORDER,
        ACCEPTED,
        ACCEPTED,
    ]
    assert kinds(await send(scene, key, producer_id, 3, flags=IN_STEP)) == [FENCED]
    assert await peer.producers.named(key, "name") == NamedProducer(producer_id, epoch, 1, 0)


async def test_a_raised_epoch_fences_every_name(scene: Any, key: Any, peer: Any) -> None:
    lease = await scene.metadata.leases.acquire("dispatch", scene.server)
    writer = (await scene.metadata.producers.named(key, "writer")).producer_id
    idle = (await scene.metadata.producers.named(key, "idle")).producer_id
    await send(scene, key, writer, 7)

    assert await scene.metadata.producers.raise_epoch(key, lease) == 1
    assert kinds(await scene.commit(scene.batch(key, producer=writer, sequence=8, flags=BATCH_NAMED), by=peer)) == [
        FENCED
    ]
    assert kinds(await send(scene, key, idle, 0)) == [FENCED]
    assert kinds(await send(scene, key, writer, 7, 8, epoch=1)) == [DUPLICATE, ACCEPTED]
    assert await peer.producers.named(key, "writer") == NamedProducer(writer, 1, 8, 1)


async def test_a_server_that_lapsed_writes_nothing_for_its_exclusive_producer_once_others_share(
    scene: Any, key: Any, peer: Any
) -> None:
    first, second = await scene.register(scene.metadata, "one"), await scene.register(scene.metadata, "two")
    lease = await scene.metadata.leases.acquire("produce", first)
    alone = (await scene.metadata.producers.named(key, "alone")).producer_id
    shared = (await peer.producers.named(key, "shared")).producer_id
    epoch = await scene.metadata.producers.raise_epoch(key, lease)
    with pytest.raises(Conflict):
        await peer.producers.share_epoch(key, "produce")
    assert await lapse(scene.metadata, first)
    told = await peer.producers.share_epoch(key, "produce")
    await scene.metadata.servers.heartbeat(first)  # the producer continues

    assert kinds(await send(scene, key, alone, 0, epoch=epoch)) == [FENCED]
    assert kinds(await send(scene, key, shared, 0, epoch=told)) == [ACCEPTED]
    assert await peer.producers.share_epoch(key, "produce") == told
    assert await scene.metadata.leases.holder("produce") is None
    with pytest.raises(Fenced):
        await scene.metadata.producers.raise_epoch(key, lease)
    assert (await scene.metadata.leases.acquire("produce", second)).epoch > lease.epoch


async def test_an_exclusive_producer_fences_producers_with_an_earlier_epoch(scene: Any, key: Any, peer: Any) -> None:
    shared = (await scene.metadata.producers.named(key, "shared")).producer_id
    told = await scene.metadata.producers.share_epoch(key, "produce")
    lease = await peer.leases.acquire("produce", scene.server)
    await peer.producers.raise_epoch(key, lease)

    assert kinds(await send(scene, key, shared, 0, epoch=told)) == [FENCED]


async def test_sharing_after_an_exclusive_producer_has_left_fences_its_batches_in_flight(scene: Any, key: Any) -> None:
    lease = await scene.metadata.leases.acquire("produce", scene.server)
    alone = (await scene.metadata.producers.named(key, "alone")).producer_id
    epoch = await scene.metadata.producers.raise_epoch(key, lease)
    await scene.metadata.leases.release(lease)
    told = [await scene.metadata.producers.share_epoch(key, "produce") for _ in range(2)]

    assert told == [epoch + 1] * 2
    assert kinds(await send(scene, key, alone, 0, epoch=epoch)) == [FENCED]
    with pytest.raises(NotFound):
        await scene.metadata.producers.share_epoch(partition_key(999, 0), "produce")


async def test_a_raised_epoch_leaves_others_alone(scene: Any) -> None:
    stream = await scene.stream("wide", 2)
    lease = await scene.metadata.leases.acquire("dispatch", scene.server)
    for _ in range(3):
        await scene.metadata.producers.raise_epoch(stream.partition(0), lease)
    own, other = stream.partition(0), stream.partition(1)
    step = (await scene.metadata.producers.named(own, "in step")).producer_id
    elsewhere = (await scene.metadata.producers.named(other, "name")).producer_id
    (kafka,) = await scene.metadata.producers.allocate(1)

    assert kinds(await send(scene, own, step, 0, 1, flags=IN_STEP)) == [ACCEPTED, ACCEPTED]
    assert kinds(await send(scene, own, kafka, 0, 2, flags=0)) == [ACCEPTED, ACCEPTED]
    assert kinds(await send(scene, own, -1, 0)) == [ACCEPTED]
    assert kinds(await send(scene, other, elsewhere, 3)) == [ACCEPTED]


async def test_an_overtaken_lease_raises_nothing(scene: Any, key: Any) -> None:
    lease = await scene.metadata.leases.acquire("dispatch", scene.server)
    await scene.metadata.leases.release(lease)

    with pytest.raises(Fenced):
        await scene.metadata.producers.raise_epoch(key, lease)
    assert (await scene.metadata.producers.named(key, "name")).partition_epoch == 0


async def test_stored_messages_outlive_the_log(scene: Any, key: Any, peer: Any) -> None:
    lease = await scene.metadata.leases.acquire("dispatch", scene.server)
    await scene.metadata.producers.raise_epoch(key, lease)
    producer_id = (await scene.metadata.producers.named(key, "name")).producer_id
    await send(scene, key, producer_id, 2**40, epoch=1)
    await scene.maintain(0)

    assert await peer.producers.named(key, "name") == NamedProducer(producer_id, 1, 2**40, 1)
    assert kinds(await send(scene, key, producer_id, 2**40, 2**40 + 9, epoch=1)) == [DUPLICATE, ACCEPTED]


async def test_a_repeated_token_gets_the_first_result(scene: Any, key: Any) -> None:
    producer_id = (await scene.metadata.producers.named(key, "name")).producer_id
    batch = scene.batch(key, 3, producer=producer_id, sequence=4, flags=BATCH_NAMED)
    first = await scene.commit(batch, token="wal/one")

    assert await scene.commit(batch, token="wal/one") == first


async def test_named_producers_are_not_listed_among_idempotent_ones(scene: Any, key: Any) -> None:
    producer_id = (await scene.metadata.producers.named(key, "name")).producer_id
    (kafka,) = await scene.metadata.producers.allocate(1)
    await send(scene, key, producer_id, 2**40)
    await send(scene, key, kafka, 0, flags=0)

    assert [state.producer_id for state in await scene.metadata.log.producers(key)] == [kafka]


async def test_names_are_forgotten_with_what_they_wrote(scene: Any, key: Any) -> None:
    producers = scene.metadata.producers
    writer, silent = await producers.named(key, "writer"), await producers.named(key, "silent")
    await send(scene, key, writer.producer_id, 7)
    await scene.maintain()
    await pass_minutes(scene.metadata, 1)
    await producers.named(key, "asked")

    assert await producers.expire(idle_ms=0, limit=100) == 1
    assert (await producers.named(key, "writer")).producer_id > silent.producer_id
    assert (await producers.named(key, "silent")).producer_id > silent.producer_id
    assert (await producers.named(key, "writer")).last_sequence == -1


async def test_an_expiry_reports_whether_more_names_may_never_have_written(scene: Any, key: Any) -> None:
    producers = scene.metadata.producers
    for number in range(5):
        await producers.named(key, f"silent-{number}")
    await pass_minutes(scene.metadata, 1)

    assert [await producers.expire(idle_ms=0, limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_a_name_that_was_requested_again_keeps_its_sequence(scene: Any, key: Any) -> None:
    producers = scene.metadata.producers
    producer_id = (await producers.named(key, "name")).producer_id
    await send(scene, key, producer_id, 7)
    await scene.maintain()
    await pass_minutes(scene.metadata, 1)
    await producers.named(key, "name")

    assert await producers.expire(idle_ms=0, limit=100) == 0
    assert await producers.named(key, "name") == NamedProducer(producer_id, 0, 7, 0)


async def test_names_go_with_their_stream(scene: Any, key: Any) -> None:
    await scene.metadata.producers.named(key, "name")
    lease = await scene.metadata.leases.acquire("dispatch", scene.server)
    await scene.metadata.producers.raise_epoch(key, lease)
    await by_name.delete(scene.metadata, "orders")
    await scene.maintain(0)

    for partition in (key, partition_key(99, 0), key + 1):
        with pytest.raises(NotFound):
            await scene.metadata.producers.named(partition, "name")
        with pytest.raises(NotFound):
            await scene.metadata.producers.raise_epoch(partition, lease)
    again = await scene.partition()
    assert (await scene.metadata.producers.named(again, "name")).partition_epoch == 0


@pytest.mark.parametrize("name", ["", "x" * 1025, "ä" * 513, "a\0b"])
async def test_a_name_has_bounds(scene: Any, key: Any, name: str) -> None:
    with pytest.raises(Invalid, match="1 to 1024"):
        await scene.metadata.producers.named(key, name)


async def test_a_name_is_text(scene: Any, key: Any) -> None:
    with pytest.raises(Invalid, match="not UTF-8"):
        await scene.metadata.producers.named(key, b"\xff".decode("ascii", "surrogateescape"))
