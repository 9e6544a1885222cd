"""`Stream-Seq`: an append on any server is rejected unless its sequence is greater than all earlier sequences in the partition.

The sequence is stored atomically with its append, as a header of the first record. The server first reads the log up to its end, and
appends only if the log still ends there; of two concurrent servers, one finds new records and reads on. The config `http.sequences`
(set at the first use) says where a server starts to read, and advances from time to time. Sequences that retention deletes are
forgotten, unless the config covers them.
Source: Durable Streams Protocol 1.0, section 5.2 (the scope is the stream, or the partition of a stream with several).
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from bearlake.errors import Conflict, OutOfRange, Overloaded
from bearlake.protocols.rest import reading
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing.appending import Appending
from bearlake.protocols.rest.tailing.state import Tail
from bearlake.records.codec import Record
from bearlake.streams import configs as stream_configs
from bearlake.streams.append import Append, Result, Verdict
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import FetchRange
from bearlake.streams.principal import INTERNAL
from bearlake.streams.service import Streams

HEADER = "Stream-Seq"
CONFIG = "http.sequences"

_TRY_COUNT = 50
_STORE_STEP = 10_000
"""Offsets after which the config advances: the approximate number that a server new to the stream must read."""
_WAIT_MS = 1_000

Write = Callable[[Sequence[Record], Callable[[Append], Append]], Awaitable[Result]]
"""Appends records as one batch, after `complete` has modified the append."""


class Sequences:
    """Appends with a sequence on one server."""

    def __init__(self, streams: Streams, settings: RestSettings, appending: Appending) -> None:
        self._streams = streams
        self._appending = appending
        self._settings = settings

    async def append(
        self, view: StreamView, index: int, tail: Tail, sequence: str, records: Sequence[Record], write: Write
    ) -> Result:
        """Append and return the outcome, never UNEXPECTED_OFFSET.

        Raises:
            Problem: 409, the sequence is not greater than the last one.
            Overloaded: concurrent appends on every attempt.
        """
        first, *others = records
        marked = [replace(first, headers=(*first.headers, (HEADER, sequence.encode()))), *others]
        async with tail.lock:
            for _ in range(_TRY_COUNT):
                await self._catch_up(view, index, tail)
                if tail.sequence is not None and sequence <= tail.sequence:
                    raise Problem(409, 409, f"Stream-Seq: expected more than {tail.sequence}")
                result = await write(marked, partial(_at, tail.seen))
                if result[0] != Verdict.UNEXPECTED_OFFSET:
                    return result  # an accepted sequence is read from the log by the next append, as on all servers
        raise Overloaded("too many concurrent appends")

    async def _catch_up(self, view: StreamView, index: int, tail: Tail) -> None:
        """Read the partition up to its end."""
        key = view.partition(index)
        if tail.seen < 0:
            await self._begin(view, index, tail)
        end = (await self._streams.bounds([key]))[key].end
        while tail.seen < end:
            range_ = FetchRange(key, tail.seen, self._settings.fetch_bytes_max)
            # Everything counts up to the end that the append expects, also what open transactions have written.
            (fetched,) = await self._streams.fetch(
                [range_], bytes_min=1, bytes_max=self._settings.fetch_bytes_max, wait_ms=_WAIT_MS, is_committed=False
            )
            if isinstance(fetched.error, OutOfRange):
                tail.seen = fetched.error.start
                continue
            if fetched.error is not None:
                raise fetched.error
            room = reading.Room(self._settings.read_record_count_max, self._settings.fetch_bytes_max)
            found, after = await reading.take(fetched, self._settings.batch_bytes_max, room)
            for _, record in found:
                for name, content in record.headers:
                    if name == HEADER and content is not None:
                        tail.sequence = max(tail.sequence or "", content.decode(errors="replace"))
            tail.seen = max(tail.seen, after)
        if tail.seen >= tail.stored + _STORE_STEP:
            await self._store(view, index, tail)

    async def _begin(self, view: StreamView, index: int, tail: Tail) -> None:
        """Load the partition's state from the config; without one, store the current end as the start."""
        for _ in range(_TRY_COUNT):
            view = await self._appending.now(view)
            stored = _stored(view).get(str(index))
            if stored is not None:
                tail.seen = tail.stored = stored[0]
                tail.sequence = stored[1]
                return
            key = view.partition(index)
            tail.seen = (await self._streams.bounds([key]))[key].end
            if await self._store(view, index, tail):
                return
            tail.seen = -1
        raise Overloaded("too many concurrent changes to the stream")

    async def _store(self, view: StreamView, index: int, tail: Tail) -> bool:
        """Store this server's state in the config. Returns False if the config has changed since `view`."""
        text = json.dumps({**_stored(view), str(index): [tail.seen, tail.sequence]}, ensure_ascii=False)
        try:
            await self._streams.alter(INTERNAL, view.stream, {CONFIG: text}, [])
        except Conflict:
            return False
        tail.stored = tail.seen
        return True


def _at(end: int, append: Append) -> Append:
    """Return the append with the condition that the log ends at `end`."""
    return append._replace(expected_offset=end)


def _stored(view: StreamView) -> dict[str, tuple[int, str | None]]:
    """Parse the config: by partition, the offset up to which the log was read, and the largest sequence before it."""
    try:
        found = json.loads(stream_configs.value(view.stream.configs, CONFIG) or "{}")
        return {str(index): (int(offset), sequence) for index, (offset, sequence) in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # written by someone else
