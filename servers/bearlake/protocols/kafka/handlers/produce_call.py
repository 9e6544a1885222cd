"""A Produce request in progress, and its response."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Protocol

from bearlake import kernel
from bearlake.kernel import ProduceEntry, ProducePlace, ProduceResult
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.errors import VERDICT_CODES, ErrorCode
from bearlake.protocols.kafka.messages import ProduceResponse
from bearlake.protocols.kafka.slot import Place, Slot
from bearlake.streams.append import AppendCall, Result, Verdict
from bearlake.streams.configs import StreamRules
from bearlake.telemetry import metrics

MESSAGES_MAX = 1_000
"""Partitions of a response that has messages for people: objects per partition take ten times as long as error codes alone."""


BEGINS_FROM = 12
"""From this version of Produce on, a batch adds its partition to the transaction (KIP-890)."""


class Requester(Protocol):
    """The connection that sent Produce requests: `connection.Connection`."""

    produce_tail: asyncio.Task[None] | None
    arrived: int
    """The log position that this server had seen before the requests in progress arrived."""

    @property
    def context(self) -> KafkaContext:
        """State that the server's connections share."""

    def add(self, place: Place) -> None:
        """Queue the requests of `place` for their answer."""

    def answer(self, place: Place, chunks: Sequence[codec.Buffer]) -> None:
        """Complete a place; without chunks its requests get no response."""

    def close(self, why: str, reason: str) -> None:
        """Close the connection at once; `reason` is a metric label."""

    def failed(self, error: Exception) -> None:
        """Close the connection because of a bug."""

    def start(self, work: Coroutine[None, None, None], *, is_cancelled_on_close: bool) -> asyncio.Task[None]:
        """Run a request's coroutine as a task."""


class Refusal:
    """Why one partition's batch is not appended."""

    __slots__ = ("code", "message", "record_errors")

    def __init__(
        self, code: ErrorCode, message: str | None = None, record_errors: Sequence[tuple[int, str]] = ()
    ) -> None:
        """`record_errors`: the indexes of bad records, and what is wrong with each (KIP-467)."""
        self.code = code
        self.message = message
        self.record_errors = record_errors


class ProduceCall:
    """One Produce request in progress: its entries, those rejected at once, and the append of the rest."""

    __slots__ = (
        "caller",
        "checked",
        "connection",
        "correlation_id",
        "entries",
        "now_ms",
        "outcomes",
        "owners",
        "seen",
        "slot",
        "stamped",
        "transactional_id",
    )

    def __init__(
        self,
        connection: Requester,
        slot: Slot | None,
        caller: Caller,
        correlation_id: int,
        entries: list[ProduceEntry],
    ) -> None:
        self.connection = connection
        self.slot = slot
        """The slot of the response; None for acks=0."""
        self.caller = caller
        self.correlation_id = correlation_id
        self.entries = entries
        self.now_ms = connection.context.streams.clock.now_ms()
        self.seen = connection.arrived
        self.transactional_id: str | None = None
        self.owners: dict[int, str] = {}
        """Transactional ids of the producer ids that were looked up; "": none, or the look-up failed."""
        self.outcomes: list[Refusal | None] = [None] * len(entries)
        self.checked: dict[int, StreamRules] = {}
        """Rules by which the records of batches are known to be good, by index in `entries`. Other rules ask for another check."""
        self.stamped: set[int] = set()
        """Indexes in `entries` of the batches that got the log append time `now_ms`."""

    def owner(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer id, "" if it has none; None if it must be looked up first."""
        owner = self.owners.get(producer_id)
        return self.connection.context.streams.transactions.owner(producer_id) if owner is None else owner

    def done(self, call: AppendCall) -> None:
        """Called when every submitted batch has its result."""
        chunks = self.frames(list(call))
        if self.slot is not None:
            self.connection.answer(self.slot, chunks)

    def frames(self, outcomes: Sequence[Result]) -> Sequence[codec.Buffer]:
        """The response frame for these append results. For acks=0 there is none; an error closes the connection instead."""
        throttle_ms = 0 if self.slot is None or self.slot.owed_ms is None else self.slot.owed_ms()
        results: list[ProduceResult] = []
        has_errors = has_messages = False
        appended = iter(outcomes)
        for place, (entry, refusal) in enumerate(zip(self.entries, self.outcomes, strict=True)):
            topic, index = entry[0], entry[1]
            if refusal is not None:
                has_errors = True
                has_messages = has_messages or (refusal.message is not None and len(self.entries) <= MESSAGES_MAX)
                results.append((topic, index, refusal.code, -1, -1, -1))
                metrics.KAFKA_ERRORS.labels("PRODUCE", refusal.code.name).inc()
                continue
            stamp_ms = self.now_ms if place in self.stamped else -1
            result = result_of((topic, index), next(appended), stamp_ms, begins=self.caller.version >= BEGINS_FROM)
            has_errors = has_errors or result[2] != ErrorCode.NONE
            results.append(result)
        if self.slot is None:
            # As in Kafka: closing is the only error signal for acks=0; the client then refreshes its metadata.
            if has_errors:
                self.connection.close("a Produce request with acks=0 failed", "acks_0_error")
            return ()
        version = self.caller.version
        if has_messages:
            return codec.response(ApiKey.PRODUCE, version).frame(
                self.correlation_id, self._with_messages(results, throttle_ms)
            )
        return [kernel.encode_produce_response(version, self.correlation_id, results, throttle_ms)]

    def _with_messages(self, results: Sequence[ProduceResult], throttle_ms: int) -> ProduceResponse:
        topics: list[ProduceResponse.Topic] = []
        last: str | bytes | None = None
        for (topic, index, code, base_offset, stamp, start_offset), refusal in zip(results, self.outcomes, strict=True):
            if topic != last:
                last = topic
                named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
                topics.append(ProduceResponse.Topic(**named, partition_responses=[]))
            partition = ProduceResponse.Partition(
                index=index,
                error_code=code,
                base_offset=base_offset,
                log_append_time_ms=stamp,
                log_start_offset=start_offset,
            )
            if refusal is not None:
                partition.error_message = refusal.message
                partition.record_errors = [
                    ProduceResponse.RecordError(batch_index=index, batch_index_error_message=message)
                    for index, message in refusal.record_errors
                ]
            topics[-1].partition_responses.append(partition)
        return ProduceResponse(responses=topics, throttle_time_ms=throttle_ms)


def result_of(place: ProducePlace, outcome: Result, stamp_ms: int, *, begins: bool = False) -> ProduceResult:
    """Return what a response says of a batch that was submitted; `stamp_ms`: its log append time, or -1.

    `begins`: the batch adds its partition to the transaction, which only a forgotten transactional id prevents.
    """
    topic, index = place
    verdict, base_offset, start_offset = outcome
    code = VERDICT_CODES[verdict]
    if not code:
        return topic, index, code, base_offset, stamp_ms, start_offset
    if verdict == Verdict.NOT_FOUND and not isinstance(topic, str):
        code = ErrorCode.UNKNOWN_TOPIC_ID
    if verdict == Verdict.NO_TRANSACTION and begins:
        code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    metrics.KAFKA_ERRORS.labels("PRODUCE", code.name).inc()
    return topic, index, code, base_offset, -1, start_offset
