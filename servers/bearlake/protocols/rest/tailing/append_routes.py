"""POST: append to streams and close them.

Appends of one producer keep their order of arrival; producers do not wait for each other. A retry gets the first answer on any server:
the commit that assigns offsets checks producers and `Stream-Seq`, and a close is stored in the stream's configs.
If a producer was forgotten after its append arrived, a retry may have stored that append in the meantime: the answer is 503.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from aiohttp import web

from bearlake.errors import Overloaded, Unavailable
from bearlake.metadata.model import NamedProducer, PartitionKey
from bearlake.metadata.producer_ids import ProducerIds
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.produce import Writing, error_of
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.tailing import lineage, producers, state
from bearlake.protocols.rest.tailing.appending import Appending
from bearlake.protocols.rest.tailing.lifetimes import Lifetimes
from bearlake.protocols.rest.tailing.producers import Claim, Decision, Producers
from bearlake.protocols.rest.tailing.sequences import Sequences
from bearlake.protocols.rest.tailing.state import Tails
from bearlake.records.codec import Record
from bearlake.serving.http.login import principal_of
from bearlake.streams.append import Append, Result, Verdict
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation, Principal

_PRODUCER_HEADERS = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
_PRODUCER_COUNT_MAX = 100_000
_NUMBER_MAX = 2**53 - 1
_TEXT_LENGTH_MAX = 1_000
_TRY_COUNT = 10


class _Order(NamedTuple):
    """Records to append to a partition for a caller, in the order of `Stream-Seq` if there is one.

    `seen` is the log position that this server knew when the request arrived.
    """

    who: Principal
    view: StreamView
    partition: int
    records: Sequence[Record]
    sequence: str | None
    seen: int


class _Done(NamedTuple):
    """A finished append: the log's end (None: nothing was appended now), the producer headers of the answer, and whether to perform the
    close that came with the append."""

    end: int | None
    headers: dict[str, str]
    is_last: bool


class AppendRoutes:
    """Handlers that append."""

    def __init__(
        self,
        settings: RestSettings,
        lives: Lifetimes,
        tails: Tails,
        writing: Writing,
        appending: Appending,
        names: ProducerIds,
        sequences: Sequences,
    ) -> None:
        self._settings = settings
        self._lives = lives
        self._tails = tails
        self._writing = writing
        self._appending = appending
        self._producers = Producers(names, _PRODUCER_COUNT_MAX)
        self._sequences = sequences

    async def append(self, request: web.Request) -> web.Response:
        """Append the body; with `Stream-Closed`, also close the stream."""
        seen = self._writing.seen
        claim = _claim(request)
        _text(request, "Stream-Seq")
        with await self._writing.room(principal_of(request)) as room:
            body = await bodies.read(request, self._settings.request_bytes_max, room)
            self._writing.check_quota(principal_of(request))
            view, index = await self._tails.find(request, Operation.WRITE)
            if not body and not state.closes(request):
                raise Problem(400, 400, "the body is empty")
            if body and "Content-Type" not in request.headers:
                raise Problem(400, 400, "Content-Type: expected the content type of the stream")
            return await self._appending.shielded(self._append(request, view, index, body, claim, seen), room)

    # -- internal ------------------------------------------------------------------------------------------------

    async def _append(
        self, request: web.Request, view: StreamView, index: int, body: bytes, claim: Claim | None, seen: int
    ) -> web.Response:
        closes = state.closes(request)
        await self._lives.use(view)
        if state.is_closed(view):
            return await self._answer_closed(view, index, claim, closes_only=closes and not body)
        kind = state.content_type(view)
        if body and state.media_type(request.headers["Content-Type"]) != state.media_type(kind):
            raise Problem(409, 409, f"the stream has content type {kind}")
        records = await self._appending.records(kind, body, is_first=False)
        order = _Order(principal_of(request), view, index, records, request.headers.get("Stream-Seq"), seen)
        if claim is not None:
            done = await self._claimed(order, claim)
        else:
            done = _Done(await self._unclaimed(order) if records else None, {}, is_last=True)
        headers = done.headers
        if closes and done.is_last:
            view = await self._appending.close(view, str(claim or ""))
            self._tails.get(view, index).closed.set()
            headers["Stream-Closed"] = "true"
        end = await self._appending.end(view, index) if done.end is None else done.end
        headers["Stream-Next-Offset"] = state.token(lineage.base_of(view) + end)
        return web.Response(status=200 if claim is not None and done.end is not None else 204, headers=headers)

    async def _unclaimed(self, order: _Order) -> int:
        """Append without a producer and return the log's end."""
        who, view, index, records, sequence, _ = order
        if sequence is None:
            end = await self._appending.write(who, view, index, records)
        else:
            verdict, base, _ = await self._once(order, lambda append: append)
            if (error := error_of(verdict)) is not None:
                raise error
            end = base + len(records)
        await self._appending.still_open(view, index, end)
        return end

    async def _once(self, order: _Order, sign: Callable[[Append], Append]) -> Result:
        """Append one batch, in the order of `Stream-Seq` if there is one."""
        who, view, index, _, sequence, seen = order

        async def write(records: Sequence[Record], complete: Callable[[Append], Append]) -> Result:
            signed = partial(_signed, sign, complete)
            return await self._writing.write_once(who, view, index, records, signed, seen)

        if sequence is None:
            return await write(order.records, lambda append: append)
        return await self._sequences.append(view, index, self._tails.get(view, index), sequence, order.records, write)

    async def _claimed(self, order: _Order, claim: Claim) -> _Done:
        """Append on behalf of a producer, unless the append is already stored.

        A close without records is only compared with the last append: after a close there is no next append to keep in sequence.
        """
        view, records = order.view, order.records
        partition = view.partition(order.partition)
        for _ in range(_TRY_COUNT):
            if records and not (order.sequence is not None and await self._is_known(order, partition, claim)):
                producer_id = await self._producers.id_of(partition, claim)
                try:
                    verdict, base, _ = await self._once(order, partial(claim.sign, producer_id=producer_id))
                except Problem:  # an old `Stream-Seq`, or a retry has stored this append in the meantime
                    if not await self._is_known(order, partition, claim):
                        raise
                    continue
                if verdict == Verdict.ACCEPTED:
                    await self._appending.still_open(view, order.partition, base + len(records))
                    return _Done(base + len(records), _echo(claim.epoch, claim.sequence), is_last=True)
                error = error_of(verdict)
                # A forgotten name gets a new id, so the commit can tell whether the append arrived before the name was
                # forgotten.
                if error is not None and verdict not in (
                    Verdict.OUT_OF_ORDER,
                    Verdict.FENCED,
                    Verdict.UNKNOWN_PRODUCER,
                ):
                    raise error
            last = await self._producers.last(partition, claim)
            decision = producers.decide(claim, last)
            if decision is Decision.DUPLICATE:
                # The last append may have been interrupted before its close.
                is_last = bool(records) and claim.sequence == last.last_sequence
                return _Done(None, _echo(last.epoch, last.last_sequence), is_last=is_last)
            if decision is not Decision.ACCEPT:
                self._check_known(order, last)
                raise producers.problem_of(decision, claim, last)
            if not records:
                return _Done(None, _echo(claim.epoch, claim.sequence), is_last=True)
            # The previous append has arrived in the meantime: retry.
        raise Overloaded("too many concurrent appends of this producer")

    async def _is_known(self, order: _Order, partition: PartitionKey, claim: Claim) -> bool:
        """Return whether the commit would reject the append. Checked so that a retry is not mistaken for an old `Stream-Seq`."""
        last = await self._producers.last(partition, claim)
        self._check_known(order, last)
        return producers.decide(claim, last) is not Decision.ACCEPT

    def _check_known(self, order: _Order, last: NamedProducer) -> None:
        """Raise `Unavailable` if the producer was forgotten since the request arrived: a retry may have stored the append before that."""
        if last.epoch < 0 and order.seen < last.floor:
            # Without this step, the next request is just as stale if this server's follower is stuck.
            self._writing.advance(last.floor)
            raise Unavailable("the producer expired concurrently; the records may or may not be stored")

    async def _answer_closed(
        self, view: StreamView, index: int, claim: Claim | None, *, closes_only: bool
    ) -> web.Response:
        """Answer for a closed stream: success for its closer or for a pure close, else `Problem`."""
        view = await self._appending.close(view, "")  # complete an interrupted close
        end = lineage.base_of(view) + await self._appending.end(view, index)
        headers = {"Stream-Next-Offset": state.token(end), "Stream-Closed": "true"}
        if claim is not None:
            last = await self._producers.last(view.partition(index), claim)
            if producers.decide(claim, last) is Decision.STALE_EPOCH:
                raise producers.problem_of(Decision.STALE_EPOCH, claim, last)
            if state.closed_by(view) == str(claim):
                return web.Response(status=204, headers=headers | _echo(claim.epoch, claim.sequence))
        elif closes_only:
            return web.Response(status=204, headers=headers)
        raise Problem(409, 409, "the stream is closed", headers)


def _signed(sign: Callable[[Append], Append], complete: Callable[[Append], Append], append: Append) -> Append:
    return complete(sign(append))


def _echo(epoch: int, sequence: int) -> dict[str, str]:
    return {"Producer-Epoch": str(epoch), "Producer-Seq": str(sequence)}


def _claim(request: web.Request) -> Claim | None:
    producer_id, epoch, sequence = (_text(request, name) for name in _PRODUCER_HEADERS)
    if producer_id is None and epoch is None and sequence is None:
        return None
    if producer_id is None or epoch is None or sequence is None:
        raise Problem(400, 400, f"{', '.join(_PRODUCER_HEADERS)}: expected all or none")
    if not producer_id:
        raise Problem(400, 400, "Producer-Id: expected at least one character")
    return Claim(producer_id, _number(epoch, "Producer-Epoch"), _number(sequence, "Producer-Seq"))


def _text(request: web.Request, name: str) -> str | None:
    text = request.headers.get(name)
    try:
        if text is not None and len(text.encode()) > _TEXT_LENGTH_MAX:
            raise Problem(400, 400, f"{name}: at most {_TEXT_LENGTH_MAX} bytes")
    except UnicodeEncodeError as error:
        raise Problem(400, 400, f"{name}: expected UTF-8") from error
    return text


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= _NUMBER_MAX):
        raise Problem(400, 400, f"{name}: expected a whole number from 0 to {_NUMBER_MAX}")
    return int(text)
