"""PUT and DELETE: streams and forks are created and deleted.

A stream with a first content is hidden (`http.incomplete`) until that is written, so that nobody sees half of it, and a
creation that was cut off can be made again.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from aiohttp import web

from bearlake.errors import AlreadyExists, NotFound
from bearlake.protocols.rest import bodies, reading
from bearlake.protocols.rest.caller import principal_of
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import lifetimes, lineage, state
from bearlake.protocols.rest.tailing.appending import Appending
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes
from bearlake.protocols.rest.tailing.lineage import Fork
from bearlake.protocols.rest.tailing.state import Tails
from bearlake.records.codec import Record
from bearlake.streams.catalog import StreamView
from bearlake.streams.fetch import FetchRange
from bearlake.streams.principal import INTERNAL, Operation, Principal
from bearlake.streams.service import Streams

_LENGTH_MAX = 1_000
_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+\s*(;[\x20-\x7e]*)?\Z")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_SOURCE = re.compile(r"/v1/stream/([^/]+)(?:/([^/]+))?")


class Wanted(NamedTuple):
    """What a request asks for: content type (None: that of the source), end of life by config, source with offset and part, state."""

    content_type: str | None
    lifetime: dict[str, str]
    source: str | None
    offset: int | None
    part: int
    closes: bool


class Origin(NamedTuple):
    """A fork to be made: its source, what it says of it, and the record that is cut in two, if one is."""

    source: StreamView
    fork: Fork
    first: list[Record]


class CreateRoutes:
    """Handlers of whole streams."""

    def __init__(
        self,
        streams: Streams,
        settings: RestSettings,
        lives: Lifetimes,
        tails: Tails,
        writing: Writing,
        appending: Appending,
    ) -> None:
        self._streams = streams
        self._settings = settings
        self._lives = lives
        self._tails = tails
        self._writing = writing
        self._appending = appending

    async def create(self, request: web.Request) -> web.Response:
        """Create a stream of one partition, or a fork of another; the same again is well."""
        wanted = _wanted(request)
        await self._writing.room()
        body = await bodies.read(request, self._settings.request_bytes_max)
        name = request.match_info["name"]
        known = await self._known(name)
        status = 200
        if known is None:
            try:
                known, status = await self._made(principal_of(request), name, wanted, body), 201
            except AlreadyExists:
                known = await self._known(name)
        if known is None or (status == 200 and not await self._is_same(known, wanted)):
            raise Problem(409, 409, f"stream {name} exists with another content type, end, origin or state")
        end = lineage.base_of(known) + await self._appending.end(known, 0)
        headers = {"Content-Type": state.content_type(known), "Stream-Next-Offset": state.token(end)}
        if state.is_closed(known):
            headers["Stream-Closed"] = "true"
        if status == 201:
            headers["Location"] = f"{request.scheme}://{request.host}{request.rel_url.raw_path}"
        return web.Response(status=status, headers=headers)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete the stream with all partitions; while it has forks, they keep its records."""
        name = request.match_info["name"]
        try:
            await self._lives.check(await self._streams.catalog.find(name))
            await self._lives.remove(principal_of(request), name)
        except NotFound as error:
            raise Problem(404, 404, f"no stream {name[:249]}") from error
        return web.Response(status=204)

    # -- inside --------------------------------------------------------------------------------------------------

    async def _known(self, name: str) -> StreamView | None:
        """The stream of that name, None if there is none. Raises `Problem` (409) if it is deleted but for its forks."""
        try:
            return await self._lives.check(await self._streams.catalog.find(name))
        except NotFound:
            return None
        except Problem as problem:
            if problem.status == 404:
                return None
            raise Problem(409, 409, str(problem)) if problem.status == 410 else problem from problem

    async def _is_same(self, view: StreamView, wanted: Wanted) -> bool:
        """Whether the stream is what the request asks for."""
        given = wanted.content_type or (None if wanted.source else state.DEFAULT_TYPE)
        if given is not None and state.media_type(given) != state.media_type(state.content_type(view)):
            return False
        fork = lineage.fork_of(view)
        if state.is_closed(view) != wanted.closes or (fork is None) != (wanted.source is None):
            return False
        if fork is not None and wanted.source is not None:
            name, _, partition = wanted.source.partition("/")
            source = self._streams.catalog.peek(name)
            if source is None or (source.stream.number, str(fork.partition)) != (fork.number, partition or "0"):
                return False
            if wanted.part != fork.part or wanted.offset not in (None, fork.offset):
                return False
            if not wanted.lifetime:
                return True
        return _ends(wanted.lifetime) == _ends(view.stream.configs)

    async def _made(self, who: Principal, name: str, wanted: Wanted, body: bytes) -> StreamView:
        """Create the stream. Raises `AlreadyExists`, `Problem`."""
        origin = await self._origin(who, wanted) if wanted.source is not None else None
        inherited = {} if origin is None else origin.source.stream.configs
        kind = wanted.content_type or (state.content_type(origin.source) if origin else state.DEFAULT_TYPE)
        records = self._appending.records(kind, body, is_first=True)
        configs = {state.CONTENT_TYPE: kind}
        configs |= wanted.lifetime or {key: inherited[key] for key in lifetimes.ENDING if key in inherited}
        if origin is not None:
            configs[lineage.FORK] = str(origin.fork)
            records = origin.first + records
            await self._mark(origin.source)
        is_shown_later = bool(records) or origin is not None
        if is_shown_later:
            configs[lifetimes.INCOMPLETE] = "true"
        view = await self._streams.create(who, name, 1, configs)
        if records:
            await self._appending.write(who, view, 0, records)
        if wanted.closes:
            view = await self._appending.close(view, "")
        if origin is not None:
            await self._look_again(origin.source, view)
        if is_shown_later:
            view = await self._streams.alter(INTERNAL, name, {}, [lifetimes.INCOMPLETE])
        return view

    async def _origin(self, who: Principal, wanted: Wanted) -> Origin:
        """Where a fork branches off. Raises `Problem`: 404 without a source, 409 for a deleted one, 400 for a place that it has not."""
        assert wanted.source is not None
        name, _, partition = wanted.source.partition("/")
        try:
            source, index = await self._tails.of(who, name, partition or None, Operation.READ)
        except Problem as problem:
            raise Problem(409, 409, str(problem)) if problem.status == 410 else problem from problem
        given = wanted.content_type
        if given is not None and state.media_type(given) != state.media_type(state.content_type(source)):
            raise Problem(409, 409, f"stream {name}, the source, has content type {state.content_type(source)}")
        pieces = await lineage.pieces_of(self._streams.catalog, source, index)
        bounds = await self._streams.bounds([piece.partition for piece in pieces])
        start, end = lineage.bounds_of(pieces, bounds, state.closed_end(source, index))
        offset = end if wanted.offset is None else wanted.offset
        if offset > end:
            raise Problem(400, 400, f"Stream-Fork-Offset: {name} ends at {state.token(end)}")
        base, first = offset, list[Record]()
        if wanted.part and state.media_type(state.content_type(source)) == state.JSON_TYPE:
            base = offset + wanted.part
        elif wanted.part and start <= offset < end:
            piece = next(piece for piece in pieces if piece.end is None or offset < piece.end)
            value = await self._value(FetchRange(piece.partition, offset - piece.base, 1))
            base, first = self._cut(value, offset, wanted.part)
        if base > end or (wanted.part and base == offset and not first):
            raise Problem(400, 400, f"Stream-Fork-Sub-Offset: there is less than {wanted.part} behind the offset")
        return Origin(source, Fork(source.stream.number, index, offset, wanted.part, base), first)

    def _cut(self, value: bytes, offset: int, part: int) -> tuple[int, list[Record]]:
        """The fork's base, and its first record: a part of the source's at `offset`. Nothing, if the record has less bytes."""
        if part > len(value):
            return offset, []
        if part == len(value):
            return offset + 1, []
        return offset, [Record(value=value[:part], timestamp=self._writing.now_ms())]

    async def _value(self, wanted: FetchRange) -> bytes:
        """The value at an offset that exists."""
        fetched = (await self._streams.fetch([wanted], bytes_min=1, bytes_max=1, wait_ms=self._settings.live_wait_ms))[
            0
        ]
        if fetched.error is not None:
            raise fetched.error
        for _, record in reading.records(fetched, self._settings.batch_bytes_max):
            return record.value or b""
        return b""

    async def _mark(self, source: StreamView) -> None:
        """Note that a fork is being made: a new version, so that a deletion that has not seen it looks again."""
        try:
            marked = await self._streams.alter(INTERNAL, source.name, {lifetimes.FORKED: "true"}, [])
        except NotFound as error:
            raise Problem(404, 404, f"no stream {source.name}") from error
        if lifetimes.is_marked(marked, lifetimes.DELETED) or marked.stream.number != source.stream.number:
            raise Problem(409, 409, f"stream {source.name}, the source, is deleted")

    async def _look_again(self, source: StreamView, view: StreamView) -> None:
        """Take the new fork back if its source was deleted meanwhile: the deletion may not have seen it."""
        for stream in await self._streams.catalog.refresh([source.stream.number]):
            if stream.is_deleted or lifetimes.is_marked(StreamView(stream), lifetimes.DELETED):
                await self._streams.delete(INTERNAL, view.name, view.stream.version)
                raise Problem(409, 409, f"stream {source.name}, the source, is deleted")


def _wanted(request: web.Request) -> Wanted:
    """What the headers ask for. Raises `Problem` (400)."""
    headers = request.headers
    content_type = headers.get("Content-Type")
    if content_type is not None and (len(content_type) > _LENGTH_MAX or not _TYPE.match(content_type)):
        raise Problem(400, 400, "Content-Type: expected a media type")
    source, offset, part = headers.get("Stream-Forked-From"), headers.get("Stream-Fork-Offset"), 0
    if source is None and (offset is not None or "Stream-Fork-Sub-Offset" in headers):
        raise Problem(400, 400, "Stream-Fork-Offset and Stream-Fork-Sub-Offset: expected with Stream-Forked-From")
    if source is not None:
        match = _SOURCE.fullmatch(unquote(source)) if len(source) <= _LENGTH_MAX else None
        if match is None:
            raise Problem(400, 400, "Stream-Forked-From: expected a path, /v1/stream/{name}")
        source = "/".join(one for one in match.groups() if one is not None)
        part = _number(headers.get("Stream-Fork-Sub-Offset", "0"), "Stream-Fork-Sub-Offset")
    at = None if offset is None else state.parse_token(offset)
    if offset is not None and at is None:
        raise Problem(400, 400, "Stream-Fork-Offset: expected one that this server gave")
    return Wanted(content_type, _lifetime(request), source, at, part, state.closes(request))


def _lifetime(request: web.Request) -> dict[str, str]:
    """The configs of the end of life that the headers ask for. Raises `Problem` (400)."""
    ttl, expires_at = request.headers.get("Stream-TTL"), request.headers.get("Stream-Expires-At")
    if ttl is not None and expires_at is not None:
        raise Problem(400, 400, "Stream-TTL and Stream-Expires-At: expected one of them")
    if ttl is not None:
        return {lifetimes.TTL: str(_number(ttl, "Stream-TTL"))}
    if expires_at is None:
        return {}
    if lifetimes.parse_time(expires_at) is None:
        raise Problem(400, 400, "Stream-Expires-At: expected a time of RFC 3339, as 2030-01-31T12:00:00Z")
    return {lifetimes.EXPIRES_AT: expires_at}


def _ends(configs: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Time to live and end, to compare."""
    return configs.get(lifetimes.TTL), lifetimes.parse_time(configs.get(lifetimes.EXPIRES_AT, ""))


def _number(text: str, name: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise Problem(400, 400, f"{name}: expected a whole number without leading zeros")
    return int(text)
