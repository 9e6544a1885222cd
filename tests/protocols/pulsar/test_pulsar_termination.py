"""Terminated topics: notifications to producers and consumers, and the admin API's routes."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.streams.principal import ANONYMOUS
from fixtures.pulsar_http import Call, ask, filled
from fixtures.pulsar_server import Make, PulsarNode
from fixtures.waiting import until

T = "/admin/v2/persistent/public/default/t"


async def test_a_topic_is_terminated_at_its_last_message_whenever_asked(pulsar: PulsarNode, call: Call) -> None:
    await filled(pulsar, "t", 3)

    status, last = await call("POST", f"{T}/terminate")

    assert (status, last["entryId"], last["partitionIndex"]) == (200, 2, -1)
    assert await call("POST", f"{T}/terminate") == (200, last)
    assert await call("GET", f"{T}/lastMessageId") == (200, last)
    _, stats = await call("GET", f"{T}/internalStats")
    assert (stats["state"], stats["lastConfirmedEntry"]) == ("Terminated", f"{last['ledgerId']}:2")


async def test_an_empty_topic_is_terminated(call: Call) -> None:
    await call("PUT", T)

    status, last = await call("POST", f"{T}/terminate")

    assert (status, last["entryId"]) == (200, -1)


async def test_a_partitioned_topic_is_terminated_with_all_its_partitions(pulsar: PulsarNode, call: Call) -> None:
    await call("PUT", f"{T}/partitions", 2)
    await filled(pulsar, "t-partition-1", 2)

    assert (await call("POST", f"{T}/terminate"))[0] == 405
    assert (await call("POST", f"{T}-partition-0/terminate"))[0] == 405
    status, found = await call("POST", f"{T}/terminate/partitions")

    assert status == 200
    assert {index: (message_id["entryId"], message_id["partitionIndex"]) for index, message_id in found.items()} == {
        "0": (-1, 0),
        "1": (1, 1),
    }
    client = await pulsar.client()
    for index in range(2):
        assert (await client.produce(f"t-partition-{index}", index)).error == pb.TopicTerminatedError


async def test_routes_of_termination_need_their_kind_of_topic(call: Call) -> None:
    assert (await call("POST", f"{T}/terminate"))[0] == 404
    await call("PUT", T)
    assert (await call("POST", f"{T}/terminate/partitions"))[0] == 405


async def test_a_producer_that_sends_is_closed_and_not_opened_again_by_any_server(
    pulsar_cluster: Make, session: aiohttp.ClientSession
) -> None:
    """As Pulsar does. An error instead of a receipt makes clients cut the connection with all its producers and consumers."""
    cluster = await pulsar_cluster(2)
    await cluster[0].create("t")
    client = await filled(cluster[0], "t", 2)

    await ask(session, cluster[1], "POST", f"{T}/terminate")
    client.send_message(b"late", 2)
    client.send_message(b"later", 3)
    closed = await client.receive("close_producer")

    assert (closed.producer_id, closed.assigned_broker_service_url) == (1, "")
    for node in cluster.nodes:
        await until(lambda node=node: node.streams.catalog.peek("t").stream.is_terminated)
        assert (await (await node.client()).produce("t")).error == pb.TopicTerminatedError
    client.send("ping", pb.CommandPing())
    await client.receive("pong")  # the connection stays open


async def test_a_message_that_was_stored_before_gets_a_receipt_when_it_is_resent(pulsar: PulsarNode) -> None:
    """Its producer lost the receipt, not the message."""
    first = await pulsar.client()
    await first.produce("t", producer_name="p")
    first.send_message(b"stored", 7)
    stored = await first.receive("send_receipt")
    again = await pulsar.client()
    await again.produce("t", producer_name="p", epoch=1)
    await pulsar.streams.terminate(ANONYMOUS, (await pulsar.streams.catalog.resolve("t")).stream)

    again.send_message(b"stored", 7)
    receipt = await again.receive("send_receipt")

    assert receipt.message_id == stored.message_id


@pytest.mark.parametrize("is_durable", [True, False])
async def test_consumers_are_notified_of_the_end_when_they_have_acknowledged_everything(
    pulsar: PulsarNode, is_durable: bool
) -> None:
    await filled(pulsar, "t", 2)
    client = await pulsar.client()
    await client.subscribe("t", durable=is_durable)
    client.flow(10)
    ids = [(await client.receive_message())[0].message_id for _ in range(2)]
    await pulsar.streams.terminate(ANONYMOUS, (await pulsar.streams.catalog.resolve("t")).stream)

    client.send("ack", pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids))

    assert (await client.receive("reached_end_of_topic")).consumer_id == 1


async def test_a_consumer_that_subscribes_at_the_end_is_notified_after_the_answer(pulsar: PulsarNode) -> None:
    await filled(pulsar, "t", 1)
    await pulsar.streams.terminate(ANONYMOUS, (await pulsar.streams.catalog.resolve("t")).stream)
    client = await pulsar.client()

    answer = await client.subscribe("t", initial_position=pb.CommandSubscribe.Latest)

    assert isinstance(answer, pb.CommandSuccess)
    assert (await client.receive("reached_end_of_topic")).consumer_id == 1


def _meet_the_end(pulsar_client: Any, url: str, terminate: Callable[[], None]) -> tuple[list[bytes], list[str]]:
    """The messages that a reader gets, and the errors of a connected producer and of a new one."""
    client = pulsar_client.Client(
        url, operation_timeout_seconds=5, logger=pulsar_client.ConsoleLogger(pulsar_client.LoggerLevel.Error)
    )
    producer = client.create_producer("t", send_timeout_millis=20_000)
    terminate()
    reader = client.create_reader("t", pulsar_client.MessageId.earliest)
    values = []
    while reader.has_message_available():
        values.append(reader.read_next(20_000).data())
    refusals = []
    for attempt in (lambda: producer.send(b"late"), lambda: client.create_producer("t")):
        try:
            attempt()
        except pulsar_client.PulsarException as error:
            refusals.append(type(error).__name__)
    client.close()
    return values, refusals


@pytest.mark.integration
async def test_the_python_client_reads_a_terminated_topic_and_may_not_produce(pulsar: PulsarNode) -> None:
    pulsar_client = pytest.importorskip("pulsar", reason="PULSAR CLIENT NOT TESTED: pip install pulsar-client")
    await filled(pulsar, "t", 3)
    loop = asyncio.get_running_loop()

    def terminate() -> None:
        asyncio.run_coroutine_threadsafe(
            pulsar.streams.terminate(ANONYMOUS, pulsar.streams.catalog.peek("t").stream), loop
        ).result(20)

    values, refusals = await asyncio.to_thread(_meet_the_end, pulsar_client, pulsar.url, terminate)

    assert values == [b"m0", b"m1", b"m2"]
    assert refusals == ["TopicTerminated", "TopicTerminated"]
