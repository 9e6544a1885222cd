"""PUT and DELETE: create and delete streams and forks.

A stream with initial content stays hidden (`http.incomplete`) until the content is written, so that no reader sees part of it. A
creation that was interrupted can be repeated.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from aiohttp import web

from bearlake.errors import AlreadyExists, Denied, NotFound
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import forking, lifetimes, lineage, state
from bearlake.protocols.rest.tailing.appending import Appending
from bearlake.protocols.rest.tailing.forking import Forking, Place
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes
from bearlake.serving.http.login import principal_of
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import INTERNAL, Operation, Principal
from bearlake.streams.reservations import Reservation
from bearlake.streams.service import Streams

_LENGTH_MAX = 1_000
_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+\s*(;[\x20-\x7e]*)?\Z")


class CreateRequest(NamedTuple):
    """A request's content type (None: that of the source), expiry configs, fork source and closed state."""

    content_type: str | None
    lifetime: dict[str, str]
    source: Place | None
    closes: bool


class CreateRoutes:
    """Handlers that create and delete streams."""

    def __init__(
        self,
        streams: Streams,
        settings: RestSettings,
        lives: Lifetimes,
        writing: Writing,
        appending: Appending,
        forks: Forking,
    ) -> None:
        self._streams = streams
        self._settings = settings
        self._lives = lives
        self._forking = forks
        self._writing = writing
        self._appending = appending

    async def create(self, request: web.Request) -> web.Response:
        """Create a stream of one partition, or a fork of another stream. Idempotent."""
        asked = _parsed(request)
        with await self._writing.room(principal_of(request)) as room:
            body = await bodies.read(request, self._settings.request_bytes_max, room)
            self._writing.check_quota(principal_of(request))
            return await self._created(request, asked, body, room)

    async def _created(
        self, request: web.Request, asked: CreateRequest, body: bytes, room: Reservation
    ) -> web.Response:
        name, who = request.match_info["name"], principal_of(request)
        if not self._streams.may_create(who, name):
            raise Denied(f"{who} may not Create Topic {name!r}")
        known = await self._known(name)
        status = 200
        if known is None:
            try:
                making = self._made(who, name, asked, body)
                known, status = await self._appending.shielded(making, room), 201
            except AlreadyExists:
                known = await self._known(name)
        if known is None or (status == 200 and not self._is_same(known, asked)):
            raise Problem(409, 409, f"stream {name} exists with a different content type, end, origin or state")
        end = lineage.base_of(known) + await self._appending.end(known, 0)
        headers = {"Content-Type": state.content_type(known), "Stream-Next-Offset": state.token(end)}
        if state.is_closed(known):
            headers["Stream-Closed"] = "true"
        if status == 201:
            headers["Location"] = f"{request.scheme}://{request.host}{request.rel_url.raw_path}"
        return web.Response(status=status, headers=headers)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a stream with all partitions; while the stream has forks, its records remain readable through them."""
        name, who = request.match_info["name"], principal_of(request)
        if not self._streams.may(who, Operation.DELETE, name):
            raise Problem(404, 404, f"no stream {name[:249]}")
        try:
            await self._lives.find(name)
            await self._lives.remove(who, name)
        except NotFound as error:
            raise Problem(404, 404, f"no stream {name[:249]}") from error
        return web.Response(status=204)

    # -- internal ------------------------------------------------------------------------------------------------

    async def _known(self, name: str) -> StreamView | None:
        """Return the stream of that name, or None. Raises `Problem` (409) if it is deleted and kept only for its forks."""
        try:
            return await self._lives.find(name)
        except Problem as problem:
            if problem.status == 404:
                return None
            if problem.status == 410:
                raise Problem(409, 409, str(problem)) from problem
            raise

    def _is_same(self, view: StreamView, asked: CreateRequest) -> bool:
        """Return whether the stream matches the request."""
        given = asked.content_type or (None if asked.source else state.DEFAULT_TYPE)
        if given is not None and state.media_type(given) != state.media_type(state.content_type(view)):
            return False
        fork = lineage.fork_of(view)
        if state.is_closed(view) != asked.closes or (fork is None) != (asked.source is None):
            return False
        if fork is not None and asked.source is not None:
            if not self._forking.is_from(fork, asked.source):
                return False
            if not asked.lifetime:
                return True
        return _ends(asked.lifetime) == _ends(view.stream.configs)

    async def _made(self, who: Principal, name: str, asked: CreateRequest, body: bytes) -> StreamView:
        """Create the stream. Raises `AlreadyExists`, `Problem`."""
        origin = None if asked.source is None else await self._forking.origin(who, asked.source, asked.content_type)
        inherited = {} if origin is None else origin.source.stream.configs
        kind = asked.content_type or (state.content_type(origin.source) if origin else state.DEFAULT_TYPE)
        records = await self._appending.records(kind, body, is_first=True)
        configs = {state.CONTENT_TYPE: kind}
        configs |= asked.lifetime or {key: inherited[key] for key in lifetimes.ENDING if key in inherited}
        if origin is not None:
            configs[lineage.FORK] = str(origin.fork)
            records = origin.first + records
        is_shown_later = bool(records) or origin is not None
        if is_shown_later:
            configs[lifetimes.INCOMPLETE] = "true"
        view = await self._streams.create(who, name, 1, configs)
        if records:
            await self._appending.write(who, view, 0, records)
        if asked.closes:
            view = await self._appending.close(view, "")
        if origin is not None:
            await self._forking.register_fork(origin.source, view)
        if is_shown_later:
            view = await self._streams.change(INTERNAL, view.stream, lambda _: ({}, [lifetimes.INCOMPLETE]))
        return view


def _parsed(request: web.Request) -> CreateRequest:
    """Parse the headers. Raises `Problem` (400)."""
    headers = request.headers
    content_type = headers.get("Content-Type")
    if content_type is not None and (len(content_type) > _LENGTH_MAX or not _TYPE.match(content_type)):
        raise Problem(400, 400, "Content-Type: expected a media type")
    return CreateRequest(content_type, _lifetime(request), forking.place_of(request), state.closes(request))


def _lifetime(request: web.Request) -> dict[str, str]:
    """Return the expiry configs that the headers request. Raises `Problem` (400)."""
    ttl, expires_at = request.headers.get("Stream-TTL"), request.headers.get("Stream-Expires-At")
    if ttl is not None and expires_at is not None:
        raise Problem(400, 400, "Stream-TTL and Stream-Expires-At: expected at most one of them")
    if ttl is not None:
        return {lifetimes.TTL: str(state.whole_number(ttl, "Stream-TTL"))}
    if expires_at is None:
        return {}
    if lifetimes.parse_time(expires_at) is None:
        raise Problem(400, 400, "Stream-Expires-At: expected an RFC 3339 time, such as 2030-01-31T12:00:00Z")
    return {lifetimes.EXPIRES_AT: expires_at}


def _ends(configs: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Return time to live and expiry time, for comparison."""
    return configs.get(lifetimes.TTL), lifetimes.parse_time(configs.get(lifetimes.EXPIRES_AT, ""))
