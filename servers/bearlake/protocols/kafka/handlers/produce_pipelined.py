"""Pipelined Produce requests: consecutive requests of one client, taken in one native call and answered in one write.

One WAL flush answers several requests of a client at once, and the client then sends as many again. `produce.py` handles requests that
need special handling: a different client id or version, acks=0, an unknown stream, or a batch that must be validated in a thread.

Once requests for one topic were taken, the client's right and the stream's rules stay known for a generation (`streams/generation.py`). The
connection's next requests are bound by them: they are taken without a question (`turn.py`).
"""

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from typing_extensions import override

from bearlake import kernel
from bearlake.kernel import BoundTransaction, PlainRules, ProduceEntry
from bearlake.metadata.transactions import BATCH_BEGINS
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.handlers.produce import (
    AT_ONCE_BYTES_MAX,
    AT_ONCE_COUNT_MAX,
    refused_transaction,
    resolve,
)
from bearlake.protocols.kafka.handlers.produce_call import BEGINS_FROM, Requester, result_of
from bearlake.protocols.kafka.slot import Place
from bearlake.records.batch import ATTRIBUTE_TRANSACTIONAL
from bearlake.serving.slabs import Slab
from bearlake.streams.admission import Header, admit
from bearlake.streams.append import UNAVAILABLE, Append, Call
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import Checked
from bearlake.telemetry.containment import fault

log = logging.getLogger(__name__)

Lead: TypeAlias = tuple[Caller, bytes]
"""What pipelined requests share: the caller with its API version, and the header bytes after the correlation id."""


class Binding(NamedTuple):
    """What is known about the next Produce requests of a connection, as long as the generation is the same."""

    generation: int
    caller: Caller
    requests: kernel.ProduceBinding


class PipelinedRequester(Requester, Protocol):
    """A connection that takes pipelined requests."""

    def bind(self, binding: Binding) -> None:
        """Take the Produce requests that have the lead of the last one by this binding."""

    def answer_produced(self, place: Place, frames: bytes) -> None:
        """As `answer`; at once if the client waits for nothing else."""


class ProduceCalls(kernel.ProduceResults, Call):
    """Pipelined Produce requests in progress, and their place in the connection's order: one write answers all requests.

    Every batch is appended unchanged.
    """

    __slots__ = ("caller", "chunks", "connection", "size", "started")
    api = ApiKey.PRODUCE
    count = kernel.ProduceResults.request_count
    connection: PipelinedRequester
    caller: Caller
    chunks: Sequence[codec.Buffer] | None
    size: int
    started: float

    def began(self, connection: PipelinedRequester, caller: Caller) -> None:
        """Called once, when the requests were taken: a constructor in Python would cost as much as the rest of this object."""
        self.connection = connection
        self.caller = caller
        self.chunks = None
        self.size = 0
        self.started = time.perf_counter()

    @override
    def done(self) -> None:
        """As in `Call`, with one call fewer on the hottest path."""
        try:
            frames = self.frames()
            if frames is not None:
                self.connection.answer_produced(self, frames)
            else:
                self.connection.answer(self, self._refused())
        except Exception as error:  # noqa: BLE001 - boundary: one connection
            fault(log, "answer an append", error, self.failed)

    @override
    def answer(self) -> None:
        """Never called: `done` answers."""
        raise AssertionError

    @override
    def failed(self, error: Exception) -> None:
        """Close the connection."""
        self.connection.failed(error)

    def _refused(self) -> list[codec.Buffer]:
        """Return the response frames if not every batch was appended."""
        frames: list[codec.Buffer] = []
        version = self.caller.version
        for correlation_id, places, outcomes in self.requests():
            results = [
                result_of(place, outcome, -1, begins=version >= BEGINS_FROM)
                for place, outcome in zip(places, outcomes, strict=True)
            ]
            frames.append(kernel.encode_produce_response(version, correlation_id, results, 0))
        return frames


class _Admission:
    """Admits the batches of one caller, as `kernel.take_produces` asks."""

    __slots__ = (
        "_caller",
        "_context",
        "_left",
        "_now_ms",
        "_slab",
        "_transaction",
        "_transactional_id",
        "_view",
        "is_plain",
        "topics",
    )

    def __init__(self, context: KafkaContext, caller: Caller, slab: Slab) -> None:
        self._context = context
        self._caller = caller
        self._slab = slab
        self._now_ms = context.streams.clock.now_ms()
        self._left = AT_ONCE_COUNT_MAX
        self._view: StreamView | None = None
        self._transactional_id: str | None = None
        self._transaction: BoundTransaction | None = None  # of the newest transactional batch
        self.topics: list[str | bytes] = []
        """The topics that were asked for, in order."""
        self.is_plain = True
        """Whether no batch needed more than its topic's rules, and the owner of its producer id."""

    def transaction(self, transactional_id: str | None) -> bool:
        """Return whether the caller may write in transactions of this transactional id."""
        self._transaction = None
        if transactional_id is not None and refused_transaction(self._context, self._caller, transactional_id):
            return False
        self._transactional_id = transactional_id
        return True

    def rules(self, topic: str | bytes) -> PlainRules | None:
        """Return the rules of a stream to which the caller may write."""
        if self._is_much():
            return None
        self.topics.append(topic)
        found = resolve(self._context, self._caller, topic)
        self._view = found if isinstance(found, StreamView) else None
        return None if self._view is None else self._view.plain_rules(self._now_ms)

    def known(self) -> tuple[str | bytes, PlainRules, BoundTransaction | None] | None:
        """Return the only topic that was asked for, its rules with times relative to now, and the transaction of the newest batch.

        None if there is no such topic, if there is a transactional id without a transactional batch, or if the rules did not suffice: then
        they would not suffice for the next batch either, which would be looked at twice.
        """
        if self._view is None or len(self.topics) != 1 or not self.is_plain:
            return None
        if (self._transactional_id is None) != (self._transaction is None):
            return None
        rules = self._view.plain_rules(0)
        return None if rules is None else (self.topics[0], rules, self._transaction)

    def _is_much(self) -> bool:
        """Count a question; returns whether so many were asked that the request needs more than one turn of the event loop."""
        self._left -= 1
        return self._left < 0

    def flags(self, entry: ProduceEntry) -> int:
        """Return the flags of a batch that stays unchanged and whose check is little work; -1 if it needs special handling."""
        _, index, start, end, status, *header = entry
        was_plain, self.is_plain = self.is_plain, False
        view = self._view
        assert view is not None
        if (
            self._is_much()
            or status
            or not 0 <= index < view.partition_count
            or end - start > view.rules.batch_bytes_max
        ):
            return -1
        fields = Header(*header)
        is_transactional = fields.attributes & ATTRIBUTE_TRANSACTIONAL != 0
        if is_transactional and not self._owns(fields.producer_id):
            return -1
        batch = self._slab.view[start:end]
        if self._context.streams.checks.at_once(batch, fields.attributes, view.rules, Checked.NOTHING) is not True:
            return -1
        admitted = admit(view, index, batch, None, fields, self._now_ms, Checked.ALL)
        if not isinstance(admitted, Append):
            return -1
        if not is_transactional:
            return admitted.flags
        flags = admitted.flags | (BATCH_BEGINS if self._caller.version >= BEGINS_FROM else 0)
        assert self._transactional_id is not None
        self._transaction = BoundTransaction(self._transactional_id, fields.producer_id, flags)
        self.is_plain = was_plain
        return flags

    def _owns(self, producer_id: int) -> bool:
        """Whether the producer id is known to belong to the request's transactional id."""
        owner = self._context.streams.transactions.owner(producer_id)
        return owner is not None and owner == self._transactional_id


def take(connection: PipelinedRequester, lead: Lead, slab: Slab, low: int, high: int, count_max: int) -> int:
    """Take consecutive Produce requests that need no special handling from `[low, high)` of `slab`, at most `count_max`.

    They have the version and the client of `lead`. Returns the position of the next request. Binds the requests after them, if that is
    possible.
    """
    caller, header = lead
    context = connection.context
    streams = context.streams
    generation = streams.generation.number
    size_max = min(context.settings.request_bytes_max, AT_ONCE_BYTES_MAX)
    admission = _Admission(context, caller, slab)
    checks, is_full = streams.checks, True
    while is_full and count_max > 0 and (buffer := streams.open_buffer()) is not None:
        calls = ProduceCalls(UNAVAILABLE)
        low, is_full, checked_bytes = kernel.take_produces(
            buffer, calls, slab.view, slab, low, high, caller.version, header, size_max, count_max,
            checks.budget.left, admission, connection.arrived,
        )  # fmt: skip
        if checked_bytes:
            checks.budget.spend(checked_bytes)
        if calls.request_count:
            calls.began(connection, caller)
            count_max -= calls.count
            connection.add(calls)
            streams.added(calls)
        if is_full:
            streams.close_buffer()
    if streams.keeps_answers and streams.quotas.usage is None and (known := admission.known()) is not None:
        requests = kernel.ProduceBinding(caller.version, header, size_max, *known)
        connection.bind(Binding(generation, caller, requests))
    return low
