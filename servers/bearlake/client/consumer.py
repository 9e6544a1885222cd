"""The consumer: a member of a group, over one Consume call, opened again elsewhere when its server goes or fails.

The server keeps the membership alive, so there is nothing to do between two polls. News of the group are dealt with inside of `poll`,
`commit` and iteration: what these have handed out before counts as done when they are called again, and only that is committed by
itself. So every record is handed out at least once; again only after a member has failed, or left without a commit.
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
from bearlake.client.reader import Place, tell
from bearlake.client.records import Record, Start, from_message, position
from bearlake.protocols.grpc import methods
from bearlake.protocols.grpc.proto import stream_pb2 as pb

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer takes part in its group."""

    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin in partitions without a committed offset, or whose committed offset is gone."""
    auto_commit: bool = True
    """Commit by itself: every `ClientSettings.auto_commit_ms`, before partitions are given up, and at the end."""
    instance_id: str = ""
    """A name that makes the member a static one: it keeps its partitions over a restart within the session timeout (KIP-345)."""
    client_id: str = ""
    """A name for the servers' logs and group descriptions."""
    session_timeout_ms: int = 45_000
    """Time (ms) after which the group takes this member for gone when its server is."""
    rebalance_timeout_ms: int = 60_000
    """Time (ms) that members have to join again when the group changes. `poll` has to be called within half of this, or of the session
    timeout if that is shorter; who is later loses the partitions."""


class AsyncConsumer:
    """`async with client.consumer("group", "stream") as consumer: async for record in consumer: …`. Used by one task at a time.

    Every method raises `CallFailed`; what could be retried was, for `ClientSettings.delivery_timeout_s`.
    """

    def __init__(
        self, connections: Connections, group: str, streams: tuple[str, ...], options: ConsumerOptions
    ) -> None:
        """Use `AsyncClient.consumer`."""
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
        self._owed = pb.Credit()
        """What was received, for which the server has no new credit yet."""
        self._tags: dict[Place, int] = {}
        """The partitions of this member, and what their records carry since the last seek."""
        self._positions: dict[Place, int] = {}
        """Next offsets to hand out, as far as they are known. They outlive a call that breaks, not a division of the group."""
        self._sought: dict[Place, pb.Position] = {}
        """Seeks that no record was handed out since."""
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
        """(stream, partition) of all that this member has now; empty before the first poll."""
        return sorted(self._tags)

    def position(self, stream: str, partition: int) -> int | None:
        """The next offset to hand out, if it is known."""
        return self._positions.get((stream, partition))

    async def poll(self, timeout_s: float | None = None, records_max: int = 500) -> list[Record]:
        """Records of this member's partitions, at most `records_max`; none when the time (s; None: no end) is over."""
        if not self._pending:
            await self.more(timeout_s)
        found: list[Record] = []
        while len(found) < records_max and (record := self.take()) is not None:
            found.append(record)
        return found

    async def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Remember for the group what was handed out, or these offsets: next ones to read, by (stream, partition).

        Raises:
            Refused: the partitions are not this member's any more: others may have handed the same records out.
            Unavailable, TimedOut: the server has gone, or did not answer; commit again.
        """
        wanted = dict(self._positions if offsets is None else offsets)
        if not wanted:
            return
        call = self._call
        if call is None or self._is_leaving:
            raise Unavailable("UNAVAILABLE", "not a member of the group at this moment", is_retriable=True)
        tag = await self._send_commit(wanted)
        until = asyncio.get_running_loop().time() + self._settings.call_timeout_s
        while self._call is call:
            news = await self._next(until)
            if news is None:
                raise TimedOut("DEADLINE_EXCEEDED", "no answer to a commit", is_retriable=True)
            if news.WhichOneof("news") == "committed" and news.committed.tag == tag:
                if news.committed.HasField("error"):
                    raise failure_of_status(news.committed.error)
                self._committed.update(wanted)
                return
            await self._hear(news)
        raise Unavailable("UNAVAILABLE", "the server went before it answered a commit", is_retriable=True)

    async def seek(self, stream: str, partition: int, start: Start) -> None:
        """Go on elsewhere in a partition of this member. Raises `ValueError` if it is none."""
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
        """Commit, if that is automatic and wanted, and leave the group."""
        self._is_closing = True
        try:
            if commit and self._options.auto_commit and self._call is not None:
                await self.commit(self._uncommitted())
            if self._call is not None:
                await self._tell(None)
                until = asyncio.get_running_loop().time() + self._settings.call_timeout_s
                while await self._next(until) is not None:
                    pass
        except CallFailed as failure:
            _log.warning("offsets were not committed", extra={"reason": failure.reason or failure.code})
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)
            if self._call is not None:
                self._call.cancel()

    # -- for iteration, also without asyncio ---------------------------------------------------------------------------

    async def more(self, timeout_s: float | None) -> None:
        """Wait until there are records, or the time (s) is over."""
        loop = asyncio.get_running_loop()
        until = None if timeout_s is None else loop.time() + timeout_s
        if self._options.auto_commit and loop.time() >= self._commit_at and self._call is not None:
            self._commit_at = loop.time() + self._settings.auto_commit_ms / 1000
            if wanted := self._uncommitted():
                await self._send_commit(wanted)
                self._committed.update(wanted)
        while not self._pending:
            if self._owed.messages and self._call is not None:
                await self._tell(pb.ConsumeRequest(credit=self._owed))
                self._owed.Clear()
            news = await self._next(until)
            if news is None:
                return
            await self._hear(news)

    def take(self) -> Record | None:
        """Hand one record out, if there is one."""
        if not self._pending:
            return None
        record = self._pending.popleft()
        place = (record.stream, record.partition)
        self._positions[place] = record.offset + 1
        if self._sought:
            self._sought.pop(place, None)
        return record

    # -- news ----------------------------------------------------------------------------------------------------------

    async def _next(self, until: float | None) -> pb.ConsumeResponse | None:
        """What the server says next; None when the time is over, or when it has ended our call for us. Raises `CallFailed`."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        left_s = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait({self._reading}, timeout=left_s)
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    async def _read(self) -> pb.ConsumeResponse | None:
        """What the server says next, or another one when it goes; None behind our own end. Raises `CallFailed`."""
        while True:
            try:
                if self._call is None:
                    self._channel = self._connections.channel()
                    self._call = self._connections.open(self._channel, methods.CONSUME)
                    self._is_leaving = False
                    self._owed.Clear()
                    credit = pb.Credit(bytes=self._settings.read_bytes, messages=self._settings.read_messages)
                    await self._write(self._call, pb.ConsumeRequest(join=self._join, credit=credit))
                if (news := await self._call.read()) is not grpc.aio.EOF:
                    self._pauses.reset()
                    said: pb.ConsumeResponse = news
                    return said
                self._call = None
                if self._is_closing:
                    return None
                self._turn_away()
            except grpc.aio.AioRpcError as error:
                self._call = None
                failure = call_failed(error)
                if self._is_closing:
                    return None
                if not failure.is_retriable:
                    raise failure from error
                self._turn_away()
                await self._pauses.wait(failure)

    def _turn_away(self) -> None:
        if self._channel is not None:
            self._connections.turn_away(self._channel)

    async def _hear(self, news: pb.ConsumeResponse) -> None:
        match news.WhichOneof("news"):
            case "assigned":
                await self._begin(news.assigned)
            case "records":
                self._receive(news.records)
            case "revoked":
                await self._tell(pb.ConsumeRequest(commit=self._last_commit(), released=True))
                self._forget()
                self._positions.clear()
                self._sought.clear()
            case "committed" if news.committed.HasField("error"):
                failure = failure_of_status(news.committed.error)
                _log.warning("offsets were not committed", extra={"reason": failure.reason})
                self._committed.clear()
            case "drain":
                await self._tell(pb.ConsumeRequest(commit=self._last_commit()))
                await self._tell(None)
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
        self._owed.bytes += answer.credit_bytes
        self._owed.messages += 1
        if not self._is_leaving and self._tags.get(place) == answer.tag:
            self._pending.extend(from_message(item, *place) for item in answer.payload.records.records)

    # -- what is said --------------------------------------------------------------------------------------------------

    async def _tell(self, message: pb.ConsumeRequest | None) -> None:
        """Send a message, or None to close our side. When that fails, reading says why.

        It goes out also when the caller is cancelled: a write that is cancelled would take its whole call with it.
        """
        await asyncio.shield(self._write(self._call, message))

    async def _write(self, call: Any, message: pb.ConsumeRequest | None) -> None:
        async with self._writing:  # gRPC takes one at a time
            with contextlib.suppress(grpc.aio.AioRpcError):
                await tell(call, message)

    async def _send_commit(self, wanted: Mapping[Place, int]) -> int:
        message = self._commit(wanted)
        await self._tell(pb.ConsumeRequest(commit=message))
        return message.tag

    async def _seek(self, positions: list[pb.Position]) -> None:
        for item in positions:
            item.tag = self._tags[item.stream, item.partition] = self._next_tag()
        await self._tell(pb.ConsumeRequest(seek=positions))

    def _commit(self, wanted: Mapping[Place, int]) -> pb.Commit:
        offsets = [pb.GroupOffset(stream=stream, partition=index, offset=at) for (stream, index), at in wanted.items()]
        return pb.Commit(tag=self._next_tag(), offsets=offsets)

    def _last_commit(self) -> pb.Commit | None:
        """What is to be committed before partitions are given up."""
        wanted = self._uncommitted() if self._options.auto_commit else {}
        return self._commit(wanted) if wanted else None

    def _next_tag(self) -> int:
        self._tag += 1
        return self._tag

    def _uncommitted(self) -> dict[Place, int]:
        return {place: at for place, at in self._positions.items() if self._committed.get(place) != at}

    def _forget(self) -> None:
        """What is not handed out yet comes again, here or elsewhere."""
        self._pending.clear()
        self._tags = {}
