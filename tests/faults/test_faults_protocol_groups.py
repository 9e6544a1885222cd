"""One group with members of three protocols in three processes: librdkafka, a REST consumer instance and a gRPC call.

The Kafka server coordinates while it lives. When it is killed, the group continues on the others, with its offsets; when it is back, the
group is handed over to it, so that Kafka's clients find it again.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
import pytest

from bearlake.client import Client
from faults.checking import Read, check
from faults.cluster import Cluster, Server, Stores, running
from faults.grpc_load import GrpcMember
from faults.load import Member, create_stream, read_log
from faults.rest_load import RestMember, RestProducer
from faults.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

STREAM = "shared"
GROUP = "all"
PARTITION_COUNT = 6
TIMEOUT_S = 60.0
AnyMember = Member | RestMember | GrpcMember


def places(members: Sequence[AnyMember]) -> Counter[tuple[int, int]]:
    """(partition, offset) of all records that these members received, with counts."""
    return Counter((read.partition, read.offset) for member in members for read in list(member.read))


def has_all(producer: RestProducer, members: Sequence[AnyMember]) -> bool:
    """Whether the members together have all acknowledged records."""
    got = places(members)
    return all((record.partition, record.offset) in got for record in list(producer.acknowledged))


def since(members: Sequence[AnyMember], begun_s: float) -> list[set[int]]:
    """The partitions from which each member has read since this time."""
    return [{read.partition for read in list(member.read) if read.at_s > begun_s} for member in members]


def are_shared(members: Sequence[AnyMember], begun_s: float) -> bool:
    """Whether each member reads, no partition is read by two members, and every partition is read."""
    parts = since(members, begun_s)
    return all(parts) and sum(map(len, parts)) == PARTITION_COUNT == len(set().union(*parts))


def stable(members: Sequence[AnyMember], what: str) -> list[set[int]]:
    """Wait until the members share the partitions; return the partitions of each."""
    begun_s = time.monotonic()

    def is_so() -> bool:
        nonlocal begun_s
        for member in members:
            member.raise_failure()
        if are_shared(members, begun_s):
            return True
        if sum(map(len, since(members, begun_s))) > PARTITION_COUNT:
            begun_s = time.monotonic()  # a partition has moved: look again
        return False

    until(is_so, TIMEOUT_S, what)
    return since(members, begun_s)


def test_a_group_of_three_protocols_outlives_its_coordinator(
    folder: Path, stores: Stores, load_s: float, tell: Callable[[object], None]
) -> None:
    with running(Cluster(folder, stores)) as cluster:
        kafka, rest, grpc = (cluster.add(role, role=role) for role in ("kafka", "rest", "grpc"))
        for server in (kafka, rest, grpc):
            server.start()
        create_stream([kafka.kafka], STREAM, PARTITION_COUNT)
        producer = RestProducer("p", [rest.address("rest")], STREAM, PARTITION_COUNT, per_second=300)
        by_kafka = Member("by-kafka", kafka.kafka, STREAM, GROUP, session_timeout_ms=6_000)
        by_rest = RestMember("by-rest", [rest.address("rest")], STREAM, GROUP)
        by_grpc = GrpcMember("by-grpc", [grpc.address("grpc")], STREAM, GROUP)
        others: list[AnyMember] = [by_rest, by_grpc]
        members: list[AnyMember] = [by_kafka, *others]
        for client in (producer, *members):
            client.start()

        parts = stable(members, "three members share the partitions")
        begun = Counter(places(members))
        until(lambda: len(places(members)) > len(begun) + 300 * load_s, TIMEOUT_S, "they read on")
        twice = places(members) - Counter(dict.fromkeys(places(members), 1))
        tell(f"shared as {parts}; read {places(members).total():,}, twice {twice.total()}")
        assert [owned(server) for server in (kafka, rest, grpc)] == [1, 0, 0]
        assert not any((partition, offset) not in begun for partition, offset in twice)

        killed_s = time.monotonic()
        kafka.kill()
        parts = stable(others, "two members share the partitions")
        tell(f"coordinator killed; the others share all as {parts} after {time.monotonic() - killed_s:.1f} s")
        assert sorted([owned(rest), owned(grpc)]) == [0, 1]

        kafka.start()
        started_s = time.monotonic()
        parts = stable(members, "three members share the partitions again")
        tell(f"Kafka server back; all share as {parts} after {time.monotonic() - started_s:.1f} s")
        assert [owned(server) for server in (kafka, rest, grpc)] == [1, 0, 0]

        producer.stop()
        until(lambda: has_all(producer, members), TIMEOUT_S, "every acknowledged record is read")
        log = read_log(kafka.kafka, STREAM, PARTITION_COUNT)
        ends = {partition: len(reads) for partition, reads in log.items()}
        tell(f"commit errors {by_rest.commit_errors}, {dict(by_grpc.commit_errors)}, {dict(by_kafka.commit_errors)}")
        until(lambda: committed(kafka.kafka) == ends, TIMEOUT_S, "every record that was read is committed")
        for member in members:
            member.stop()
        counts = check(producer.acknowledged, producer.unknown, log, {})
        complaints = {client.name: dict(client.complaints) for client in (producer, *members)}
        again = places(members).total() - len(places(members))
        tell(
            f"read {len(places(members)):,}, read again {again}; complaints {complaints}; gRPC {dict(by_grpc.statuses)}"
        )
        tell(counts)

        counts.assert_exact()
        assert places(members).keys() == _all(log)
        assert not producer.broken
        assert not by_rest.broken
        assert not by_grpc.statuses


def test_without_a_kafka_server_the_other_servers_coordinate_and_one_takes_over_when_another_dies(
    folder: Path, stores: Stores, tell: Callable[[object], None]
) -> None:
    with running(Cluster(folder, stores)) as cluster:
        servers = [cluster.add(f"{role}-{at}", role=role) for role in ("rest", "grpc") for at in (1, 2)]
        for server in servers:
            server.start()
        urls = [server.address("rest") for server in servers[:2]]
        addresses = [server.address("grpc") for server in servers[2:]]
        create_by_grpc(addresses[0])
        members: list[AnyMember] = [
            RestMember("rest-1", urls, STREAM, GROUP),
            RestMember("rest-2", urls[::-1], STREAM, GROUP),
            GrpcMember("grpc", addresses, STREAM, GROUP),
        ]
        members[0].start()
        until(lambda: sum(map(owned, servers)) == 1, TIMEOUT_S, "a server coordinates")
        victim = next(server for server in servers if owned(server))
        staying = [url for server, url in zip(servers, urls, strict=False) if server is not victim]
        producer = RestProducer("p", staying[:1], STREAM, PARTITION_COUNT, per_second=300)
        for client in (producer, *members[1:]):
            client.start()
        stable(members, "three members share the partitions")

        killed_s = time.monotonic()
        victim.kill()
        parts = stable(members, "three members share the partitions again")
        others = [server for server in servers if server is not victim]
        tell(f"coordinator {victim.name} killed; all share as {parts} after {time.monotonic() - killed_s:.1f} s")
        assert sum(map(owned, others)) == 1

        producer.stop()
        until(lambda: has_all(producer, members), TIMEOUT_S, "every acknowledged record is read")
        for member in members:
            member.stop()
        again = places(members).total() - len(places(members))
        tell(f"acknowledged {len(producer.acknowledged):,}, read {len(places(members)):,}, read again {again}")
        assert not producer.broken


def owned(server: Server) -> float:
    """The number of groups that the server coordinates."""
    return server.metric("bearlake_group_owned_groups")


def create_by_grpc(address: str) -> None:
    with Client(address) as client:
        client.create_stream(STREAM, partition_count=PARTITION_COUNT)


def committed(address: str) -> dict[int, int]:
    """The group's committed offsets by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": GROUP, "log_level": 0})
    try:
        parts = [confluent_kafka.TopicPartition(STREAM, partition) for partition in range(PARTITION_COUNT)]
        return {part.partition: part.offset for part in consumer.committed(parts, timeout=TIMEOUT_S)}
    finally:
        consumer.close()


def _all(log: dict[int, Sequence[Read]]) -> set[tuple[int, int]]:
    return {(read.partition, read.offset) for reads in log.values() for read in reads}
