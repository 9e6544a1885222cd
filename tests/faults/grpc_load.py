"""Load over gRPC with plain synchronous grpcio: unary Produce, ProduceStream, Fetch and Consume, each in its own thread.

A client knows several servers (`ipv4:a,b`, the library's own choice) and changes servers as the protocol requires: when its call gets
Drain, it closes its side and opens a new call; the library handles connections (GOAWAY). Every status except OK is counted.
"""

import queue
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import grpc
from typing_extensions import override

from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.methods import Method
from bearlake.protocols.grpc.proto import stream_pb2 as pb
from faults.checking import Acknowledged, Name, Read, name_of
from faults.load import Client
from faults.waiting import pause

PLENTY = pb.Credit(bytes=1 << 40, messages=1 << 30)
TIMEOUT_S = 60.0
RETRY_S = 0.05
WINDOW_COUNT = 16
"""Batches in flight in a ProduceStream call."""


class GrpcClient(Client):
    """A thread with a channel to several servers."""

    def __init__(self, name: str, addresses: Sequence[str]) -> None:
        super().__init__(name, "", "", {})
        self._channel = grpc.insecure_channel("ipv4:" + ",".join(addresses), [("grpc.use_local_subchannel_pool", 1)])
        self.statuses: Counter[str] = Counter()
        """Calls that ended with another status than OK."""
        self.drains = 0
        """Calls that got Drain."""
        self.call_count = 0

    def unary(self, method: Method[Any, Any], request: Any) -> Any:
        """Make a unary call and count it. Raises `grpc.RpcError`."""
        self.call_count += 1
        multi = self._channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return multi(request, timeout=TIMEOUT_S)

    def open(self, method: Method[Any, Any], requests: "queue.SimpleQueue[Any]") -> Any:
        """A call with two streams; None in `requests` closes the client's side."""
        self.call_count += 1
        multi = self._channel.stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        return multi(iter(requests.get, None))

    def note(self, error: grpc.RpcError) -> None:
        """Count the error's status, and pause."""
        assert isinstance(error, grpc.Call)
        self.statuses[f"{error.code().name}: {error.details()}"] += 1
        pause(RETRY_S)

    @override
    def run(self) -> None:
        while self.goes_on:
            try:
                self.work()
            except grpc.RpcError as error:
                self.note(error)
        self._channel.close()

    def work(self) -> None:
        """Make one call, or several."""
        raise NotImplementedError


class UnaryProducer(GrpcClient):
    """Produce one record per call, to all partitions in turn."""

    def __init__(self, name: str, addresses: Sequence[str], stream: str, partition_count: int) -> None:
        super().__init__(name, addresses)
        self._stream = stream
        self._partition_count = partition_count
        self.acknowledged: list[Acknowledged] = []
        self.failed: dict[Name, str] = {}
        self.sent_count = 0

    @property
    def unknown(self) -> set[Name]:
        """Names that were sent and not acknowledged."""
        return {Name(self.name, at) for at in range(self.sent_count)} - {record.name for record in self.acknowledged}

    def request(self, number: int) -> dict[str, Any]:
        """Return the fields of the request for record `number`."""
        partition = number % self._partition_count
        value = b"%s.%d.%d" % (self.name.encode(), number, partition)
        payload = pb.Payload(records=pb.Records(records=[pb.Record(value=value)]))
        return {"stream": self._stream, "partition": partition, "payload": payload}

    @override
    def work(self) -> None:
        number = self.sent_count
        self.sent_count += 1
        sent_s = time.monotonic()
        answer = self.unary(methods.PRODUCE, pb.ProduceRequest(**self.request(number)))
        self._acknowledge(number, answer.base_offset, sent_s)
        pause(0.005)

    def _acknowledge(self, number: int, offset: int, sent_s: float) -> None:
        partition = number % self._partition_count
        name = Name(self.name, number)
        self.acknowledged.append(Acknowledged(partition, offset, name, sent_s, time.monotonic()))


class StreamProducer(UnaryProducer):
    """Makes one ProduceStream call after another, with a window of batches; batches that a call has not acknowledged are not resent."""

    @override
    def work(self) -> None:
        outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()
        call = self.open(methods.PRODUCE_STREAM, outgoing)
        waiting: list[tuple[int, float]] = []
        is_open = True

        def send() -> None:
            number = self.sent_count
            self.sent_count += 1
            waiting.append((number, time.monotonic()))
            outgoing.put(pb.ProduceStreamRequest(**self.request(number)))

        for _ in range(WINDOW_COUNT):
            send()
        try:
            for answer in call:
                for offset in answer.base_offsets:
                    self._acknowledge(*_with(waiting.pop(0), offset))
                if answer.HasField("drain"):
                    self.drains += 1
                if is_open and (answer.HasField("drain") or not self.goes_on):
                    outgoing.put(None)
                    is_open = False
                while is_open and len(waiting) < WINDOW_COUNT:
                    send()
        finally:
            outgoing.put(None)
        if waiting:
            self.statuses["OK, with batches that were not acknowledged"] += 1


class Asker(GrpcClient):
    """Repeatedly asks for a description of the stream: many short calls, so that every moment of a drain is covered."""

    def __init__(self, name: str, addresses: Sequence[str], stream: str) -> None:
        super().__init__(name, addresses)
        self._stream = stream
        self.answered = 0

    @override
    def work(self) -> None:
        self.unary(methods.DESCRIBE_STREAM, pb.DescribeStreamRequest(name=self._stream))
        self.answered += 1


class FetchReader(GrpcClient):
    """Reads all partitions from the start and keeps its own positions."""

    def __init__(self, name: str, addresses: Sequence[str], stream: str, partition_count: int) -> None:
        super().__init__(name, addresses)
        self._stream = stream
        self._next = dict.fromkeys(range(partition_count), 0)
        self.read: list[Read] = []
        self._outgoing: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @override
    def begin_stop(self) -> None:
        super().begin_stop()
        self._outgoing.put(None)

    @override
    def work(self) -> None:
        outgoing = self._outgoing = queue.SimpleQueue()
        assign = [pb.Position(stream=self._stream, partition=at, offset=offset) for at, offset in self._next.items()]
        outgoing.put(pb.FetchRequest(assign=assign, credit=PLENTY))
        if not self.goes_on:
            outgoing.put(None)
        for answer in self.open(methods.FETCH, outgoing):
            if answer.HasField("drain"):
                self.drains += 1
                outgoing.put(None)
            self.take(answer)
        outgoing.put(None)

    def take(self, answer: Any) -> None:
        """Remember the records of a message."""
        now_s = time.monotonic()
        records = answer.payload.records.records
        self.read += [Read(answer.partition, record.offset, name_of(record.value), now_s) for record in records]
        if records:
            self._next[answer.partition] = answer.next_offset


class GrpcMember(FetchReader):
    """A member of a group that commits each message. After it has left, it ignores messages, because it cannot commit them."""

    def __init__(self, name: str, addresses: Sequence[str], stream: str, group: str) -> None:
        super().__init__(name, addresses, stream, 0)
        self._group = group
        self.assignments: list[tuple[float, list[int]]] = []
        self._is_leaving = False
        self.commit_errors: Counter[str] = Counter()

    @override
    def work(self) -> None:
        outgoing = self._outgoing = queue.SimpleQueue()
        self._is_leaving = False
        join = pb.Join(group=self._group, streams=[self._stream], session_timeout_ms=6_000)
        outgoing.put(pb.ConsumeRequest(join=join, credit=PLENTY))
        if not self.goes_on:
            outgoing.put(None)
        try:
            for news in self.open(methods.CONSUME, outgoing):
                self._hear(news, outgoing)
        finally:
            outgoing.put(None)

    def _hear(self, news: Any, outgoing: "queue.SimpleQueue[Any]") -> None:
        kind = news.WhichOneof("news")
        if kind == "assigned":
            self.assignments.append(
                (time.monotonic(), sorted(position.partition for position in news.assigned.positions))
            )
        elif kind == "revoked":
            outgoing.put(pb.ConsumeRequest(released=True))
        elif kind == "drain":
            self.drains += 1
            self._is_leaving = True
            outgoing.put(None)
        elif kind == "committed" and news.committed.HasField("error"):
            self.commit_errors[news.committed.error.message] += 1
        elif kind == "records" and self.goes_on and not self._is_leaving:
            self.take(news.records)
            place = pb.GroupOffset(
                stream=self._stream, partition=news.records.partition, offset=news.records.next_offset
            )
            outgoing.put(pb.ConsumeRequest(commit=pb.Commit(tag=1, offsets=[place])))


def _with(sent: tuple[int, float], offset: int) -> tuple[int, int, float]:
    return sent[0], offset, sent[1]
