"""Creates forks: validates the branch point and records the fork at its source.

A branch point inside a record (`Stream-Fork-Sub-Offset`) splits the record: its first part becomes the fork's first own record. In a
JSON stream, where each element is a record, the sub-offset counts records instead.
Source: Durable Streams Protocol 1.0, section 4.2; `lifetimes.py` orders forks and deletions.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote

from aiohttp import web

from bearlake.errors import NotFound
from bearlake.protocols.rest import reading
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import lifetimes, lineage, state
from bearlake.protocols.rest.tailing.lineage import Fork
from bearlake.protocols.rest.tailing.state import Tails
from bearlake.records.codec import Record
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetched import FetchRange
from bearlake.streams.principal import INTERNAL, Operation, Principal
from bearlake.streams.service import Streams

_SOURCE = re.compile(r"/v1/stream/([^/]+)(?:/([^/]+))?")
_LENGTH_MAX = 1_000


class Place(NamedTuple):
    """The requested branch point: stream, partition (None: the only one), offset (None: the end), part after the offset."""

    name: str
    partition: str | None
    offset: int | None
    part: int


class Origin(NamedTuple):
    """A fork's validated origin: its source, its config, and the first record if the branch point splits a record."""

    source: StreamView
    fork: Fork
    first: list[Record]


def place_of(request: web.Request) -> Place | None:
    """Parse the branch point from the headers; None if the stream is not a fork. Raises `Problem` (400)."""
    headers = request.headers
    source, offset = headers.get("Stream-Forked-From"), headers.get("Stream-Fork-Offset")
    if source is None:
        if offset is not None or "Stream-Fork-Sub-Offset" in headers:
            raise Problem(
                400, 400, "Stream-Fork-Offset and Stream-Fork-Sub-Offset: expected only with Stream-Forked-From"
            )
        return None
    match = _SOURCE.fullmatch(unquote(source)) if len(source) <= _LENGTH_MAX else None
    if match is None:
        raise Problem(400, 400, "Stream-Forked-From: expected a path, /v1/stream/{name}")
    at = None if offset is None else state.parse_token(offset)
    if offset is not None and at is None:
        raise Problem(400, 400, "Stream-Fork-Offset: expected an offset that a server returned")
    part = state.whole_number(headers.get("Stream-Fork-Sub-Offset", "0"), "Stream-Fork-Sub-Offset")
    return Place(match[1], match[2], at, part)


class Forking:
    """Steps to create a fork."""

    def __init__(self, streams: Streams, settings: RestSettings, tails: Tails, writing: Writing) -> None:
        self._streams = streams
        self._settings = settings
        self._tails = tails
        self._writing = writing

    def is_from(self, fork: Fork, place: Place) -> bool:
        """Return whether the fork branched off at `place`. Without an offset in `place`, any offset matches."""
        source = self._streams.catalog.peek(place.name)
        if source is None or (source.stream.number, str(fork.partition)) != (fork.number, place.partition or "0"):
            return False
        return place.part == fork.part and place.offset in (None, fork.offset)

    async def origin(self, who: Principal, place: Place, content_type: str | None) -> Origin:
        """Resolve a branch point. Raises `Problem`: 404 for a missing source, 409 for a deleted source, 400 for an invalid point."""
        name, partition, requested_offset, part = place
        try:
            source, index = await self._tails.of(who, name, partition, Operation.READ)
        except Problem as problem:
            if problem.status == 410:
                raise Problem(409, 409, str(problem)) from problem
            raise
        if content_type is not None and state.media_type(content_type) != state.media_type(state.content_type(source)):
            raise Problem(409, 409, f"the source stream {name} has content type {state.content_type(source)}")
        pieces = await lineage.pieces_of(self._streams.catalog, source, index)
        bounds = await self._streams.bounds([piece.partition for piece in pieces])
        start, end, stable = lineage.bounds_of(pieces, bounds, state.closed_end(source, index))
        offset = stable if requested_offset is None else requested_offset
        if offset > end:
            raise Problem(400, 400, f"Stream-Fork-Offset: {name} ends at {state.token(end)}")
        base, first = offset, list[Record]()
        if part and state.media_type(state.content_type(source)) == state.JSON_TYPE:
            base = offset + part
        elif part and start <= offset < end:
            piece = next(piece for piece in pieces if piece.end is None or offset < piece.end)
            value = await self._value(FetchRange(piece.partition, offset - piece.base, 1))
            base, first = self._cut(value, offset, part)
        if base > end or (part and base == offset and not first):
            raise Problem(400, 400, f"Stream-Fork-Sub-Offset: {part} reaches beyond the end of the source")
        return Origin(source, Fork(source.stream.number, index, offset, part, base), first)

    async def register_fork(self, source: StreamView, fork: StreamView) -> None:
        """Record at the source that a fork exists. This changes the source's version, so that a concurrent deletion checks again.

        Raises:
            Problem: 409, the source was deleted in the meantime; the fork is deleted again.
        """
        try:
            changed = await self._streams.change(INTERNAL, source.stream, lambda _: ({lifetimes.FORKED: "true"}, []))
            is_there = not lifetimes.is_marked(changed, lifetimes.DELETED)
        except NotFound:
            is_there = False
        if not is_there:
            await self._streams.delete(INTERNAL, fork.stream, is_unchanged=True)
            raise Problem(409, 409, f"the source stream {source.name} is deleted")

    def _cut(self, value: bytes, offset: int, part: int) -> tuple[int, list[Record]]:
        """Return the fork's base and its first record, the first `part` bytes of `value`. No record if `value` is not split."""
        if part > len(value):
            return offset, []
        if part == len(value):
            return offset + 1, []
        return offset, [Record(value=value[:part], timestamp=self._writing.now_ms())]

    async def _value(self, range_: FetchRange) -> bytes:
        """Return the value at an existing offset."""
        fetched = (await self._streams.fetch([range_], bytes_min=1, bytes_max=1, wait_ms=self._settings.live_wait_ms))[
            0
        ]
        if fetched.error is not None:
            raise fetched.error
        room = reading.Room(1, self._settings.batch_bytes_max)
        found, _ = await reading.take(fetched, self._settings.batch_bytes_max, room)
        return found[0][1].value or b"" if found else b""
