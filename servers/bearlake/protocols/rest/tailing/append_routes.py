"""PUT, POST and DELETE: streams are created, appended to, closed and deleted."""

import asyncio
import json
import re

from aiohttp import web

from bearlake.errors import AlreadyExists, NotFound
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import state
from bearlake.protocols.rest.tailing.producers import Claim, Decision
from bearlake.protocols.rest.tailing.state import Tail, Tails
from bearlake.records.codec import Record
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import ANONYMOUS, Operation
from bearlake.streams.service import Streams

_PRODUCER_HEADERS = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
_NUMBER_MAX = 2**53 - 1
_TEXT_LENGTH_MAX = 1_000
_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+\s*(;[\x20-\x7e]*)?\Z")
_REFUSED_HEADERS = ("Stream-TTL", "Stream-Expires-At", "Stream-Forked-From", "Stream-Fork-Offset")


class AppendRoutes:
    """Handlers that write."""

    def __init__(self, streams: Streams, settings: RestSettings, writing: Writing, tails: Tails) -> None:
        self._streams = streams
        self._settings = settings
        self._writing = writing
        self._tails = tails
        self._tasks: set[asyncio.Task[web.Response]] = set()

    async def create(self, request: web.Request) -> web.Response:
        """Create a stream of one partition; the same again is well."""
        for name in _REFUSED_HEADERS:
            if name in request.headers:
                raise Problem(400, 400, f"{name} is not served here: retention.ms and copies are the ways")
        wanted = request.headers.get("Content-Type", state.DEFAULT_TYPE)
        if len(wanted) > _TEXT_LENGTH_MAX or not _TYPE.match(wanted):
            raise Problem(400, 400, "Content-Type: expected a media type")
        closes = _closes(request)
        await self._writing.room()
        body = await bodies.read(request, self._settings.request_bytes_max)
        records = self._records(wanted, body, is_first=True)
        name = request.match_info["name"]
        configs = {state.CONTENT_TYPE: wanted}
        if closes and not records:
            configs[state.CLOSED] = "true"
        try:
            view = await self._streams.create(ANONYMOUS, name, 1, configs)
            status = 201
        except AlreadyExists:
            view, status = await self._streams.catalog.find(name), 200
            if (
                state.media_type(state.content_type(view)) != state.media_type(wanted)
                or state.is_closed(view) != closes
            ):
                raise Problem(409, 409, f"stream {name} exists with another content type or state") from None
        if status == 201 and records:
            await self._write(view, 0, records)
            if closes:
                view = await self._close(view, self._tails.get(view, 0))
        headers = {"Content-Type": state.content_type(view), "Stream-Next-Offset": await self._next(view, 0)}
        if state.is_closed(view):
            headers["Stream-Closed"] = "true"
        if status == 201:
            headers["Location"] = f"{request.scheme}://{request.host}{request.rel_url.raw_path}"
        return web.Response(status=status, headers=headers)

    async def append(self, request: web.Request) -> web.Response:
        """Append the body; with `Stream-Closed` close, too."""
        closes = _closes(request)
        claim = _claim(request)
        await self._writing.room()
        body = await bodies.read(request, self._settings.request_bytes_max)
        view, index = await self._tails.find(request, Operation.WRITE)
        if not body and not closes:
            raise Problem(400, 400, "the body is empty")
        if body and "Content-Type" not in request.headers:
            raise Problem(400, 400, "Content-Type: expected that of the stream")
        # Not undone when the client goes away meanwhile: its retry must find the producer's state as the log is.
        task = asyncio.get_running_loop().create_task(self._append(request, view, index, body, claim))
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return await asyncio.shield(task)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete the stream with all partitions."""
        name = request.match_info["name"]
        try:
            await self._streams.delete(ANONYMOUS, name)
        except NotFound as error:
            raise Problem(404, 404, f"no stream {name[:249]}") from error
        return web.Response(status=204)

    # -- inside --------------------------------------------------------------------------------------------------

    async def _append(
        self, request: web.Request, view: StreamView, index: int, body: bytes, claim: Claim | None
    ) -> web.Response:
        closes = _closes(request)
        tail = self._tails.get(view, index)
        async with tail.lock:
            view = await self._streams.catalog.find(view.name)
            done = await self._known(view, index, tail, claim, closes_only=closes and not body)
            if done is not None:
                return done
            wanted = request.headers.get("Content-Type", "")
            if body and state.media_type(wanted) != state.media_type(state.content_type(view)):
                raise Problem(409, 409, f"the stream has content type {state.content_type(view)}")
            sequence = _sequence(request, tail)
            records = self._records(state.content_type(view), body, is_first=False) if body else []
            end = await self._write(view, index, records) if records else await self._next(view, index)
            if sequence is not None:
                tail.sequence = sequence
            if claim is not None:
                tail.producers.accepted(claim)
            if closes:
                view = await self._close(view, tail)
                tail.closed_by = claim
        headers = {"Stream-Next-Offset": end}
        if closes:
            headers["Stream-Closed"] = "true"
        if claim is not None:
            headers |= {"Producer-Epoch": str(claim.epoch), "Producer-Seq": str(claim.sequence)}
        return web.Response(status=200 if claim is not None and records else 204, headers=headers)

    async def _known(
        self, view: StreamView, index: int, tail: Tail, claim: Claim | None, *, closes_only: bool
    ) -> web.Response | None:
        """The answer to an append that was done before, None for a new one. Raises `Problem` for one that must not be done."""
        closed = state.is_closed(view)
        headers = {"Stream-Next-Offset": await self._next(view, index)}
        if closed:
            headers["Stream-Closed"] = "true"
        if claim is not None:
            decision = tail.producers.decide(claim)
            last = tail.producers.last(claim.id)
            if decision is Decision.STALE_EPOCH:
                assert last is not None
                epoch = {"Producer-Epoch": str(last.epoch)}
                raise Problem(403, 403, f"the producer's epoch is {last.epoch} by now", epoch)
            if decision is Decision.DUPLICATE and (not closed or tail.closed_by == claim):
                assert last is not None
                headers |= {"Producer-Epoch": str(last.epoch), "Producer-Seq": str(last.sequence)}
                return web.Response(status=204, headers=headers)
            if not closed and decision is Decision.EPOCH_STARTS_AT_ZERO:
                raise Problem(400, 400, "Producer-Seq: a new epoch starts at 0")
            if not closed and decision is Decision.GAP:
                expected = last.sequence + 1 if last is not None else 0
                numbers = {"Producer-Expected-Seq": str(expected), "Producer-Received-Seq": str(claim.sequence)}
                raise Problem(409, 409, f"Producer-Seq: expected {expected}", numbers)
        if closed:
            if closes_only and claim is None:
                return web.Response(status=204, headers=headers)
            raise Problem(409, 409, "the stream is closed", headers)
        return None

    def _records(self, content_type: str, body: bytes, *, is_first: bool) -> list[Record]:
        now_ms = self._writing.now_ms()
        if state.media_type(content_type) != state.JSON_TYPE:
            return [Record(value=body, timestamp=now_ms)] if body else []
        if not body:
            return []
        value = bodies.parse(body)
        values = value if isinstance(value, list) else [value]
        if not values and not is_first:
            raise Problem(400, 400, "the list is empty")
        try:
            texts = [json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode() for one in values]
        except UnicodeEncodeError as error:
            raise Problem(400, 400, "text with a half surrogate pair has no UTF-8") from error
        return [Record(value=text, timestamp=now_ms) for text in texts]

    async def _write(self, view: StreamView, index: int, records: list[Record]) -> str:
        """Append; the token behind the last record. Raises the first error."""
        written = await self._writing.write(ANONYMOUS, view, [(index, record) for record in records])
        for one in written:
            if one.error is not None:
                raise one.error
        return state.token(written[-1].offset + 1)

    def _finished(self, task: asyncio.Task[web.Response]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # who asked may have gone

    async def _next(self, view: StreamView, index: int) -> str:
        key = view.partition(index)
        bounds = (await self._streams.bounds([key])).get(key)
        if bounds is None:
            raise Problem(404, 404, f"no stream {view.name}")
        return state.token(bounds.end)

    async def _close(self, view: StreamView, tail: Tail) -> StreamView:
        closed = await self._streams.alter(ANONYMOUS, view.name, {state.CLOSED: "true"}, [])
        tail.closed.set()
        return closed


def _closes(request: web.Request) -> bool:
    return request.headers.get("Stream-Closed", "").lower() == "true"


def _claim(request: web.Request) -> Claim | None:
    given = [request.headers.get(name) for name in _PRODUCER_HEADERS]
    if given == [None, None, None]:
        return None
    producer_id, epoch, sequence = given
    if producer_id is None or epoch is None or sequence is None:
        raise Problem(400, 400, f"{', '.join(_PRODUCER_HEADERS)}: expected all or none")
    if not 1 <= len(producer_id) <= _TEXT_LENGTH_MAX:
        raise Problem(400, 400, f"Producer-Id: expected 1 to {_TEXT_LENGTH_MAX} characters")
    return Claim(producer_id, _number(epoch, "Producer-Epoch"), _number(sequence, "Producer-Seq"))


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= _NUMBER_MAX):
        raise Problem(400, 400, f"{name}: expected a whole number from 0 to {_NUMBER_MAX}")
    return int(text)


def _sequence(request: web.Request, tail: Tail) -> str | None:
    sequence = request.headers.get("Stream-Seq")
    if sequence is not None:
        if len(sequence) > _TEXT_LENGTH_MAX:
            raise Problem(400, 400, f"Stream-Seq: at most {_TEXT_LENGTH_MAX} characters")
        if tail.sequence is not None and sequence <= tail.sequence:
            raise Problem(409, 409, f"Stream-Seq: expected more than {tail.sequence}")
    return sequence
