"""A reader of one partition that goes on where it was, and knows whether it is at the end. A fork is read through its sources."""

import asyncio
from collections.abc import Sequence

from bearlake.errors import NotFound, OutOfRange
from bearlake.metadata.model import partition_index, stream_number
from bearlake.protocols.rest import reading
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import lifetimes, state
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes
from bearlake.protocols.rest.tailing.lineage import Piece
from bearlake.protocols.rest.tailing.state import Tail
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetch import Fetched, FetchRange
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics

_LOOK_MS = 1_000
"""Pause (ms) between two looks whether another server closed the stream."""


class Follower:
    """Reads values from `offset` on."""

    def __init__(
        self,
        streams: Streams,
        settings: RestSettings,
        lifetimes: Lifetimes,
        view: StreamView,
        pieces: Sequence[Piece],
        tail: Tail,
        offset: int,
        end: int,
    ) -> None:
        """`pieces` are where the records of the stream's partition are, that partition last; `offset` is not before the first.

        `end` is where the store says that it ends: what another server has acknowledged is not passed over.
        """
        self._streams = streams
        self._settings = settings
        self._lifetimes = lifetimes
        self._name = view.name
        self._pieces = pieces
        self._tail = tail
        self.partition = pieces[-1].partition
        self.content_type = state.content_type(view)
        self.is_json = state.media_type(self.content_type) == state.JSON_TYPE
        self.offset = offset
        """Where it reads on."""
        self.is_up_to_date = False
        """Whether the last read ended at the end of the partition."""
        self._was_closed = state.is_closed(view)
        self._end = end

    @property
    def is_at_end_of_closed(self) -> bool:
        """Whether nothing will ever come any more."""
        return self._was_closed and self.is_up_to_date

    async def next(self, wait_ms: int, bytes_max: int) -> list[bytes]:
        """The next values, about `bytes_max` bytes; none after `wait_ms`, or sooner: ask again unless the stream is closed.

        Raises:
            Problem: 404 when the stream was deleted, 410 when it was but has forks, or when the offset was trimmed away.
        """
        view = self._streams.catalog.peek_number(stream_number(self.partition))
        if view is not None:
            if lifetimes.is_marked(view, lifetimes.DELETED):
                raise Problem(410, 410, f"stream {self._name} is deleted; only its forks are left")
            await self._lifetimes.use(view)
        # Closed first, read second: what was written before it was closed is read then.
        self._was_closed = view is not None and state.is_closed(view)
        end = None if view is None else state.closed_end(view, partition_index(self.partition))
        slice_ms = 0 if self._was_closed else min(wait_ms, _LOOK_MS)
        values: list[bytes] = []
        size, is_done = 0, False
        while size < bytes_max and not is_done:
            piece = self._piece()
            fetched = await self._fetch(piece, 0 if values else slice_ms, bytes_max - size)
            is_done = piece is self._pieces[-1] or not fetched.views
            some = self._take(piece, fetched, end)
            values += some
            size += sum(len(value) for value in some)
        metrics.REST_RECORDS.labels("out").inc(len(values))
        return values

    def _take(self, piece: Piece, fetched: Fetched, closed_end: int | None) -> list[bytes]:
        """The values of an answer that belong to the piece; moves on."""
        if isinstance(fetched.error, NotFound) and piece is self._pieces[-1]:
            raise Problem(404, 404, f"no stream {self._name}")
        if isinstance(fetched.error, NotFound):
            raise Problem(410, 410, f"offset: the stream that this one is a fork of, {piece.name}, is gone")
        if isinstance(fetched.error, OutOfRange):
            start = piece.base + fetched.error.start
            raise Problem(410, 410, f"offset: records before {state.token(start)} are gone")
        if fetched.error is not None:
            raise fetched.error
        end = closed_end if piece.end is None else piece.end - piece.base
        found = reading.records(fetched, self._settings.batch_bytes_max)
        values = [record.value or b"" for offset, record in found if end is None or offset < end]
        after = reading.next_offset(fetched)
        self.offset = piece.base + (after if end is None else min(after, end))
        if piece.end is None:
            known = max(fetched.end, self._end - piece.base)
            self.is_up_to_date = after >= (known if end is None else min(known, end))
        return values

    def _piece(self) -> Piece:
        """Where the next record is."""
        return next(piece for piece in self._pieces if piece.end is None or self.offset < piece.end)

    async def up_to_end(self, wait_ms: int, bytes_max: int) -> list[bytes]:
        """The values up to the end, about `bytes_max` bytes; `wait_ms` is for those that this server has not heard of yet."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        values = await self.next(0, bytes_max)
        size = sum(len(value) for value in values)
        while not self.is_up_to_date and size < bytes_max and (left_ms := int((until - loop.time()) * 1000)) > 0:
            more = await self.next(left_ms, bytes_max - size)
            values += more
            size += sum(len(value) for value in more)
        return values

    def joined(self, values: list[bytes]) -> bytes:
        """Values as one body: a list of JSON, or the bytes of one after the other."""
        return b"[" + b",".join(value or b"null" for value in values) + b"]" if self.is_json else b"".join(values)

    async def _fetch(self, piece: Piece, wait_ms: int, bytes_max: int) -> Fetched:
        """One fetch; cut short when the stream is closed meanwhile."""
        wanted = [FetchRange(piece.partition, self.offset - piece.base, bytes_max)]
        if wait_ms == 0:
            return (await self._streams.fetch(wanted, bytes_min=0, bytes_max=bytes_max, wait_ms=0))[0]
        loop = asyncio.get_running_loop()
        fetching = loop.create_task(
            self._streams.fetch(wanted, bytes_min=1, bytes_max=bytes_max, wait_ms=wait_ms), name="follow a stream"
        )
        closing = loop.create_task(self._tail.closed.wait(), name="wait for its close")
        try:
            await asyncio.wait((fetching, closing), return_when=asyncio.FIRST_COMPLETED)
            if fetching.done():
                return fetching.result()[0]
        finally:
            for task in (fetching, closing):
                task.cancel()
            await asyncio.gather(fetching, closing, return_exceptions=True)
        self._was_closed = True
        return (await self._streams.fetch(wanted, bytes_min=0, bytes_max=bytes_max, wait_ms=0))[0]
