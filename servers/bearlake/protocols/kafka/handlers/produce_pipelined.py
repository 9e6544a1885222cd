"""Pipelined Produce requests: consecutive requests of one client, parsed in one native call, appended in one call, answered in one write.

One WAL flush answers several requests of a client at once, and the client then sends as many again. `produce.py` handles requests that
need special handling: a different client id or version, acks=0, an unknown stream, or a batch that must be validated.
"""

from collections.abc import Sequence
from typing import TypeAlias

from bearlake import kernel
from bearlake.kernel import ProduceEntry, ProduceRequestPlace
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller, KafkaContext
from bearlake.protocols.kafka.handlers.produce import ProduceCall, Requester, resolve
from bearlake.protocols.kafka.slot import Slot
from bearlake.serving.slabs import Slab
from bearlake.streams.admission import Header, admit
from bearlake.streams.append import Append, AppendCall
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import Checked

Lead: TypeAlias = tuple[Caller, bytes]
"""What pipelined requests share: the caller with its API version, and the header bytes after the correlation id."""


class ProduceCalls:
    """Pipelined Produce requests in progress: every batch is appended unchanged, and one write answers all requests."""

    __slots__ = ("caller", "connection", "entries", "requests", "slot")

    def __init__(
        self,
        connection: Requester,
        slot: Slot,
        caller: Caller,
        requests: Sequence[ProduceRequestPlace],
        entries: list[ProduceEntry],
    ) -> None:
        self.connection = connection
        self.slot = slot
        self.caller = caller
        self.requests = requests
        self.entries = entries

    def done(self, call: AppendCall) -> None:
        """Called when every batch has its result."""
        frames: list[codec.Buffer] = []
        start = 0
        for _, correlation_id, count in self.requests:
            end = start + count
            entries, outcomes = self.entries[start:end], call.results[start:end]
            frame = kernel.encode_produce_appended(self.caller.version, correlation_id, entries, outcomes)
            if frame is not None:
                frames.append(frame)
            else:
                frames += ProduceCall(self.connection, self.slot, self.caller, correlation_id, entries).frames(outcomes)
            start = end
        self.connection.answer(self.slot, frames)


def _append(
    connection: Requester,
    slot: Slot,
    caller: Caller,
    requests: Sequence[ProduceRequestPlace],
    entries: list[ProduceEntry],
    slab: Slab,
) -> bool:
    """Append all batches of the requests that `kernel.parse_produces` found in `slab`, and queue `slot` for their answer.

    Returns False, with nothing done, if a batch needs special handling: `produce.receive` then handles each request.
    """
    context = connection.context
    now_ms = context.streams.clock.now_ms()
    appends: list[Append] = []
    at, count = 0, len(entries)
    while at < count:
        topic = entries[at][0]
        found = resolve(context, caller, topic)
        rules = found.plain_rules(now_ms) if isinstance(found, StreamView) else None
        if rules is None or not isinstance(found, StreamView):
            return False
        at = kernel.admit_plain(entries, at, slab.view, slab, rules, appends)
        if at < count and entries[at][0] == topic:
            append = _admit_light(context, found, entries[at], slab.view, slab, now_ms)
            if append is None:
                return False
            appends.append(append)
            at += 1
    connection.add(slot)
    calls = ProduceCalls(connection, slot, caller, requests, entries)
    context.streams.submit(AppendCall(appends, calls.done, connection.arrived, connection.failed))
    return True


def _admit_light(
    context: KafkaContext, view: StreamView, entry: ProduceEntry, frame: memoryview, slab: Slab, now_ms: int
) -> Append | None:
    """Admit one batch that stays unchanged and whose check is little work; None if it needs `receive`."""
    _, index, start, end, status, *header = entry
    if status or not 0 <= index < view.partition_count or end - start > view.rules.batch_bytes_max:
        return None
    fields = Header(*header)
    batch = frame[start:end]
    if context.streams.checks.at_once(batch, fields.attributes, view.rules, Checked.NOTHING) is not True:
        return None
    admitted = admit(view, index, batch, slab, fields, now_ms, Checked.ALL)
    return admitted if isinstance(admitted, Append) else None


def take(connection: Requester, lead: Lead, slab: Slab, low: int, high: int, count_max: int) -> int:
    """Take consecutive Produce requests that need no special handling from `[low, high)` of `slab`, at most `count_max`.

    They have the version and the client of `lead`. Returns the position of the next request.
    """
    caller, header = lead
    size_max = connection.context.settings.request_bytes_max
    requests, entries = kernel.parse_produces(slab.view, low, high, caller.version, header, size_max, count_max)
    if not requests:
        return low
    slot = Slot(ApiKey.PRODUCE, len(requests))
    return requests[-1][0] if _append(connection, slot, caller, requests, entries, slab) else low
