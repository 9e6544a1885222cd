"""Consumer groups that Kafka, REST and gRPC share within one process: committed offsets go from one to the other, and the partitions
of a stream are divided among members of all three."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from bearlake.client import Client
from fixtures.group_members import MEMBERS, GroupMember
from fixtures.protocol_clients import Addresses
from fixtures.server_process import started

pytestmark = pytest.mark.integration

RECORD_COUNT = 6
STEP_COUNT_MAX = 400
"""Steps of up to 0.1 s each."""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    folder = tmp_path_factory.mktemp("groups")
    words = ("up", "--data-dir", folder / "data", "--no-tour")
    with started(*words, ready_file=folder / "ready.json") as server:
        rest = str(server.ready["rest"]).removeprefix("http://")
        yield Addresses(kafka=server.kafka, rest=rest, grpc=str(server.ready["grpc"]))


def fill(client: Client, stream: str, partition_count: int) -> None:
    """Six records per partition, `partition-offset`."""
    with client.producer() as producer:
        for partition in range(partition_count):
            for offset in range(RECORD_COUNT):
                producer.send(stream, b"%d-%d" % (partition, offset), partition=partition)


def step_until(member: GroupMember, is_enough: Callable[[], bool]) -> None:
    for _ in range(STEP_COUNT_MAX):
        if is_enough():
            return
        member.step()
    raise AssertionError(f"not enough: {sorted(member.values)}, assigned {member.assigned()}")


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(MEMBERS, 2)))
def test_a_group_continues_in_another_protocol_at_its_committed_offsets(at: Addresses, first: str, second: str) -> None:
    stream = f"from-{first}-to-{second}"
    with Client(at.grpc) as client:
        client.create_stream(stream)
        fill(client, stream, 1)
    first_member = MEMBERS[first](at, stream, stream)
    step_until(first_member, lambda: len(first_member.values) >= RECORD_COUNT // 2)
    first_member.commit(0, RECORD_COUNT // 2)
    first_member.leave()
    second_member = MEMBERS[second](at, stream, stream)
    rest = RECORD_COUNT - RECORD_COUNT // 2
    step_until(second_member, lambda: len(second_member.values) >= rest)
    second_member.commit(0, RECORD_COUNT)
    second_member.leave()

    assert second_member.values == {(0, offset): b"0-%d" % offset for offset in range(RECORD_COUNT // 2, RECORD_COUNT)}

    again = MEMBERS[first](at, stream, stream)
    step_until(again, lambda: again.assigned() == {0})
    with Client(at.grpc) as client, client.producer() as producer:
        producer.send(stream, b"the next", partition=0)
    step_until(again, lambda: bool(again.values))
    again.leave()

    assert again.values == {(0, RECORD_COUNT): b"the next"}


@pytest.mark.timeout(180)
def test_members_of_three_protocols_divide_the_partitions_of_a_stream(at: Addresses) -> None:
    partition_count = 6
    with Client(at.grpc) as client:
        client.create_stream("divided", partition_count=partition_count)
        members = [member(at, "divided", "divided") for member in MEMBERS.values()]
        together(members, lambda: all(len(member.assigned()) == 2 for member in members))
        fill(client, "divided", partition_count)
        together(members, lambda: sum(len(member.values) for member in members) >= partition_count * RECORD_COUNT)
    shares = [member.assigned() for member in members]
    with ThreadPoolExecutor(len(members)) as threads:
        list(threads.map(lambda member: member.leave(), members))

    assert sorted(partition for share in shares for partition in share) == list(range(partition_count))
    for member, share in zip(members, shares, strict=True):
        assert member.values == {
            (partition, offset): b"%d-%d" % (partition, offset) for partition in share for offset in range(RECORD_COUNT)
        }


def together(members: Sequence[GroupMember], is_enough: Callable[[], bool]) -> None:
    """Let all members take part at once, round by round, since a rebalance needs each member."""
    with ThreadPoolExecutor(len(members)) as threads:
        for _ in range(STEP_COUNT_MAX):
            if is_enough():
                return
            list(threads.map(lambda member: member.step(), members))
    raise AssertionError([(sorted(member.values), member.assigned()) for member in members])
