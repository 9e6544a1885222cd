"""The consumer: a group member over one Consume call; the call is reopened on another server when its server stops or fails.

The server keeps the membership alive, so the consumer needs no heartbeats between polls. `poll`, `commit` and iteration process
group events. A call of one of them marks the records returned earlier as processed; automatic commits cover only processed
records. Delivery is at least once: a record repeats only after a member fails or leaves without a commit.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

import grpc
import grpc.aio

from bearlake.client.connections import Connections, Pauses
from bearlake.client.errors import CallFailed, TimedOut, Unavailable, call_failed, failure_of_status
from bearlake.client.reader import Place, send
from bearlake.client.records import Record, Start, from_message, position
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer takes part in its group."""

    start: Literal["earliest", "latest"] = "earliest"
    """Where to start in partitions whose committed offset is missing or no longer available."""
    auto_commit: bool = True
    """Commit automatically: every `ClientSettings.auto_commit_ms`, before partitions are revoked, and on close."""
    instance_id: str = ""
    """Name of a static member (KIP-345), which keeps its partitions if it restarts within the session timeout. Empty: dynamic member."""
    client_id: str = ""
    """Name shown in the servers' logs and group descriptions."""
    session_timeout_ms: int = 45_000
    """Time (ms) after which the group considers this member dead when the member's server has failed."""
    rebalance_timeout_ms: int = 60_000
    """Time (ms) that members have to rejoin after the group changes. Call `poll` within half of this time, or of the session timeout
    if that is shorter; otherwise the member loses its partitions."""


class AsyncConsumer:
    """`async with client.consumer("group", "stream") as consumer: async for record in consumer: …`. Use from one task at a time.

    Every method may raise `CallFailed`, after retries for `ClientSettings.delivery_timeout_s` where a retry can help.
    """

    def __init__(
        self, connections: Connections, group: str, streams: tuple[str, ...], options: ConsumerOptions
    ) -> None:
        """Do not call directly; use `AsyncClient.consumer`."""
        self._connections = connections
        self._settings = connections.settings
        self._options = options
        self._join = pb.Join(
            group=group,
            streams=streams,
            from_latest=options.start == "latest",
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.rebalance_timeout_ms,
            instance_id=options.instance_id,
            client_id=options.client_id,
        )
        self._call: Any = None  # grpc's calls are not typed by message
        self._channel: grpc.aio.Channel | None = None
        self._reading: asyncio.Task[pb.ConsumeResponse | None] | None = None
        self._pauses = Pauses(self._settings, self._settings.delivery_timeout_s)
        self._pending: deque[Record] = deque()
        self._unreturned = pb.Credit()
        """Credit for received messages that is not yet returned to the server."""
        self._tags: dict[Place, int] = {}
        """The partitions of this member, each with the tag that its records carry since its last seek."""
        self._positions: dict[Place, int] = {}
        """Next offsets to hand out, where known. They survive a broken call but not a rebalance."""
        self._sought: dict[Place, pb.Position] = {}
        """Seeks after which no record has been handed out yet."""
        self._committed: dict[Place, int] = {}
        self._tag = 0
        self._writing = asyncio.Lock()
        self._is_leaving = self._is_closing = False
        self._commit_at = asyncio.get_running_loop().time() + self._settings.auto_commit_ms / 1000

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(commit=error is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        while (record := self.take()) is None:
            await self.more(None)
        return record

    @property
    def assignment(self) -> list[Place]:
        """Return the (stream, partition) pairs assigned to this member; empty before the first poll."""
        return sorted(self._tags)

    def position(self, stream: str, partition: int) -> int | None:
        """Return the next offset that the consumer will return, or None if unknown."""
        return self._positions.get((stream, partition))

    async def poll(self, timeout_s: float | None = None, records_max: int = 500) -> list[Record]:
        """Return up to `records_max` records of this member's partitions; empty after `timeout_s` (None: wait without limit)."""
        if not self._pending:
            await self.more(timeout_s)
        found: list[Record] = []
        while len(found) < records_max and (record := self.take()) is not None:
            found.append(record)
        return found

    async def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Commit the positions after the returned records, or `offsets`: the next offset to read by (stream, partition).

        Raises:
            Refused: another member may own the partitions now, so the same records may be delivered again.
            Unavailable, TimedOut: the server stopped or did not answer; commit again.
        """
        positions = dict(self._positions if offsets is None else offsets)
        if not positions:
            return
        call = self._call
        if call is None or self._is_leaving:
            raise Unavailable("UNAVAILABLE", "currently not a member of the group", is_retriable=True)
        tag = await self._send_commit(positions)
        until = asyncio.get_running_loop().time() + self._settings.call_timeout_s
        while self._call is call:
            response = await self._next(until)
            if response is None:
                raise TimedOut("DEADLINE_EXCEEDED", "the commit timed out", is_retriable=True)
            if response.WhichOneof("news") == "committed" and response.committed.tag == tag:
                if response.committed.HasField("error"):
                    raise failure_of_status(response.committed.error)
                self._committed.update(positions)
                return
            await self._handle(response)
        raise Unavailable(
            "UNAVAILABLE", "the connection closed before the server answered the commit", is_retriable=True
        )

    async def seek(self, stream: str, partition: int, start: Start) -> None:
        """Continue at `start` in a partition of this member. Raises `ValueError` if the partition is not assigned to this member."""
        place = (stream, partition)
        if place not in self._tags:
            raise ValueError(f"partition {partition} of {stream!r} is not assigned")
        self._positions.pop(place, None)
        if isinstance(start, int):
            self._positions[place] = start
        self._sought[place] = position(stream, partition, start)
        self._pending = deque(record for record in self._pending if (record.stream, record.partition) != place)
        await self._seek([self._sought[place]])

    async def close(self, *, commit: bool = True) -> None:
        """Leave the group, after a final commit if `commit` is set and automatic commits are on. Logs a failed commit."""
        self._is_closing = True
        try:
            if commit and self._options.auto_commit and self._call is not None:
                await self.commit(self._uncommitted())
            if self._call is not None:
                await self._send(None)
                until = asyncio.get_running_loop().time() + self._settings.call_timeout_s
                while await self._next(until) is not None:
                    pass
        except CallFailed as failure:
            _log.warning("cannot commit offsets", extra={"reason": failure.reason or failure.code})
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)
            if self._call is not None:
                self._call.cancel()

    # -- iteration, also used by the blocking client -------------------------------------------------------------------

    async def more(self, timeout_s: float | None) -> None:
        """Wait until records are available or `timeout_s` has passed."""
        loop = asyncio.get_running_loop()
        until = None if timeout_s is None else loop.time() + timeout_s
        if self._options.auto_commit and loop.time() >= self._commit_at and self._call is not None:
            self._commit_at = loop.time() + self._settings.auto_commit_ms / 1000
            if positions := self._uncommitted():
                await self._send_commit(positions)
                self._committed.update(positions)
        while not self._pending:
            if self._unreturned.messages and self._call is not None:
                await self._send(pb.ConsumeRequest(credit=self._unreturned))
                self._unreturned.Clear()
            response = await self._next(until)
            if response is None:
                return
            await self._handle(response)

    def take(self) -> Record | None:
        """Return the next buffered record, or None."""
        if not self._pending:
            return None
        record = self._pending.popleft()
        place = (record.stream, record.partition)
        self._positions[place] = record.offset + 1
        if self._sought:
            self._sought.pop(place, None)
        return record

    # -- group events --------------------------------------------------------------------------------------------------

    async def _next(self, until: float | None) -> pb.ConsumeResponse | None:
        """Return the server's next message; None on timeout or when the server has closed our call. Raises `CallFailed`."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        left_s = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait({self._reading}, timeout=left_s)
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    async def _read(self) -> pb.ConsumeResponse | None:
        """Return the next message of this server, or of another server if this one stops; None after our own close. Raises `CallFailed`."""
        while True:
            try:
                if self._call is None:
                    self._channel = self._connections.channel()
                    self._call = self._connections.open(self._channel, methods.CONSUME)
                    self._is_leaving = False
                    self._unreturned.Clear()
                    credit = pb.Credit(bytes=self._settings.read_bytes, messages=self._settings.read_messages)
                    await self._write(self._call, pb.ConsumeRequest(join=self._join, credit=credit))
                if (answer := await self._call.read()) is not grpc.aio.EOF:
                    self._pauses.reset()
                    response: pb.ConsumeResponse = answer
                    return response
                self._call = None
                if self._is_closing:
                    return None
                self._move_on()
            except grpc.aio.AioRpcError as error:
                self._call = None
                failure = call_failed(error)
                if self._is_closing:
                    return None
                if not failure.is_retriable:
                    raise failure from error
                self._move_on()
                await self._pauses.wait(failure)

    def _move_on(self) -> None:
        if self._channel is not None:
            self._connections.move_on(self._channel)

    async def _handle(self, response: pb.ConsumeResponse) -> None:
        match response.WhichOneof("news"):
            case "assigned":
                await self._begin(response.assigned)
            case "records":
                self._receive(response.records)
            case "revoked":
                await self._send(pb.ConsumeRequest(commit=self._last_commit(), released=True))
                self._forget()
                self._positions.clear()
                self._sought.clear()
            case "committed" if response.committed.HasField("error"):
                failure = failure_of_status(response.committed.error)
                _log.warning("cannot commit offsets", extra={"reason": failure.reason})
                self._committed.clear()
            case "drain":
                await self._send(pb.ConsumeRequest(commit=self._last_commit()))
                await self._send(None)
                self._is_leaving = True
                self._forget()

    async def _begin(self, assigned: pb.Assigned) -> None:
        self._forget()
        self._committed = {(item.stream, item.partition): item.offset for item in assigned.positions}
        self._tags = dict.fromkeys(self._committed, 0)
        ahead = {
            place: at for place, at in self._positions.items() if place in self._tags and at > self._committed[place]
        }
        self._positions = {**self._committed, **ahead}
        places = {place: position(*place, at) for place, at in ahead.items()}  # handed out before the call broke
        places |= {place: item for place, item in self._sought.items() if place in self._tags}
        if places:
            await self._seek(list(places.values()))

    def _receive(self, answer: pb.FetchResponse) -> None:
        if answer.HasField("error"):
            raise failure_of_status(answer.error)
        place = (answer.stream, answer.partition)
        self._unreturned.bytes += answer.credit_bytes
        self._unreturned.messages += 1
        if not self._is_leaving and self._tags.get(place) == answer.tag:
            self._pending.extend(from_message(item, *place) for item in answer.payload.records.records)

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _send(self, message: pb.ConsumeRequest | None) -> None:
        """Send a message, or None to close our side. A failed send is reported by the next read.

        The write is shielded from the caller's cancellation, because gRPC cancels the whole call when a write is cancelled.
        """
        await asyncio.shield(self._write(self._call, message))

    async def _write(self, call: Any, message: pb.ConsumeRequest | None) -> None:
        async with self._writing:  # gRPC allows one write at a time
            with contextlib.suppress(grpc.aio.AioRpcError):
                await send(call, message)

    async def _send_commit(self, positions: Mapping[Place, int]) -> int:
        message = self._commit(positions)
        await self._send(pb.ConsumeRequest(commit=message))
        return message.tag

    async def _seek(self, positions: list[pb.Position]) -> None:
        for item in positions:
            item.tag = self._tags[item.stream, item.partition] = self._next_tag()
        await self._send(pb.ConsumeRequest(seek=positions))

    def _commit(self, positions: Mapping[Place, int]) -> pb.Commit:
        offsets = [
            pb.GroupOffset(stream=stream, partition=index, offset=at) for (stream, index), at in positions.items()
        ]
        return pb.Commit(tag=self._next_tag(), offsets=offsets)

    def _last_commit(self) -> pb.Commit | None:
        """Return the commit to send before partitions are revoked, if any."""
        positions = self._uncommitted() if self._options.auto_commit else {}
        return self._commit(positions) if positions else None

    def _next_tag(self) -> int:
        self._tag += 1
        return self._tag

    def _uncommitted(self) -> dict[Place, int]:
        return {place: at for place, at in self._positions.items() if self._committed.get(place) != at}

    def _forget(self) -> None:
        """Drop records that are not handed out yet; they are delivered again, here or to another member."""
        self._pending.clear()
        self._tags = {}
