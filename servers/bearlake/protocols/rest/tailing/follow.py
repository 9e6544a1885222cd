"""Reads one partition continuously, and knows whether it is at the end. Reads a fork through its sources."""

import asyncio
from collections.abc import Sequence

from bearlake.errors import Denied, NotFound, OutOfRange
from bearlake.metadata.model import PartitionBounds, partition_index, stream_number
from bearlake.protocols.rest import reading
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.reading import Room
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import lifetimes, state
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes
from bearlake.protocols.rest.tailing.lineage import Piece
from bearlake.protocols.rest.tailing.state import Tail
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.service import Streams

_LOOK_MS = 1_000
"""Pause (ms) between two checks whether another server has closed the stream."""


class Follower:
    """Reads values starting at `offset`."""

    def __init__(
        self,
        streams: Streams,
        settings: RestSettings,
        lifetimes: Lifetimes,
        who: Principal,
        view: StreamView,
        pieces: Sequence[Piece],
        tail: Tail,
        offset: int,
        bounds: PartitionBounds,
    ) -> None:
        """`who` reads. `pieces` are the ranges of the stream's partition, its own log last; `offset` is not before the first piece.

        `bounds` are those in the store, so that the follower waits for records that another server has acknowledged.
        """
        self._streams = streams
        self._settings = settings
        self._lifetimes = lifetimes
        self._who = who
        self._name = view.name
        self._pieces = pieces
        self._tail = tail
        self.partition = pieces[-1].partition
        self.content_type = state.content_type(view)
        self.is_json = state.media_type(self.content_type) == state.JSON_TYPE
        self.offset = offset
        """The next offset to read."""
        self.is_up_to_date = False
        """Whether the last read reached the last stable offset: open transactions may add records before later ones."""
        self._is_at_end = False
        """Whether the last read reached the end of the partition's log, or where it was closed."""
        self._was_closed = state.is_closed(view)
        self._bounds = bounds
        self.off_loop = streams.checks.off_loop

    @property
    def is_at_end_of_closed(self) -> bool:
        """Whether no more values can follow."""
        return self._was_closed and self._is_at_end

    async def next(self, wait_ms: int, bytes_max: int) -> list[bytes]:
        """Return the next values, at most `read_record_count_max` and about `bytes_max` bytes.

        May be empty after or before `wait_ms`; call again unless the stream is closed.

        Raises:
            Denied: the access rules changed, and the reader may no longer read the stream or a fork's source.
            Problem: 404 if the stream is deleted, 410 if only its forks remain or the offset was trimmed.
        """
        return await self._next(wait_ms, Room(self._settings.read_record_count_max, bytes_max))

    async def _next(self, wait_ms: int, room: Room) -> list[bytes]:
        """As `next`, as much as there is room for."""
        view = self._streams.catalog.peek_number(stream_number(self.partition))
        if view is not None:
            if lifetimes.is_marked(view, lifetimes.DELETED):
                raise Problem(410, 410, f"stream {self._name} is deleted; only its forks remain")
            await self._lifetimes.use(view)
        # Check for the close before reading, so that the read covers everything written before the close.
        self._was_closed = view is not None and state.is_closed(view)
        end = None if view is None else state.closed_end(view, partition_index(self.partition))
        # Nothing follows the end of a closed stream. Before it, only an open transaction, or this server's lag, can hold a reader back.
        is_over = self._was_closed and (end is None or self.offset - self._pieces[-1].base >= end)
        slice_ms = 0 if is_over else min(wait_ms, _LOOK_MS)
        values: list[bytes] = []
        is_done = False
        while room.is_left and not is_done:
            piece = self._piece()
            fetched = await self._fetch(piece, 0 if values else slice_ms, room.byte_count)
            is_done = piece is self._pieces[-1] or not fetched.views
            values += await self._take(piece, fetched, end, room)
        reading.count_served([(None, value) for value in values])
        return values

    async def _take(self, piece: Piece, fetched: Fetched, closed_end: int | None, room: Room) -> list[bytes]:
        """Return the fetched values that belong to the piece, as many as there is room for, and advance."""
        if not self._streams.may(self._who, Operation.READ, piece.name):
            raise Denied(f"{self._who} may not read from {piece.name!r}")
        if isinstance(fetched.error, NotFound) and piece is self._pieces[-1]:
            raise Problem(404, 404, f"no stream {self._name}")
        if isinstance(fetched.error, NotFound):
            raise Problem(410, 410, f"offset: the source of this fork, {piece.name}, is deleted")
        if isinstance(fetched.error, OutOfRange):
            start = piece.base + fetched.error.start
            raise Problem(410, 410, f"offset: records before {state.token(start)} are deleted")
        if fetched.error is not None:
            raise fetched.error
        end = closed_end if piece.end is None else piece.end - piece.base
        found, after = await reading.take(fetched, self._settings.batch_bytes_max, room)
        values = [record.value or b"" for offset, record in found if end is None or offset < end]
        self.offset = piece.base + (after if end is None else min(after, end))
        if piece.end is None:
            known = max(fetched.end, self._bounds.last_stable - piece.base)
            self.is_up_to_date = after >= (known if end is None else min(known, end))
            self._is_at_end = after >= (max(known, self._bounds.end - piece.base) if end is None else end)
        return values

    def _piece(self) -> Piece:
        """Return the piece with the next record."""
        return next(piece for piece in self._pieces if piece.end is None or self.offset < piece.end)

    async def up_to_end(self, wait_ms: int, bytes_max: int) -> list[bytes]:
        """Return the values up to the end, about `bytes_max` bytes; wait up to `wait_ms` for records that this server has not seen yet."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        room = Room(self._settings.read_record_count_max, bytes_max)
        values = await self._next(0, room)
        while not self.is_up_to_date and room.is_left and (left_ms := int((until - loop.time()) * 1000)) > 0:
            values += await self._next(left_ms, room)
        return values

    def joined(self, values: list[bytes]) -> bytes:
        """Join values into one body: a JSON list, or the concatenated bytes."""
        return b"[" + b",".join(value or b"null" for value in values) + b"]" if self.is_json else b"".join(values)

    async def _fetch(self, piece: Piece, wait_ms: int, bytes_max: int) -> Fetched:
        """Fetch once; return early if the stream is closed in the meantime."""
        ranges = [FetchRange(piece.partition, self.offset - piece.base, bytes_max)]
        if wait_ms == 0 or self._was_closed:
            bytes_min = 1 if wait_ms else 0
            return (await self._streams.fetch(ranges, bytes_min=bytes_min, bytes_max=bytes_max, wait_ms=wait_ms))[0]
        loop = asyncio.get_running_loop()
        fetching = loop.create_task(
            self._streams.fetch(ranges, bytes_min=1, bytes_max=bytes_max, wait_ms=wait_ms), name="follow a stream"
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
        return (await self._streams.fetch(ranges, bytes_min=0, bytes_max=bytes_max, wait_ms=0))[0]
