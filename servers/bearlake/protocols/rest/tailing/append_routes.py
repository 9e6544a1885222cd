"""POST: streams are appended to and closed."""

import asyncio

from aiohttp import web

from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.produce import Writing
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import lineage, state
from bearlake.protocols.rest.tailing.appending import Appending
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes
from bearlake.protocols.rest.tailing.producers import Claim, Decision
from bearlake.protocols.rest.tailing.state import Tail, Tails
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation
from bearlake.streams.service import Streams

_PRODUCER_HEADERS = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
_NUMBER_MAX = 2**53 - 1
_TEXT_LENGTH_MAX = 1_000


class AppendRoutes:
    """Handlers that append."""

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
        self._tasks: set[asyncio.Task[web.Response]] = set()

    async def append(self, request: web.Request) -> web.Response:
        """Append the body; with `Stream-Closed` close, too."""
        closes = state.closes(request)
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

    # -- inside --------------------------------------------------------------------------------------------------

    async def _append(
        self, request: web.Request, view: StreamView, index: int, body: bytes, claim: Claim | None
    ) -> web.Response:
        closes = state.closes(request)
        await self._lives.use(view)
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
            records = self._appending.records(state.content_type(view), body, is_first=False)
            if records:
                end = await self._appending.write(view, index, records)
                await self._appending.still_open(view, index, end)
            else:
                end = await self._appending.end(view, index)
            if sequence is not None:
                tail.sequence = sequence
            if claim is not None:
                tail.producers.accepted(claim)
            if closes:
                view = await self._appending.close(view, str(claim or ""))
                tail.closed.set()
        headers = {"Stream-Next-Offset": state.token(lineage.base_of(view) + end)}
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
        end = lineage.base_of(view) + await self._appending.end(view, index)
        headers = {"Stream-Next-Offset": state.token(end)}
        if closed:
            headers["Stream-Closed"] = "true"
        if claim is not None:
            decision = tail.producers.decide(claim)
            last = tail.producers.last(claim.id)
            if decision is Decision.STALE_EPOCH:
                assert last is not None
                epoch = {"Producer-Epoch": str(last.epoch)}
                raise Problem(403, 403, f"the producer's epoch is {last.epoch} by now", epoch)
            if decision is Decision.DUPLICATE and (not closed or state.closed_by(view) == str(claim)):
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

    def _finished(self, task: asyncio.Task[web.Response]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # who asked may have gone


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
