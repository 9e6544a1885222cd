"""GET and HEAD: read, long-poll, and metadata. Server-sent events are in `events.py`."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from bearlake.errors import Denied, NotFound
from bearlake.metadata.model import PartitionBounds
from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import events, lifetimes, lineage, state
from bearlake.protocols.rest.tailing.follow import Follower
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes
from bearlake.protocols.rest.tailing.lineage import Piece
from bearlake.protocols.rest.tailing.state import Tails
from bearlake.serving.http.limits import own_time
from bearlake.serving.http.login import principal_of
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.service import Streams
from bearlake.telemetry import metrics

_CACHE = "private, max-age=60, stale-while-revalidate=300"
_NO_CACHE = "no-store"
TTL_HEADER, EXPIRES_HEADER = "Stream-TTL", "Stream-Expires-At"
LIVE = ("long-poll", "sse")


class ReadRoutes:
    """Handlers that read."""

    def __init__(
        self, streams: Streams, settings: RestSettings, lifetimes: Lifetimes, tails: Tails, draining: asyncio.Event
    ) -> None:
        """`draining` ends requests that follow a stream."""
        self._streams = streams
        self._settings = settings
        self._lifetimes = lifetimes
        self._tails = tails
        self._draining = draining

    async def head(self, request: web.Request) -> web.Response:
        """Get a stream's content type and end."""
        view, index = await self._tails.find(request, Operation.DESCRIBE)
        _, bounds = await self._bounds(principal_of(request), view, index)
        headers = {
            "Content-Type": state.content_type(view),
            "Stream-Next-Offset": state.token(bounds.last_stable),
            "Cache-Control": _NO_CACHE,
        }
        if state.is_closed(view):
            headers["Stream-Closed"] = "true"
        for header, config in ((TTL_HEADER, lifetimes.TTL), (EXPIRES_HEADER, lifetimes.EXPIRES_AT)):
            if config in view.stream.configs:
                headers[header] = view.stream.configs[config]
        return web.Response(headers=headers)

    @own_time
    async def read(self, request: web.Request) -> web.StreamResponse:
        """Read records from an offset."""
        live = request.query.get("live")
        if live is not None and live not in LIVE:
            raise Problem(400, 400, "live: expected long-poll or sse")
        last_seen = request.headers.get("Last-Event-ID") if live == "sse" else None
        if last_seen is not None:
            request = request.clone(rel_url=request.rel_url.update_query(offset=last_seen))
        asked = state.parse_offset(request, is_required=live is not None)
        view, index = await self._tails.find(request, Operation.READ)
        who = principal_of(request)
        pieces, bounds = await self._bounds(who, view, index)
        named = {state.START: bounds.start, state.NOW: bounds.last_stable}
        offset = named.get(asked, 0) if isinstance(asked, str) else asked
        if offset < bounds.start:
            raise Problem(410, 410, f"offset: records before {state.token(bounds.start)} are deleted")
        if offset > bounds.end:
            raise Problem(400, 400, f"offset: the stream ends at {state.token(bounds.end)}")
        self._streams.quotas.require(principal_of(request), QuotaKey.CONSUMER_BYTE_RATE)
        tail = self._tails.get(view, index)
        follower = Follower(self._streams, self._settings, self._lifetimes, who, view, pieces, tail, offset, bounds)
        if live is None:
            return self._charged(request, await self._now(request, follower, is_now=asked == state.NOW))
        metrics.REST_FOLLOWERS.inc()
        try:
            if live == "sse":
                return await events.follow(
                    request, follower, self._tails, self._settings, self._draining, self._streams.quotas
                )
            return self._charged(request, await self._long_poll(request, follower))
        finally:
            metrics.REST_FOLLOWERS.inc(-1)

    async def _now(self, request: web.Request, follower: Follower, *, is_now: bool) -> web.Response:
        start = follower.offset
        values = await follower.up_to_end(self._settings.live_wait_ms, self._settings.fetch_bytes_max)
        headers = self._headers(follower)
        if is_now:
            headers["Cache-Control"] = _NO_CACHE
        else:
            tag = f'"{follower.partition}:{start}:{follower.offset}{":c" if follower.is_at_end_of_closed else ""}"'
            headers["ETag"] = tag
            headers["Cache-Control"] = _CACHE
            if tag in [known.strip() for known in request.headers.get("If-None-Match", "").split(",")]:
                return web.Response(status=304, headers=headers)
        return web.Response(body=follower.joined(values), headers=headers)

    async def _long_poll(self, request: web.Request, follower: Follower) -> web.Response:
        start = follower.offset
        values: list[bytes] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + self._settings.live_wait_ms / 1000
        while not values and not follower.is_at_end_of_closed:
            left_ms = int((until - loop.time()) * 1000)
            values = await follower.next(max(0, left_ms), self._settings.fetch_bytes_max)
            if left_ms <= 0 or self._draining.is_set():
                break
        headers = self._headers(follower)
        headers["Stream-Cursor"] = self._tails.cursor(request.query.get("cursor"))
        if not values:
            headers["Cache-Control"] = _NO_CACHE
            return web.Response(status=204, headers=headers)
        headers["ETag"] = f'"{follower.partition}:{start}:{follower.offset}"'
        headers["Cache-Control"] = _CACHE
        return web.Response(body=follower.joined(values), headers=headers)

    def _charged(self, request: web.Request, response: web.Response) -> web.Response:
        """Raises `Throttled` if other requests have used up the client's quota meanwhile."""
        size, who = len(response.body) if isinstance(response.body, bytes) else 0, principal_of(request)
        if size:
            self._streams.quotas.require(who, QuotaKey.CONSUMER_BYTE_RATE)
            self._streams.quotas.charge(who, QuotaKey.CONSUMER_BYTE_RATE, size)
        return response

    def _headers(self, follower: Follower) -> dict[str, str]:
        headers = {"Content-Type": follower.content_type, "Stream-Next-Offset": state.token(follower.offset)}
        if follower.is_up_to_date:
            headers["Stream-Up-To-Date"] = "true"
        if follower.is_at_end_of_closed:
            headers["Stream-Closed"] = "true"
        return headers

    async def _bounds(self, who: Principal, view: StreamView, index: int) -> tuple[Sequence[Piece], PartitionBounds]:
        """Return the pieces with the partition's records, and its bounds."""
        pieces = await lineage.pieces_of(self._streams.catalog, view, index)
        for piece in pieces:
            if not self._streams.may(who, Operation.READ, piece.name):
                raise Denied(f"{who} may not read from {piece.name!r}, the source of the fork {view.name!r}")
        bounds = await self._streams.bounds([piece.partition for piece in pieces])
        try:
            return pieces, lineage.bounds_of(pieces, bounds, state.closed_end(view, index))
        except NotFound as error:
            raise Problem(404, 404, str(error)) from error
