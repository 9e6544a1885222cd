"""A group's coordinator drains, crashes or is paused under load: the group continues on another server with its offsets.

The group has two members, each of which prefers another server (by its zone), so both servers have clients of every kind.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from bearlake.app.exits import Exit
from faults.cluster import Cluster, Server, Stores, running
from faults.load import Member, Producer, Reader, create_stream
from faults.traffic import Traffic, seconds
from faults.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

STREAM = "faults"
GROUP = "faults-group"
PARTITION_COUNT = 6
NAMES = ("one", "two")
TIMEOUT_S = 60.0
RESUME_S_MAX = 20.0
STILL_S_MAX = 200.0
DRAIN_S_MAX = 22.0
"""`server.drain_ms` is 20 s; the rest is for the process to end."""

Tell = Callable[[object], None]


def patience(load_s: float) -> dict[str, int]:
    """How long clients wait for an answer: their defaults (up to a minute) in a long run, 5 s in a short one."""
    return {} if load_s >= 30 else {"socket_timeout_ms": 5_000}


@contextmanager
def loaded(cluster: Cluster, **more: int) -> Iterator[Traffic]:
    """A producer, a reader and a member per server, when all of them are at work and the group has committed."""
    both = cluster.bootstrap
    create_stream([server.kafka for server in cluster.servers.values()], STREAM, PARTITION_COUNT)
    waits = {"request_timeout_ms": more["socket_timeout_ms"]} if more else {}  # producers have two such settings
    producers = [
        Producer(f"p-{zone}", both, STREAM, PARTITION_COUNT, zone=zone, per_second=300, **more, **waits)
        for zone in NAMES
    ]
    readers = [Reader(f"r-{zone}", both, STREAM, PARTITION_COUNT, zone=zone, **more) for zone in NAMES]
    members = [Member(f"m-{zone}", both, STREAM, GROUP, zone=zone, **more) for zone in NAMES]
    with Traffic(STREAM, PARTITION_COUNT, producers, readers, members) as traffic:
        until(lambda: all(member.assignments for member in members), TIMEOUT_S, "both members have partitions")
        traffic.resumed(time.monotonic())
        until(lambda: any(member.commits for member in members), TIMEOUT_S, "the group commits offsets")
        yield traffic


def coordinator(cluster: Cluster, address: str) -> Server:
    """The server that coordinates the group now, according to the server at `address`."""
    found: list[Server] = []
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def is_told() -> bool:
        try:
            node = admin.describe_consumer_groups([GROUP], request_timeout=5)[GROUP].result(TIMEOUT_S).coordinator
        except confluent_kafka.KafkaException:
            return False
        found.append(cluster.by_address(f"{node.host}:{node.port}"))
        return True

    until(is_told, TIMEOUT_S, "a server says who coordinates the group")
    return found[0]


def committed(address: str) -> dict[int, int]:
    """The group's committed offsets by partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": GROUP, "log_level": 0})
    try:
        parts = [confluent_kafka.TopicPartition(STREAM, partition) for partition in range(PARTITION_COUNT)]
        return {part.partition: part.offset for part in consumer.committed(parts, timeout=TIMEOUT_S)}
    finally:
        consumer.close()


def read_twice(members: Sequence[Member]) -> int:
    """Records that the group got more than once: those after its last commit, when a partition changes hands."""
    reads = [(read.partition, read.offset) for member in members for read in member.read]
    return len(reads) - len(set(reads))


def other_of(cluster: Cluster, server: Server) -> Server:
    return next(other for other in cluster.servers.values() if other is not server)


def longest_gap_s(times: Sequence[float], since_s: float) -> float:
    """The longest time without an event since `since_s`."""
    after = [since_s, *sorted(at_s for at_s in times if at_s >= since_s)]
    return max((later - earlier for earlier, later in pairwise(after)), default=0.0)


def test_a_server_drains_and_no_client_notices_more_than_a_pause(
    folder: Path, stores: Stores, load_s: float, tell: Tell
) -> None:
    with running(Cluster(folder, stores), *NAMES) as cluster, loaded(cluster) as traffic:
        leaving = coordinator(cluster, cluster["one"].kafka)
        staying = other_of(cluster, leaving)
        traffic.run_on(load_s)
        begun_s = time.monotonic()
        drained_s = leaving.terminate()
        found = traffic.resumed(begun_s + drained_s)
        traffic.run_on(load_s)
        assert coordinator(cluster, staying.kafka) is staying

        acks = [record.at_s for producer in traffic.producers for record in producer.acknowledged]
        commits = [at_s for member in traffic.members for at_s in member.commits]
        waits_ms = [(record.at_s - record.sent_s) * 1000 for p in traffic.producers for record in p.acknowledged]
        tell(f"{leaving.name} had ended {drained_s:.1f} s after SIGTERM; afterwards: {seconds(found)}")
        tell(
            f"longest pause between acknowledgements {longest_gap_s(acks, begun_s):.2f} s, "
            f"between commits {longest_gap_s(commits, begun_s):.2f} s; "
            f"latency p50 {statistics.median(waits_ms):.0f} ms, max {max(waits_ms):.0f} ms"
        )
        commit_errors = [dict(member.commit_errors) for member in traffic.members]
        assignments = [len(member.assignments) for member in traffic.members]
        counts = traffic.finish(staying.kafka)
        tell(
            f"failed {dict(traffic.failed)}, commit errors {commit_errors}, assignments {assignments}, "
            f"read twice by the group {read_twice(traffic.members)}, complaints {traffic.complaints}"
        )
        tell(counts)

        counts.assert_exact()
        assert drained_s < DRAIN_S_MAX
        assert not traffic.failed
        # A commit that is pending at the hand-over gets NOT_COORDINATOR, as from Kafka. librdkafka itself refuses commits while it looks
        # for the new coordinator (_WAIT_COORD), which takes longer on a busy machine.
        expected = {"NOT_COORDINATOR", "_WAIT_COORD"}
        assert all(set(errors) <= expected and errors.get("NOT_COORDINATOR", 0) <= 1 for errors in commit_errors)
        assert read_twice(traffic.members) == 0


def test_the_group_continues_with_its_offsets_after_its_coordinator_is_killed(
    folder: Path, stores: Stores, load_s: float, tell: Tell
) -> None:
    with running(Cluster(folder, stores), *NAMES) as cluster, loaded(cluster) as traffic:
        victim = coordinator(cluster, cluster["one"].kafka)
        staying = other_of(cluster, victim)
        traffic.run_on(load_s)
        before = committed(staying.kafka)
        killed_s = time.monotonic()
        victim.kill()
        found = traffic.resumed(killed_s)

        def commits_again() -> bool:
            return any(at_s > killed_s + 0.5 for member in traffic.members for at_s in member.commits)

        until(commits_again, TIMEOUT_S, "the group commits again")
        commit_s = min(at_s for member in traffic.members for at_s in member.commits if at_s > killed_s + 0.5)
        after = committed(staying.kafka)
        assert coordinator(cluster, staying.kafka) is staying
        victim.start()
        traffic.run_on(load_s)
        counts = traffic.finish(cluster.bootstrap)
        assignments = [len(member.assignments) for member in traffic.members]
        tell(f"coordinator {victim.name} killed; progress after: {seconds(found)}; commits {commit_s - killed_s:.1f} s")
        tell(
            f"committed {sum(before.values()):,} before, {sum(after.values()):,} after; assignments {assignments}, "
            f"read twice by the group {read_twice(traffic.members)}, failed {dict(traffic.failed)}"
        )
        tell(counts)

        counts.assert_exact()
        assert all(after[partition] >= offset for partition, offset in before.items())
        assert max(found.values()) < RESUME_S_MAX
        assert not traffic.failed


def test_a_server_that_was_paused_does_no_harm_when_it_resumes(
    folder: Path, stores: Stores, load_s: float, tell: Tell
) -> None:
    with running(Cluster(folder, stores), *NAMES) as cluster, loaded(cluster, **patience(load_s)) as traffic:
        zombie = coordinator(cluster, cluster["one"].kafka)
        staying = other_of(cluster, zombie)
        stopped_s = time.monotonic()
        zombie.stop_running()
        found = traffic.resumed(stopped_s, STILL_S_MAX)
        until(lambda: coordinator(cluster, staying.kafka) is staying, TIMEOUT_S, "the other one takes the group")
        before = committed(staying.kafka)
        stood_s = time.monotonic() - stopped_s
        zombie.go_on()
        traffic.run_on(load_s)
        again = traffic.resumed(time.monotonic())
        after = committed(staying.kafka)
        assert zombie.is_running
        counts = traffic.finish(cluster.bootstrap)
        tell(
            f"{zombie.name} stood still for {stood_s:.1f} s; progress meanwhile after: {seconds(found)}; "
            f"when it went on: {seconds(again)}"
        )
        tell(
            f"committed {sum(before.values()):,} before it went on, {sum(after.values()):,} after; "
            f"read twice by the group {read_twice(traffic.members)}, failed {dict(traffic.failed)}"
        )
        tell(counts)

        counts.assert_exact()
        assert all(after[partition] >= offset for partition, offset in before.items())
        assert not traffic.failed


def test_a_paused_server_whose_name_was_taken_over_is_fenced_and_ends(
    folder: Path, stores: Stores, load_s: float, tell: Tell
) -> None:
    with running(Cluster(folder, stores), *NAMES) as cluster, loaded(cluster, **patience(load_s)) as traffic:
        zombie = coordinator(cluster, cluster["one"].kafka)
        stopped_s = time.monotonic()
        zombie.stop_running()
        replacement = cluster.add(f"new-{zombie.name}", **{"server.name": zombie.name, "server.zone": zombie.name})
        replacement.start()
        found = traffic.resumed(stopped_s, STILL_S_MAX)
        stood_s = time.monotonic() - stopped_s
        zombie.go_on()
        went_on_s = time.monotonic()
        code = zombie.wait()
        ended_s = time.monotonic() - went_on_s
        traffic.run_on(load_s)
        again = traffic.resumed(time.monotonic())
        counts = traffic.finish(replacement.kafka)
        tell(
            f"{zombie.name} stood still for {stood_s:.1f} s, another took its name; progress after: {seconds(found)}; "
            f"the old one ended {ended_s:.1f} s after it went on, with code {code}; then {seconds(again)}"
        )
        tell(f"read twice by the group {read_twice(traffic.members)}, failed {dict(traffic.failed)}")
        tell(counts)

        counts.assert_exact()
        assert code == Exit.FENCED
        assert not traffic.failed
