"""A reader of one partition that goes on where it was, and knows whether it is at the end."""

import asyncio

from bearlake.errors import NotFound, OutOfRange
from bearlake.protocols.rest import reading
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import state
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
        self, streams: Streams, settings: RestSettings, view: StreamView, index: int, tail: Tail, offset: int
    ) -> None:
        self._streams = streams
        self._settings = settings
        self._name = view.name
        self._tail = tail
        self.partition = view.partition(index)
        self.content_type = state.content_type(view)
        self.is_json = state.media_type(self.content_type) == state.JSON_TYPE
        self.offset = offset
        """Where it reads on."""
        self.is_up_to_date = False
        """Whether the last read ended at the end of the partition."""
        self._was_closed = state.is_closed(view)

    @property
    def is_at_end_of_closed(self) -> bool:
        """Whether nothing will ever come any more."""
        return self._was_closed and self.is_up_to_date

    async def next(self, wait_ms: int, bytes_max: int) -> list[bytes]:
        """The next values, about `bytes_max` bytes; none after `wait_ms`, or sooner: ask again unless the stream is closed.

        Raises:
            Problem: 404 when the stream was deleted, 410 when the offset was trimmed away.
        """
        view = self._streams.catalog.peek(self._name)
        # Closed first, read second: what was written before it was closed is read then.
        self._was_closed = view is not None and state.is_closed(view)
        slice_ms = 0 if self._was_closed else min(wait_ms, _LOOK_MS)
        fetched = await self._fetch(slice_ms, bytes_max)
        if isinstance(fetched.error, NotFound):
            raise Problem(404, 404, f"no stream {self._name}")
        if isinstance(fetched.error, OutOfRange):
            raise Problem(410, 410, f"offset: records before {state.token(fetched.error.start)} are gone")
        if fetched.error is not None:
            raise fetched.error
        values = [record.value or b"" for _, record in reading.records(fetched, self._settings.batch_bytes_max)]
        self.offset = reading.next_offset(fetched)
        self.is_up_to_date = self.offset >= fetched.end
        metrics.REST_RECORDS.labels("out").inc(len(values))
        return values

    def joined(self, values: list[bytes]) -> bytes:
        """Values as one body: a list of JSON, or the bytes of one after the other."""
        return b"[" + b",".join(value or b"null" for value in values) + b"]" if self.is_json else b"".join(values)

    async def _fetch(self, wait_ms: int, bytes_max: int) -> Fetched:
        """One fetch; cut short when the stream is closed meanwhile."""
        wanted = [FetchRange(self.partition, self.offset, bytes_max)]
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
