"""Pipelined Produce requests: consecutive requests of one client, parsed by one native call, appended in one call, answered in one write.

A client that waits for answers gets several at once from a flush, and sends as many requests again. `produce.py` takes requests that need
special handling: another client id or version, acks=0, an unknown stream, a batch that must be validated.
"""

from collections.abc import Sequence
from typing import TypeAlias

from bearlake import kernel
from bearlake.kernel import ProduceEntry, ProduceRequestPlace
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller
from bearlake.protocols.kafka.handlers.produce import ProduceCall, Requester, resolve
from bearlake.protocols.kafka.slot import Slot
from bearlake.serving.slabs import Slab
from bearlake.streams.append import Append, AppendCall
from bearlake.streams.catalog import StreamView

Lead: TypeAlias = tuple[Caller, bytes]
"""What pipelined requests have in common: version and caller, and the bytes of the header behind the correlation id."""


class ProduceCalls:
    """Pipelined Produce requests under way: every batch is appended as it came, and one write answers all of them."""

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
        """Callback of the waist: every batch has its outcome."""
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
    """Append all batches of requests that lie in `slab` (`kernel.parse_produces`) and give the requests `slot`.

    Returns False, with nothing done, when a batch needs special handling: then `produce.receive` takes each request.
    """
    context = connection.context
    now_ms = context.streams.clock.now_ms()
    appends: list[Append] = []
    at, count = 0, len(entries)
    while at < count:
        topic = entries[at][0]
        found = resolve(context, caller, topic)
        rules = found.plain_rules(now_ms) if isinstance(found, StreamView) else None
        if rules is None:
            return False
        at = kernel.admit_plain(entries, at, slab.view, slab, rules, appends)
        if at < count and entries[at][0] == topic:
            return False
    connection.add(slot)
    calls = ProduceCalls(connection, slot, caller, requests, entries)
    context.streams.submit(AppendCall(appends, calls.done, connection.arrived))
    return True


def take(connection: Requester, lead: Lead, slab: Slab, low: int, high: int, count_max: int) -> int:
    """Take consecutive Produce requests from `[low, high)` of `slab` that need no special handling, at most `count_max`.

    They have the version and the client of `lead`. Returns where the remaining requests begin.
    """
    caller, header = lead
    size_max = connection.context.settings.request_bytes_max
    requests, entries = kernel.parse_produces(slab.view, low, high, caller.version, header, size_max, count_max)
    if not requests:
        return low
    slot = Slot(ApiKey.PRODUCE, len(requests))
    return requests[-1][0] if _append(connection, slot, caller, requests, entries, slab) else low
