"""Topics, subscriptions, producers and consumers of hostile names: kept as they are or refused, without harm to others."""

import pytest

from bearlake.protocols.pulsar.names import topic_of
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.streams.catalog import check_name
from fixtures.pulsar_server import PulsarNode

NAMES = [
    "'; drop table bearlake.log; --",
    '"quoted".`tick`',
    "$$ $1 ${x} %s %(name)s {0}",
    "a\\b\\",
    "line\nfeed\r",
    "\u202eright to left\u2066",
    "\x1b]0;title\x07\x9b31m\x7f",
    "../../etc/passwd",
    "%2e%2e%2f",
    "..",
    ".",
    "-rf",
    "select",
    " ",
    "a\u0301 \u00e1 \u0430",
    "zero\0byte",
    "\U0001f43b" * 60,
    "x" * 5_000,
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_a_topic_of_any_name_has_a_legal_stream_of_its_own_or_is_refused(pulsar: PulsarNode, name: str) -> None:
    client = await pulsar.client()
    before = {view.name for view in pulsar.streams.catalog.views()}
    topic = f"persistent://public/default/{name}"

    answer = await client.ask("producer", pb.CommandProducer(topic=topic, producer_id=1))

    made = {view.name for view in pulsar.streams.catalog.views()} - before
    if isinstance(answer, pb.CommandError):
        assert not made
    else:
        (stream,) = made
        check_name(stream)
        assert str(topic_of(stream)) == topic
    assert isinstance(await client.ask("lookup", pb.CommandLookupTopic(topic="t")), pb.CommandLookupTopicResponse)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
async def test_subscriptions_producers_and_consumers_of_any_name_are_kept_or_refused(
    pulsar: PulsarNode, name: str
) -> None:
    client, other = await pulsar.client(), await pulsar.client()
    await pulsar.create("t")
    subscription = pb.CommandSubscribe(
        topic="t", subscription=name, sub_type=pb.CommandSubscribe.Exclusive, consumer_id=1, consumer_name=name
    )
    producer = pb.CommandProducer(topic="t", producer_id=1, producer_name=name)

    subscribed = await client.ask("subscribe", subscription)
    produced = await client.ask("producer", producer)

    if isinstance(subscribed, pb.CommandSuccess):
        busy = await other.ask("subscribe", subscription)
        assert busy.error == pb.ConsumerBusy
    else:
        assert isinstance(subscribed, pb.CommandError)
    if isinstance(produced, pb.CommandProducerSuccess):
        assert produced.producer_name == name
    else:
        assert isinstance(produced, pb.CommandError)
    assert isinstance(await other.ask("lookup", pb.CommandLookupTopic(topic="t")), pb.CommandLookupTopicResponse)
