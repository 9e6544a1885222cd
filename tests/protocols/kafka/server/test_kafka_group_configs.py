"""Configs of groups over the wire: where their values come from (KIP-226, KIP-848)."""

from bearlake.protocols.kafka import messages as m
from bearlake.streams.groups.consumer.settings import ConsumerGroupSettings
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.service import StreamsSettings
from protocols.kafka.server.test_kafka_consumer_groups import GROUP, change

SETTINGS = StreamsSettings(groups=GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=2_000)))
BROKER, DEFAULT, OWN = 4, 5, 8


async def origins(client, name):
    """The config's value, its source, and its synonyms as (name, value, source)."""
    r = m.DescribeConfigsRequest
    resource = r.Resource(resource_type=GROUP, resource_name="g", configuration_keys=[name])
    (found,) = (await client.ask(r(resources=[resource], include_synonyms=True), 4)).results[0].configs
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms]
    return found.value, found.config_source, synonyms


async def test_a_setting_of_the_server_stands_between_a_groups_config_and_the_default(kafka_cluster):
    client = await (await kafka_cluster(1, streams=SETTINGS))[0].client()
    name, setting = "consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms"
    of_server = [(setting, "2000", BROKER), (setting, "1000", DEFAULT)]
    assert await origins(client, name) == ("2000", BROKER, of_server)

    assert (await change(client, name, "3000"))[0] == 0

    assert await origins(client, name) == ("3000", OWN, [(name, "3000", OWN), *of_server])


async def test_a_config_without_a_setting_of_kafkas_brokers_is_its_own_synonym(kafka):
    client = await kafka.client()
    name = "share.auto.offset.reset"
    assert await origins(client, name) == ("latest", DEFAULT, [(name, "latest", DEFAULT)])

    assert (await change(client, name, "earliest"))[0] == 0

    assert await origins(client, name) == ("earliest", OWN, [(name, "earliest", OWN), (name, "latest", DEFAULT)])
