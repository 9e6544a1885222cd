"""`Stream-Seq`: whatever server takes an append, it is refused unless its sequence is larger than all before it in the partition.

A sequence is written with what it came with, as a header of its first record, so that neither is ever without the other. Who appends
reads the log up to its end first, and appends only if it still ends there: of two servers one finds something new and reads on.
Where a server begins to read is in the stream's config (`http.sequences`, from the first use on), moved on now and then. What retention
deletes is forgotten, as far as the config does not have it.
Source: Durable Streams Protocol 1.0, section 5.2 (the scope is the stream, or the partition where it has several).
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
from bearlake.streams.fetch import FetchRange
from bearlake.streams.principal import INTERNAL
from bearlake.streams.service import Streams

HEADER = "Stream-Seq"
CONFIG = "http.sequences"

_TRY_COUNT = 50
_NOTE_STEP = 10_000
"""Offsets after which the config is moved on: what a server that does not know the stream reads at most, about."""
_WAIT_MS = 1_000

Write = Callable[[Sequence[Record], Callable[[Append], Append]], Awaitable[Result]]
"""Appends records as one batch, after the append was completed."""


class Sequences:
    """Appends with a sequence, as one server makes them."""

    def __init__(self, streams: Streams, settings: RestSettings, appending: Appending) -> None:
        self._streams = streams
        self._appending = appending
        self._settings = settings

    async def append(
        self, view: StreamView, index: int, tail: Tail, sequence: str, records: Sequence[Record], write: Write
    ) -> Result:
        """Append; the outcome, which is any but UNEXPECTED_OFFSET.

        Raises:
            Problem: 409, the sequence is not larger than the last one.
            Overloaded: others appended each time.
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
                    return result  # what was accepted is seen by the next one, as by all servers
        raise Overloaded("others append all the time")

    async def _catch_up(self, view: StreamView, index: int, tail: Tail) -> None:
        """Read the partition up to its end."""
        key = view.partition(index)
        if tail.seen < 0:
            await self._begin(view, index, tail)
        end = (await self._streams.bounds([key]))[key].end
        while tail.seen < end:
            wanted = FetchRange(key, tail.seen, self._settings.fetch_bytes_max)
            (fetched,) = await self._streams.fetch(
                [wanted], bytes_min=1, bytes_max=self._settings.fetch_bytes_max, wait_ms=_WAIT_MS
            )
            if isinstance(fetched.error, OutOfRange):
                tail.seen = fetched.error.start
                continue
            if fetched.error is not None:
                raise fetched.error
            for _, record in reading.records(fetched, self._settings.batch_bytes_max):
                for name, content in record.headers:
                    if name == HEADER and content is not None:
                        tail.sequence = max(tail.sequence or "", content.decode(errors="replace"))
            tail.seen = max(tail.seen, reading.next_offset(fetched))
        if tail.seen >= tail.noted + _NOTE_STEP:
            await self._note(view, index, tail)

    async def _begin(self, view: StreamView, index: int, tail: Tail) -> None:
        """Take up what the config says; with the first sequence of a partition, begin it at the present end."""
        for _ in range(_TRY_COUNT):
            view = await self._appending.now(view)
            noted = _noted(view).get(str(index))
            if noted is not None:
                tail.seen = tail.noted = noted[0]
                tail.sequence = noted[1]
                return
            key = view.partition(index)
            tail.seen = (await self._streams.bounds([key]))[key].end
            if await self._note(view, index, tail):
                return
            tail.seen = -1
        raise Overloaded("the stream changes all the time")

    async def _note(self, view: StreamView, index: int, tail: Tail) -> bool:
        """Let the config say what this server knows, unless it was changed since the view."""
        noted = json.dumps({**_noted(view), str(index): [tail.seen, tail.sequence]}, ensure_ascii=False)
        try:
            await self._streams.alter(INTERNAL, view.stream, {CONFIG: noted}, [])
        except Conflict:
            return False
        tail.noted = tail.seen
        return True


def _at(end: int, append: Append) -> Append:
    """The append, if the log ends there."""
    return append._replace(expected_offset=end)


def _noted(view: StreamView) -> dict[str, tuple[int, str | None]]:
    """What the config says: by partition, up to which offset the log was read, and the largest sequence before it."""
    try:
        found = json.loads(stream_configs.value(view.stream.configs, CONFIG) or "{}")
        return {str(index): (int(offset), sequence) for index, (offset, sequence) in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # somebody else wrote it
