"""Steps shared by creates and appends: parse a body into records, write them, find a stream's end, and close a stream.

Closing takes two steps, and any server can resume it: first mark the stream as closed, then read and store the final ends of its
partitions. A concurrent append on another server either lies before the stored end or is rejected: after an append, the server
checks again whether the stream is closed. HTTP does not read records that other protocols write after the end.
"""

import asyncio
import json
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from bearlake.errors import Conflict, NotFound
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.tailing import lineage, state
from bearlake.records.codec import Record
from bearlake.serving.http.models import ANY
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import INTERNAL, Principal
from bearlake.streams.reservations import Reservation
from bearlake.streams.service import Streams

T = TypeVar("T")

_TRY_COUNT = 20
_BYTES_PER_RECORD = 64
"""Bytes of a JSON body that are as much work as a record."""
_ENDS_COUNT_MAX = 1_000


class Appending:
    """Steps of the handlers that write."""

    def __init__(self, streams: Streams, writing: Writing, value_count_max: int) -> None:
        """`value_count_max`: most JSON values of one body."""
        self._value_count_max = value_count_max
        self._streams = streams
        self._writing = writing
        self._tasks: set[asyncio.Task[Any]] = set()  # Any: result types differ

    async def shielded(self, work: Coroutine[Any, Any, T], room: Reservation) -> T:
        """Return the result of `work`. It continues if the client disconnects, so that an append and its close are not separated.

        What `room` counts is given back when `work` ends.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        kept = room.moved()
        task.add_done_callback(lambda _: kept.give_back())
        return await asyncio.shield(task)

    async def records(self, content_type: str, body: bytes, *, is_first: bool) -> list[Record]:
        """Parse a body into records: one, or for JSON one per element. Only initial content may be empty. Raises `Problem`, `TooLarge`."""
        now_ms = self._writing.now_ms()
        if not body:
            return []
        if state.media_type(content_type) != state.JSON_TYPE:
            return [Record(value=body, timestamp=now_ms)]
        value = await bodies.parse_many(ANY, body, self._value_count_max, status=400, code=400)
        values = value if isinstance(value, list) else [value]
        if not values and not is_first:
            raise Problem(400, 400, "the list is empty")
        work_count = max(len(values), len(body) // _BYTES_PER_RECORD)
        return await self._writing.worked(work_count, _encoded, values, now_ms)

    async def write(self, who: Principal, view: StreamView, index: int, records: Sequence[Record]) -> int:
        """Append and return the offset after the last record in the partition's log. Raises the first error."""
        written = await self._writing.write(who, view, [(index, record) for record in records], is_whole=True)
        for result in written:
            if result.error is not None:
                raise result.error
        return written[-1].offset + 1

    async def end(self, view: StreamView, index: int) -> int:
        """Return the end of a partition's log, or the end at which it was closed. Raises `Problem` (404)."""
        key = view.partition(index)
        bounds = (await self._streams.bounds([key])).get(key)
        if bounds is None:
            raise Problem(404, 404, f"no stream {view.name}")
        closed_end = state.closed_end(view, index)
        return bounds.end if closed_end is None else closed_end

    async def still_open(self, view: StreamView, index: int, end: int) -> None:
        """Raise `Problem` (409) if the stream was closed before the records just appended, which end at `end` of its log."""
        for stream in await self._streams.catalog.refresh([view.stream.number]):
            view = StreamView(stream)
        if not state.is_closed(view) or view.stream.is_deleted:
            return
        now = await self.close(view, "")
        closed_end = state.closed_end(now, index)
        if closed_end is not None and closed_end < end:
            offset = lineage.base_of(now) + closed_end
            headers = {"Stream-Closed": "true", "Stream-Next-Offset": state.token(offset)}
            raise Problem(409, 409, "the stream is closed", headers)

    async def close(self, view: StreamView, by: str) -> StreamView:
        """Close the stream, on behalf of a producer's append (`by`) or without one; no-op if already closed.

        Raises:
            NotFound: the stream is deleted.
            Conflict: concurrent changes on every attempt.
        """
        for _ in range(_TRY_COUNT):
            view = await self.now(view)
            if state.is_closed(view) and state.ENDS in view.stream.configs:
                return view
            changes = await self._ends(view) if state.is_closed(view) else {state.CLOSED: "true"}
            if by and not state.is_closed(view):
                changes[state.CLOSED_BY] = by
            try:
                await self._streams.alter(INTERNAL, view.stream, changes, [])
            except Conflict:
                continue
        raise Conflict(f"too many concurrent changes to stream {view.name}")

    async def now(self, view: StreamView) -> StreamView:
        """Return the stream's current state in the store. Raises `NotFound` if it is deleted."""
        for stream in await self._streams.catalog.refresh([view.stream.number]):
            if not stream.is_deleted:
                return StreamView(stream)
        raise NotFound(f"no stream {view.name}")

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark as retrieved: the waiting request may be gone

    async def _ends(self, view: StreamView) -> dict[str, str]:
        keys = view.partitions()[:_ENDS_COUNT_MAX]
        bounds = await self._streams.bounds(keys)
        return {state.ENDS: ",".join(str(bounds[key].end) if key in bounds else "" for key in keys)}


def _encoded(values: Sequence[Any], now_ms: int) -> list[Record]:
    """Return the records of JSON values (Any)."""
    texts = [json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() for value in values]
    return [Record(value=text, timestamp=now_ms) for text in texts]
