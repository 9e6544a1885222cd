"""Consume: members of one group over gRPC and over Kafka, commits, rebalances."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from aiokafka import AIOKafkaConsumer

from bearlake.metadata.model import Server
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from bearlake.protocols.kafka.server import KafkaServer
from bearlake.protocols.kafka.settings import KafkaSettings
from bearlake.serving.listener import ListenerSettings, open_listener
from bearlake.serving.membership import RegisteredServer
from fixtures.grpc_server import GrpcNode, MakeGrpc
from fixtures.kafka_server import batch_of
from fixtures.waiting import WAIT_S

PLENTY = pb.Credit(bytes=1 << 40, messages=1 << 20)


class GroupMember:
    """A member that the test controls; it keeps what it received."""

    def __init__(self, node: GrpcNode, streams: list[str], **join: Any) -> None:
        self.call = node.open(methods.CONSUME)
        self.join = pb.Join(group="g", streams=streams, session_timeout_ms=60_000, rebalance_timeout_ms=60_000, **join)
        self.assigned: set[tuple[str, int]] | None = None
        self.starts: dict[tuple[str, int], int] = {}
        self.next: dict[tuple[str, int], int] = {}
        self.values: list[bytes] = []

    async def start(self) -> "GroupMember":
        await self.call.write(pb.ConsumeRequest(join=self.join, credit=PLENTY))
        return self

    async def step(self) -> str:
        """Take one message, and answer it if it requires an answer; returns its kind."""
        news = await self.call.read()
        assert news is not grpc.aio.EOF
        kind = news.WhichOneof("news")
        if kind == "assigned":
            self.starts = {(item.stream, item.partition): item.offset for item in news.assigned.positions}
            self.assigned = set(self.starts)
        elif kind == "revoked":
            self.assigned = set()
            await self.call.write(pb.ConsumeRequest(released=True))
        elif kind == "records":
            assert (news.records.stream, news.records.partition) in (self.assigned or ())
            self.values += [item.value for item in news.records.payload.records.records]
            self.next[news.records.stream, news.records.partition] = news.records.next_offset
        elif kind == "committed":
            assert not news.committed.HasField("error"), news
        return str(kind)

    async def until(self, what: str) -> None:
        while await self.step() != what:
            pass

    async def commit(self) -> None:
        mine = {place: self.next[place] for place in self.assigned or () if place in self.next}
        offsets = [pb.GroupOffset(stream=name, partition=at, offset=to) for (name, at), to in mine.items()]
        await self.call.write(pb.ConsumeRequest(commit=pb.Commit(tag=1, offsets=offsets)))
        await self.until("committed")

    async def stop(self) -> None:
        await self.call.done_writing()
        while await self.call.read() is not grpc.aio.EOF:
            pass


async def fill(node: GrpcNode, partition_count: int, *values: bytes) -> None:
    for partition in range(partition_count):
        payload = pb.Payload(record_batches=batch_of(*(b"%d-%s" % (partition, value) for value in values)))
        await node.call(methods.PRODUCE, pb.ProduceRequest(stream="one", partition=partition, payload=payload))


async def test_a_member_continues_at_the_committed_offsets_of_its_group(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    await fill(grpc_node, 1, b"a", b"b")
    first = await GroupMember(grpc_node, ["one"]).start()
    await first.until("records")
    await first.commit()
    await first.stop()

    await fill(grpc_node, 1, b"c")
    second = await GroupMember(grpc_node, ["one"]).start()
    await second.until("records")
    await second.stop()

    assert first.starts == {("one", 0): 0}
    assert first.values == [b"0-a", b"0-b"]
    assert second.starts == {("one", 0): 2}
    assert second.values == [b"0-c"]


async def test_a_new_group_may_begin_at_the_end(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    await fill(grpc_node, 1, b"a")

    member = await GroupMember(grpc_node, ["one"], from_latest=True).start()
    await member.until("assigned")
    await member.stop()

    assert member.starts == {("one", 0): 1}


async def test_partitions_are_divided_and_taken_back(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one", 4)
    first = await GroupMember(grpc_node, ["one"]).start()
    await first.until("assigned")
    assert len(first.starts) == 4

    second = await GroupMember(grpc_node, ["one"]).start()
    await asyncio.gather(first.until("revoked"), second.until("assigned"))
    await first.until("assigned")
    shared = first.assigned, second.assigned
    await second.stop()
    await first.until("revoked")
    await first.until("assigned")
    await first.stop()

    assert shared[0] is not None
    assert shared[1] is not None
    assert (len(shared[0]), len(shared[1])) == (2, 2)
    assert len(shared[0] | shared[1]) == 4
    assert len(first.starts) == 4


async def test_a_member_that_does_not_answer_cannot_commit_what_it_has_lost(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one", 2)
    slow = GroupMember(grpc_node, ["one"])
    slow.join.rebalance_timeout_ms = 100
    await slow.start()
    await slow.until("assigned")
    other = await GroupMember(grpc_node, ["one"]).start()

    async def news(kind: str) -> Any:
        """The messages to the slow member, which it does not answer."""
        while (told := await slow.call.read()).WhichOneof("news") != kind:
            assert told is not grpc.aio.EOF
        return getattr(told, kind)

    assigned, _ = await asyncio.gather(news("assigned"), other.until("assigned"))
    (kept,) = (item.partition for item in assigned.positions)
    answers = []
    for partition in (kept, 1 - kept):
        offset = pb.GroupOffset(stream="one", partition=partition, offset=0)
        await slow.call.write(pb.ConsumeRequest(commit=pb.Commit(tag=partition, offsets=[offset])))
        answers.append(await news("committed"))
    await slow.stop()
    await other.stop()

    assert [answer.tag for answer in answers] == [kept, 1 - kept]
    assert [answer.error.code for answer in answers] == [0, grpc.StatusCode.ABORTED.value[0]]


async def test_a_member_continues_at_the_position_that_it_seeks(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    await fill(grpc_node, 1, b"a", b"b")
    member = await GroupMember(grpc_node, ["one"]).start()
    await member.until("records")

    gone = pb.Position(stream="one", partition=7, earliest=True)
    back = pb.Position(stream="one", offset=1, tag=5)
    await member.call.write(pb.ConsumeRequest(seek=[gone, back]))
    answer = await member.call.read()
    await member.stop()

    assert answer.records.tag == 5
    assert [record.value for record in answer.records.payload.records.records] == [b"0-b"]


@pytest.mark.parametrize(
    ("join", "code"),
    [
        (pb.Join(), grpc.StatusCode.INVALID_ARGUMENT),
        (pb.Join(group="g", streams=["none"]), grpc.StatusCode.NOT_FOUND),
        (pb.Join(group="g", streams=["one"], session_timeout_ms=1), grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_wrong_members_are_refused(grpc_node: GrpcNode, join: pb.Join, code: grpc.StatusCode) -> None:
    await grpc_node.create("one")
    call = grpc_node.open(methods.CONSUME)

    await call.write(pb.ConsumeRequest(join=join))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()

    assert caught.value.code() is code


async def test_members_at_two_servers_share_a_group(grpc_cluster: MakeGrpc) -> None:
    pair = await grpc_cluster(2)
    await pair[0].create("one", 4)
    await fill(pair[0], 4, b"a")
    for node in pair.nodes:
        await node.member.refresh()
    first = await GroupMember(pair[0], ["one"]).start()
    await first.until("assigned")
    second = await GroupMember(pair[1], ["one"]).start()
    await asyncio.gather(first.until("revoked"), second.until("assigned"))
    await first.until("assigned")
    while len(second.values) < 2:
        await second.step()
    await second.commit()
    committed = await pair[0].streams.groups.offsets("g")
    held = [node.streams.coordinator.has("g") for node in pair.nodes]
    await asyncio.gather(first.stop(), second.stop())

    assert (first.assigned or set()) | (second.assigned or set()) == {("one", index) for index in range(4)}
    assert sorted(value.offset for value in committed.values()) == [1, 1]
    assert sorted(held) == [False, True]


async def test_a_draining_server_notifies_its_members(grpc_node: GrpcNode) -> None:
    await grpc_node.create("one")
    member = await GroupMember(grpc_node, ["one"]).start()
    await member.until("assigned")

    draining = asyncio.create_task(grpc_node.server.drain(3_000))
    await member.until("drain")
    await member.stop()
    await draining

    assert await member.call.code() is grpc.StatusCode.OK


class WithKafka:
    """The server's membership as if it had also registered with its Kafka listener, as `bearlake up` does."""

    version = 0

    def __init__(self, member: RegisteredServer, address: str) -> None:
        self._member = member
        self._address = address
        self.cluster_id = member.cluster_id
        self.node_id = member.node_id

    def live(self) -> list[Server]:
        (own,) = self._member.live()
        return [replace(own, endpoints={**own.endpoints, "kafka": self._address})]


@pytest.fixture
async def kafka_address(grpc_node: GrpcNode) -> AsyncIterator[str]:
    """A Kafka server on the same stream service, as in `bearlake up`."""
    listener = open_listener(ListenerSettings(), "kafka")
    members = WithKafka(grpc_node.member, listener.address)
    server = KafkaServer(grpc_node.streams, members, KafkaSettings(), [listener])
    await server.start()
    yield listener.address
    await server.close()


async def test_a_group_is_shared_with_kafka_clients(grpc_node: GrpcNode, kafka_address: str) -> None:
    await grpc_node.create("one", 4)
    await fill(grpc_node, 4, b"a")
    member = await GroupMember(grpc_node, ["one"]).start()
    while len(member.values) < 4:
        await member.step()
    await member.commit()

    consumer = AIOKafkaConsumer(
        "one", bootstrap_servers=kafka_address, group_id="g", session_timeout_ms=60_000, heartbeat_interval_ms=200,
        enable_auto_commit=False, auto_offset_reset="earliest",
    )  # fmt: skip
    joining = asyncio.create_task(consumer.start())
    await member.until("revoked")
    await member.until("assigned")
    await joining
    theirs = {item.partition for item in consumer.assignment()}
    mine = {partition for _, partition in member.assigned or ()}
    await fill(grpc_node, 4, b"b")
    got = [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in theirs]
    while len(member.values) < 4 + len(mine):
        await member.step()
    await consumer.commit()
    await consumer.stop()
    await member.commit()
    await member.until("revoked")
    await member.until("assigned")
    await member.stop()

    assert (len(theirs), len(mine)) == (2, 2)
    assert theirs | mine == {0, 1, 2, 3}
    assert sorted(got) == sorted(b"%d-b" % partition for partition in theirs)
    assert sorted(member.values[4:]) == sorted(b"%d-b" % partition for partition in mine)
    assert set(member.starts.values()) == {2}
