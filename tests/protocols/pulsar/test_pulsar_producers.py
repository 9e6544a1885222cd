"""Producers by raw frames: receipts, deduplication, access modes, closing, drain."""

import asyncio

import pytest

from bearlake.errors import Unavailable
from bearlake.objects.memory import MemoryObjectStore
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.settings import PulsarSettings
from bearlake.streams.append import AppendCall
from bearlake.streams.offsets import OffsetQuestion
from bearlake.streams.service import StreamsSettings
from bearlake.streams.writer_settings import WriterSettings
from fixtures.liveness import lapse
from fixtures.pulsar_server import Make, PulsarClient, PulsarNode
from fixtures.waiting import WAIT_S, until

NOTHING = 2**64 - 1


async def end_offset(node: PulsarNode, topic: str) -> int:
    view = await node.streams.catalog.find(topic)
    return (await node.streams.bounds([view.partition(0)]))[view.partition(0)].end


async def sent(client: PulsarClient, value: bytes, sequence_id: int, **options: object) -> pb.CommandSendReceipt:
    client.send_message(value, sequence_id, **options)  # type: ignore[arg-type]
    receipt = await client.receive("send_receipt")
    assert isinstance(receipt, pb.CommandSendReceipt)
    return receipt


async def test_receipts_name_entries_in_the_order_of_sends(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    opened = await client.produce("t")

    for sequence_id in range(50):
        client.send_message(b"value", sequence_id, send={"highest_sequence_id": sequence_id})
    receipts = [await client.receive("send_receipt") for _ in range(50)]

    assert (opened.last_sequence_id, opened.schema_version, opened.producer_ready) == (-1, b"", True)
    assert not opened.HasField("topic_epoch")
    assert (
        [receipt.sequence_id for receipt in receipts]
        == [receipt.highest_sequence_id for receipt in receipts]
        == list(range(50))
    )
    assert [receipt.message_id.entry_id for receipt in receipts] == list(range(50))
    assert {receipt.message_id.ledger_id for receipt in receipts} == {pulsar.streams.catalog.peek("t").stream.number}  # type: ignore[union-attr]
    assert not receipts[0].message_id.HasField("batch_index")


async def test_a_partition_is_a_topic_and_its_parent_is_none(pulsar: PulsarNode) -> None:
    await pulsar.create("t", 3)
    client = await pulsar.client()

    parent = await client.produce("t")
    beyond = await client.produce("t-partition-3")
    part = await client.produce("t-partition-2")
    receipt = await sent(client, b"value", 0)

    assert (parent.error, beyond.error) == (pb.NotAllowedError, pb.TopicNotFound)
    assert part.producer_ready
    assert receipt.message_id.partition == 2


async def test_producers_get_names_of_their_own(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2)
    names = set()
    for node in cluster.nodes:
        client = await node.client()
        names |= {(await client.produce("t", producer_id=number)).producer_name for number in range(5)}

    assert len(names) == 10


async def test_a_resent_message_is_stored_once(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2)
    first, second = await cluster[0].client(), await cluster[1].client()
    await first.produce("t", producer_name="p")
    for sequence_id in range(3):
        await sent(first, b"value", sequence_id)
    first.writer.transport.abort()

    opened = await second.produce("t", producer_name="p", epoch=1)
    again = await sent(second, b"value", 2)
    old = await sent(second, b"value", 0)
    fresh = await sent(second, b"value", 7)

    assert opened.last_sequence_id == 2
    assert (again.message_id.entry_id, old.message_id.entry_id) in [(2, 0), (2, NOTHING), (NOTHING, NOTHING)]
    assert fresh.message_id.entry_id == 3
    assert await end_offset(cluster[1], "t") == 4


async def test_a_batch_is_known_by_its_highest_sequence(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t", producer_name="p")
    batch = b"\0\0\0\x02\x18\x01a" + b"\0\0\0\x02\x18\x01b"

    receipt = await sent(client, batch, 5, send={"highest_sequence_id": 6, "num_messages": 2}, num_messages_in_batch=2)
    opened = await (await pulsar.client()).produce("t", producer_name="p", epoch=1)

    assert receipt.highest_sequence_id == 6
    assert opened.last_sequence_id == 6
    assert await end_offset(pulsar, "t") == 2


async def test_without_deduplication_everything_is_stored(pulsar: PulsarNode) -> None:
    await pulsar.create("t", pulsar_deduplication="false")
    client = await pulsar.client()
    await client.produce("t", producer_name="p")

    for _ in range(2):
        await sent(client, b"value", 0)

    assert await end_offset(pulsar, "t") == 2


async def test_chunks_share_a_sequence_and_are_all_stored(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t")

    for chunk in range(3):
        fields = {"uuid": "u", "num_chunks_from_msg": 3, "total_chunk_msg_size": 15, "chunk_id": chunk}
        receipt = await sent(client, b"chunk", 0, send={"is_chunk": True}, **fields)
        assert receipt.message_id.entry_id == chunk
    again = await sent(client, b"chunk", 0, send={"is_chunk": True}, **fields)

    assert again.message_id.entry_id in (2, NOTHING)
    assert await end_offset(pulsar, "t") == 3


async def test_chunks_are_refused_where_each_would_supersede_the_one_before_it(pulsar: PulsarNode) -> None:
    await pulsar.create("t", cleanup_policy="compact")
    client = await pulsar.client()
    await client.produce("t")

    fields = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 10, "partition_key": "k"}
    client.send_message(b"chunk", 0, send={"is_chunk": True}, chunk_id=0, **fields)  # type: ignore[arg-type]
    refused = await client.receive("send_error")
    await sent(client, b"whole", 1, partition_key="k")

    assert refused.error == pb.NotAllowedError
    assert await end_offset(pulsar, "t") == 1


async def test_the_last_chunk_is_appended_when_those_before_it_are_stored(
    pulsar: PulsarNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await pulsar.client()
    await client.produce("t")
    submitted: list[AppendCall] = []
    submit = pulsar.streams.submit
    monkeypatch.setattr(pulsar.streams, "submit", submitted.append)

    for chunk in range(3):
        fields = {"uuid": "u", "num_chunks_from_msg": 3, "total_chunk_msg_size": 15, "chunk_id": chunk}
        client.send_message(b"chunk", 0, send={"is_chunk": True}, **fields)
    client.send_message(b"next", 1)
    await until(lambda: len(submitted) == 2)
    submit(submitted[0])
    await client.receive("send_receipt")
    assert len(submitted) == 2
    submit(submitted[1])
    await client.receive("send_receipt")
    await until(lambda: len(submitted) == 4)
    for call in submitted[2:]:
        submit(call)
    last, following = [await client.receive("send_receipt") for _ in range(2)]

    assert (last.message_id.entry_id, following.message_id.entry_id) == (2, 3)


async def test_a_name_is_taken_once_until_its_producer_reconnects(pulsar: PulsarNode) -> None:
    first, second = await pulsar.client(), await pulsar.client()
    await first.produce("t", producer_name="p")

    busy = await second.produce("t", producer_name="p")
    elsewhere = await second.produce("u", producer_name="p")
    back = await second.produce("t", producer_id=2, producer_name="p", epoch=1)
    closed = await first.receive("close_producer")

    assert busy.error == pb.ProducerBusy
    assert elsewhere.producer_ready
    assert back.producer_ready
    assert (closed.producer_id, closed.request_id, closed.assigned_broker_service_url) == (1, NOTHING, "")


async def test_a_closed_producer_first_answers_the_messages_that_it_accepted(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t", producer_name="p")

    client.send_message(b"value", 0)
    client.send("close_producer", pb.CommandCloseProducer(producer_id=1, request_id=77))
    client.send_message(b"late", 1)
    receipt, closed = await client.receive("send_receipt"), await client.receive("success")
    opened = await client.produce("t", producer_name="p")

    assert (receipt.sequence_id, closed.request_id, opened.last_sequence_id) == (0, 77, 0)


async def test_sends_of_unknown_producers_are_dropped_in_silence(pulsar: PulsarNode) -> None:
    client = await pulsar.client()

    client.send_message(b"value", 0, producer_id=9)
    client.send("close_producer", pb.CommandCloseProducer(producer_id=9, request_id=5))

    assert (await client.receive("success")).request_id == 5


async def test_a_producer_of_a_deleted_topic_is_closed(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t")
    await pulsar.streams.catalog.delete((await pulsar.streams.catalog.resolve("t")).stream)

    client.send_message(b"value", 0)

    assert (await client.receive("close_producer")).producer_id == 1


class DeadStore(MemoryObjectStore):
    """No put succeeds."""

    async def put(self, *_: object, **__: object) -> None:
        raise Unavailable("the store is down")


async def test_a_producer_whose_outcome_is_unknown_is_closed(pulsar_cluster: Make) -> None:
    streams = StreamsSettings(writer=WriterSettings(deadline_ms=50))
    node = (await pulsar_cluster(1, streams=streams, store=DeadStore()))[0]
    client = await node.client()
    await client.produce("t")
    client.send_message(b"value", 0)

    assert (await client.receive("close_producer")).producer_id == 1


async def test_transactions_and_foreign_encodings_are_refused_message_by_message(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t")

    client.send_message(b"value", 0, send={"txnid_most_bits": 1})
    client.send_message(b"value", 1, num_messages_in_batch=3)
    client.send_message(b"value", 2)
    answers = [await client.receive() for _ in range(3)]

    assert [answer.error for answer in answers[:2]] == [pb.NotAllowedError] * 2
    assert isinstance(answers[2], pb.CommandSendReceipt)


async def test_sends_of_one_read_are_answered_in_order_whatever_becomes_of_each(pulsar: PulsarNode) -> None:
    await pulsar.create("t", message_timestamp_before_max_ms="1000000")
    client = await pulsar.client()
    await client.produce("t", 1)
    await client.produce("t", 2)
    now_ms = pulsar.streams.clock.now_ms()

    for sequence_id in range(6):
        old_ms = 1 if sequence_id == 2 else now_ms
        unusual = {"txnid_least_bits": 1} if sequence_id == 4 else {}
        client.send_message(b"value", sequence_id, 1, unusual, publish_time=old_ms)
        client.send_message(b"value", sequence_id, 2, publish_time=now_ms)
    answers = [await client.receive() for _ in range(12)]

    of_first = [answer for answer in answers if answer.producer_id == 1]
    assert [answer.sequence_id for answer in of_first] == list(range(6))
    assert [answer.sequence_id for answer in of_first if isinstance(answer, pb.CommandSendError)] == [2, 4]
    assert [answer.sequence_id for answer in answers if answer.producer_id == 2] == list(range(6))
    assert await end_offset(pulsar, "t") == 10


async def test_a_stream_that_stamps_its_records_stamps_those_of_pulsar(pulsar: PulsarNode) -> None:
    await pulsar.create("t", message_timestamp_type="LogAppendTime")
    client = await pulsar.client()
    await client.produce("t")

    for sequence_id in range(3):
        client.send_message(b"value", sequence_id, publish_time=1)
    receipts = [await client.receive("send_receipt") for _ in range(3)]

    assert [receipt.message_id.entry_id for receipt in receipts] == [0, 1, 2]
    partition = (await pulsar.streams.catalog.find("t")).partition(0)
    (found,) = await pulsar.streams.offsets([OffsetQuestion(partition, 2)])
    assert found.offset == 0


async def test_a_read_accepts_no_more_sends_than_may_be_in_flight(pulsar_cluster: Make) -> None:
    settings = PulsarSettings(sends_in_flight_max=3)
    (node,) = (await pulsar_cluster(1, settings=settings)).nodes
    client = await node.client()
    await client.produce("t")

    for sequence_id in range(20):
        client.send_message(b"value", sequence_id)
    receipts = [await client.receive("send_receipt") for _ in range(20)]

    assert [receipt.sequence_id for receipt in receipts] == list(range(20))


# -- access modes ------------------------------------------------------------------------------------------------


async def test_an_exclusive_producer_excludes_others(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2)
    alone, beside, remote = await cluster[0].client(), await cluster[0].client(), await cluster[1].client()

    opened = await alone.produce("t", producer_access_mode=pb.Exclusive)
    refused = [await beside.produce("t", producer_access_mode=mode) for mode in (pb.Shared, pb.Exclusive)] + [
        await remote.produce("t", producer_access_mode=mode) for mode in (pb.Shared, pb.Exclusive, pb.WaitForExclusive)
    ]
    receipt = await sent(alone, b"value", 0)

    assert opened.topic_epoch >= 1
    assert [command.error for command in refused] == [pb.ProducerBusy, pb.ProducerFenced, *[pb.ProducerBusy] * 3]
    assert receipt.message_id.entry_id == 0


async def test_an_exclusive_producer_is_refused_while_other_producers_exist(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t")

    assert (await client.produce("t", producer_id=2, producer_access_mode=pb.Exclusive)).error == pb.ProducerFenced


async def test_a_waiting_exclusive_producer_gets_the_topic_when_the_others_have_gone(pulsar: PulsarNode) -> None:
    first, second = await pulsar.client(), await pulsar.client()
    alone = await first.produce("t", producer_access_mode=pb.Exclusive)

    waiting = await second.produce("t", producer_access_mode=pb.WaitForExclusive)
    shared = await first.produce("t", producer_id=2)
    first.send("close_producer", pb.CommandCloseProducer(producer_id=1, request_id=5))
    ready = await second.receive("producer_success")
    receipt = await sent(second, b"value", 0)

    assert (waiting.producer_ready, waiting.HasField("topic_epoch")) == (False, False)
    assert shared.error == pb.ProducerBusy
    assert (ready.producer_ready, ready.request_id) == (True, waiting.request_id)
    assert ready.topic_epoch > alone.topic_epoch
    assert receipt.message_id.entry_id == 0


async def test_a_topic_is_shared_again_when_no_exclusive_producer_is_left(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2)
    first, second = await cluster[0].client(), await cluster[1].client()
    await first.produce("t", producer_access_mode=pb.Exclusive)
    first.writer.transport.abort()

    async with asyncio.timeout(WAIT_S):
        while isinstance(opened := await second.produce("t"), pb.CommandError):
            assert opened.error == pb.ProducerBusy

    assert opened.producer_ready


async def shared_after_lapse(cluster: list[PulsarNode], client: PulsarClient) -> None:
    """A shared producer, opened through the second server, while the first server counts as dead."""
    async with asyncio.timeout(WAIT_S):
        while True:  # a heartbeat of the first server may arrive in between
            await lapse(cluster[0].streams.metadata, cluster[0].streams.server)
            opened = await client.produce("t")
            if not isinstance(opened, pb.CommandError):
                return
            assert opened.error == pb.ProducerBusy


@pytest.mark.parametrize("deduplication", ["true", "false"])
async def test_after_a_pause_an_exclusive_producers_server_stores_nothing_next_to_a_shared_producer(
    pulsar_cluster: Make, deduplication: str
) -> None:
    cluster = await pulsar_cluster(2)
    await cluster[0].create("t", pulsar_deduplication=deduplication)
    alone, shared = await cluster[0].client(), await cluster[1].client()
    await alone.produce("t", producer_name="alone", producer_access_mode=pb.Exclusive)
    for _ in range(2):
        await sent(alone, b"alone", 0)
    before = await end_offset(cluster[0], "t")
    await shared_after_lapse(cluster, shared)
    await sent(shared, b"shared", 0)
    alone.send_message(b"late", 1)
    await alone.receive("close_producer")
    await sent(shared, b"shared", 1)

    assert before == (1 if deduplication == "true" else 2)
    assert await end_offset(cluster[1], "t") == before + 2


async def test_a_server_that_lost_an_exclusive_partition_learns_it_before_it_refuses_anybody(
    pulsar_cluster: Make,
) -> None:
    cluster = await pulsar_cluster(2)
    alone, beside, remote = await cluster[0].client(), await cluster[0].client(), await cluster[1].client()
    await alone.produce("t", producer_access_mode=pb.Exclusive)
    await shared_after_lapse(cluster, remote)

    opened = await beside.produce("t")

    assert not isinstance(opened, pb.CommandError)
    await alone.receive("close_producer")


async def test_a_fencing_producer_closes_the_others_here_and_fences_those_elsewhere(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2)
    beside, remote, alone = await cluster[0].client(), await cluster[1].client(), await cluster[0].client()
    await beside.produce("t")
    await remote.produce("t")

    opened = await alone.produce("t", producer_access_mode=pb.ExclusiveWithFencing)
    await beside.receive("close_producer")
    remote.send_message(b"late", 0)
    await remote.receive("close_producer")
    await sent(alone, b"value", 0)

    assert opened.producer_ready
    assert await end_offset(cluster[0], "t") == 1


async def test_a_replaced_producer_that_reconnects_is_fenced(pulsar: PulsarNode) -> None:
    old, new = await pulsar.client(), await pulsar.client()
    epoch = (await old.produce("t", producer_name="old", producer_access_mode=pb.Exclusive)).topic_epoch
    await new.produce("t", producer_name="new", producer_access_mode=pb.ExclusiveWithFencing)
    await old.receive("close_producer")
    new.send("close_producer", pb.CommandCloseProducer(producer_id=1, request_id=5))
    await new.receive("success")

    back = await old.produce("t", producer_name="old", epoch=1, producer_access_mode=pb.Exclusive, topic_epoch=epoch)

    assert back.error == pb.ProducerFenced


async def test_an_exclusive_producer_that_reconnects_keeps_its_epoch(pulsar: PulsarNode) -> None:
    first, second = await pulsar.client(), await pulsar.client()
    options = {"producer_name": "p", "producer_access_mode": pb.Exclusive}
    epoch = (await first.produce("t", **options)).topic_epoch
    first.writer.transport.abort()

    back = await second.produce("t", epoch=1, topic_epoch=epoch, **options)

    assert (back.producer_ready, back.topic_epoch) == (True, epoch)


# -- drain -------------------------------------------------------------------------------------------------------


async def test_a_drain_answers_then_closes_producers_and_drops_later_sends(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2, settings=PulsarSettings(drain_move_ms=60_000))
    client = await cluster[0].client()
    await client.produce("t", producer_name="p")
    for sequence_id in range(10):
        client.send_message(b"value", sequence_id)
    await until(lambda: bool(cluster[0].server.context.producer_count))

    await cluster[0].member.drain()
    drain = asyncio.create_task(cluster[0].server.drain(60_000))
    answers = []
    while not isinstance(answer := await client.receive(), pb.CommandCloseProducer):
        answers.append(answer)
    client.send_message(b"dropped", 10)
    refused = await client.produce("t", producer_id=2)
    there = await cluster[1].client()
    opened = await there.produce("t", producer_name="p", epoch=1)
    client.writer.close()
    await drain

    assert [answer.sequence_id for answer in answers] == list(range(len(answers)))
    assert answer.assigned_broker_service_url == cluster[1].url
    assert (refused.error, opened.last_sequence_id) == (pb.ServiceNotReady, len(answers) - 1)
    assert await end_offset(cluster[1], "t") == len(answers)


async def test_a_producer_that_waits_for_a_topic_waits_on_another_server_after_a_drain(pulsar_cluster: Make) -> None:
    cluster = await pulsar_cluster(2, settings=PulsarSettings(drain_move_ms=60_000))
    first, second = await cluster[0].client(), await cluster[0].client()
    await first.produce("t", producer_access_mode=pb.Exclusive)
    await second.produce("t", producer_access_mode=pb.WaitForExclusive)

    await cluster[0].member.drain()
    drain = asyncio.create_task(cluster[0].server.drain(60_000))
    closed = [await client.receive("close_producer") for client in (first, second)]
    for client in (first, second):
        client.writer.close()
    await drain
    there = await (await cluster[1].client()).produce("t", producer_access_mode=pb.Exclusive)

    assert [command.assigned_broker_service_url for command in closed] == [cluster[1].url] * 2
    assert there.producer_ready


async def test_an_initial_subscription_is_made_with_the_producer(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t", initial_subscription_name="s")
    await sent(client, b"value", 0)

    await client.subscribe("t", initial_position=pb.CommandSubscribe.Latest)
    client.flow(1)

    assert (await client.receive_message())[2] == b"value"


async def test_a_drain_without_another_server_finishes_and_closes(pulsar: PulsarNode) -> None:
    client = await pulsar.client()
    await client.produce("t")
    client.send_message(b"value", 0)
    receipt = await client.receive("send_receipt")

    await pulsar.server.drain(1_000)
    closed = await client.receive("close_producer")

    assert (receipt.sequence_id, closed.assigned_broker_service_url) == (0, "")
    assert await client.is_closed()
