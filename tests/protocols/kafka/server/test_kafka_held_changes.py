"""Requests that change very many things hold the event loop for no longer than one that changes a few.

Every case has as many items as a message of a few megabytes has, most of them invalid or missing: what a request costs before any store is
asked. `test_kafka_held.py` has the same for requests that read.
"""

from collections.abc import Callable

import pytest

from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.codec import Message
from bearlake.telemetry.watchdog import LIMIT_S
from fixtures.held import held_at_most
from fixtures.kafka_server import Client, Node

COUNT = 100_000


def create_acls() -> Message:
    r = m.CreateAclsRequest
    rule = r.Creation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    return r(creations=[rule] * 3 * COUNT)


def delete_acls() -> Message:
    r = m.DeleteAclsRequest
    selected = r.Filter(
        resource_type_filter=2,
        resource_name_filter="t",
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return r(filters=[selected] * 3 * COUNT)


def create_topics() -> Message:
    r = m.CreateTopicsRequest
    return r(
        topics=[
            r.Topic(name=f"/{at}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for at in range(COUNT)
        ],
        timeout_ms=1000,
    )


def create_topic_with_assignments() -> Message:
    r = m.CreateTopicsRequest
    shuffled = [at * 7919 % (3 * COUNT) for at in range(3 * COUNT)]
    assignments = [r.Assignment(partition_index=at, broker_ids=[]) for at in shuffled]
    topic = r.Topic(name="new", num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[])
    return r(topics=[topic], timeout_ms=1000)


def delete_topics() -> Message:
    r = m.DeleteTopicsRequest
    return r(topics=[r.Topic(name=f"no-{at}") for at in range(COUNT)], timeout_ms=1000)


def create_partitions() -> Message:
    r = m.CreatePartitionsRequest
    topics = [r.Topic(name=f"no-{at}", count=2, assignments=None) for at in range(COUNT)]
    return r(topics=topics, timeout_ms=1000, validate_only=False)


def delete_records() -> Message:
    r = m.DeleteRecordsRequest
    partitions = [r.Partition(partition_index=at, offset=0) for at in range(COUNT)]
    return r(topics=[r.Topic(name="t", partitions=partitions)], timeout_ms=1000)


def incremental_alter_configs() -> Message:
    r = m.IncrementalAlterConfigsRequest
    configs = [r.Config(name=f"no.such.{at}", config_operation=0, value="1") for at in range(COUNT // 20)]
    return r(resources=[r.Resource(resource_type=2, resource_name="t", configs=configs)] * 50, validate_only=True)


def delete_offsets() -> Message:
    r = m.OffsetDeleteRequest
    partitions = [r.Partition(partition_index=at) for at in range(2 * COUNT)]
    return r(group_id="g", topics=[r.Topic(name="t", partitions=partitions)])


def alter_quotas() -> Message:
    r = m.AlterClientQuotasRequest
    entries = [
        r.Entry(
            entity=[r.Entity(entity_type="user", entity_name=f"u{at}")],
            ops=[r.Op(key="producer_byte_rate", value=1e6, remove=False)],
        )
        for at in range(COUNT)
    ]
    return r(entries=entries, validate_only=True)


def alter_users() -> Message:
    r = m.AlterUserScramCredentialsRequest
    return r(deletions=[r.Deletion(name=f"u{at}", mechanism=9) for at in range(COUNT)], upsertions=[])


async def join(client: Client) -> None:
    """Make the group `g`, so that this server coordinates it."""
    r = m.JoinGroupRequest
    await client.ask(
        r(
            group_id="g",
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id="",
            protocol_type="consumer",
            protocols=[r.Protocol(name="range", metadata=b"")],
        ),
        3,
    )


CASES: dict[str, tuple[Callable[[], Message], int]] = {
    "CreateAcls": (create_acls, 3),
    "DeleteAcls": (delete_acls, 3),
    "CreateTopics": (create_topics, 7),
    "CreateTopics, one with assignments": (create_topic_with_assignments, 7),
    "DeleteTopics": (delete_topics, 6),
    "CreatePartitions": (create_partitions, 3),
    "DeleteRecords": (delete_records, 2),
    "IncrementalAlterConfigs": (incremental_alter_configs, 1),
    "OffsetDelete": (delete_offsets, 0),
    "AlterClientQuotas": (alter_quotas, 1),
    "AlterUserScramCredentials": (alter_users, 0),
}


@pytest.mark.parametrize("what", CASES)
async def test_a_change_of_many_things_does_not_hold_the_loop(kafka: Node, what: str) -> None:
    client = await kafka.client()
    await kafka.create("t")
    await client.ask(m.MetadataRequest(topics=[]), 12)
    await join(client)
    make, version = CASES[what]
    message = make()
    frame = b"".join(codec.request(message.api_key, version).frame(1, "test", message))

    async with held_at_most(LIMIT_S):
        client.send_bytes(frame)
        await client.receive_frame()
