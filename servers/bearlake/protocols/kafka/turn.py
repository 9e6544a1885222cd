"""What a turn of the event loop does for a Kafka connection most often: it takes Produce requests that need no question.

Requests are *bound* if an earlier request of the connection has asked for its client's right and its stream's rules, in this generation
(`streams/generation.py`). One native call takes all bound requests that have arrived into the write buffer, without a Python object per
request. It stops at the first request that needs special handling, from which `Connection._process` goes on.

Bound requests are taken under the conditions of all others: logged in, behind no Produce request that waits, within the budget of the write
path and the connection's limits. While there is a quota, no requests are bound.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Self

from bearlake import kernel
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import KafkaContext
from bearlake.protocols.kafka.dispatch import Served
from bearlake.protocols.kafka.handlers.produce_pipelined import Binding, Lead, ProduceCalls
from bearlake.protocols.kafka.sasl import SaslSession
from bearlake.protocols.kafka.slot import Place
from bearlake.serving.pacing import PacedConnection, Register
from bearlake.streams.append import UNAVAILABLE
from bearlake.telemetry.watchdog import begin


class TurnConnection(PacedConnection):
    """A connection whose Produce requests may be bound, and which answers in order."""

    def __init__(
        self, register: Register[Self], context: KafkaContext, apis: Mapping[int, Served], listener: str
    ) -> None:
        super().__init__(register, context.streams, listener, context.settings.stall_ms)
        self.context = context
        self.produce_tail: asyncio.Task[None] | None = None
        """The last Produce request that is not submitted yet."""
        self.session: SaslSession | None = None
        """The logins; None if clients do not log in by SASL."""
        self._apis = apis
        self._slots: deque[Place] = deque()
        self._request_count = 0  # requests in `_slots`
        self._produce_lead: Lead | None = None  # of the last Produce request that `_request` took
        self._binding: Binding | None = None  # of the requests that have this lead
        self._what_produces = apis[ApiKey.PRODUCE].what
        self._generation = context.streams.generation
        self._is_pumping = False

    # -- receive -------------------------------------------------------------------------------------------------

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the event loop; what is answered at once leaves at the end of this turn, without a turn of its own."""
        self._received(nbytes)
        self._meters.received_bytes.value += nbytes
        if self._high - self._low < self._need:
            if self._slab is not None and self._lacks_room(self._slab):
                self._pace()
            return
        if self._takes_bound():
            return
        is_pumping, self._is_pumping = self._is_pumping, True
        self._process()
        self._is_pumping = is_pumping
        if not is_pumping and self._slots and self._slots[0].is_ready:
            self._pump()

    def bind(self, binding: Binding) -> None:
        """Take the Produce requests that have the lead of the last one by this binding."""
        self._binding = binding

    @property
    def is_bound(self) -> bool:
        """Whether the next Produce requests like the last one need no question."""
        return self._binding is not None and self._binding.generation == self._generation.number

    @property
    def unconsumed_bytes(self) -> int:
        """Bytes of the frames that are not complete, or wait."""
        return self._high - self._low

    def _set_lead(self, lead: Lead | None) -> None:
        self._produce_lead = lead
        self._binding = None

    def _takes_bound(self) -> bool:
        """Take bound requests; returns whether nothing is left to do for the bytes that have arrived."""
        binding, session = self._binding, self.session
        if (
            binding is None
            or binding.generation != self._generation.number
            or self.produce_tail is not None
            or (session is not None and not session.is_logged_in)
            or self._must_wait()
            or (buffer := self.context.streams.buffer_with_room()) is None
        ):
            return False
        first = self._low
        need = self._take_into(buffer, binding)
        has_moved, is_empty = self._low != first, self._low == self._high
        self._last_active = now = self._loop.time()
        if has_moved:
            self._frame_since = 0.0  # what is left has just begun to arrive
        elif need == 0:
            self._binding = None  # the next request is another one, and so may be those behind it
        if self._request_count >= self.context.settings.requests_in_flight_max or (need <= 0 and not is_empty):
            return False
        self._need = need
        if is_empty:
            self._release_consumed()
        elif not self._frame_since:
            self._frame_since = now
        if self._is_reading_paused or (self._slab is not None and self._lacks_room(self._slab)):
            self._pace()
        return True

    def _take_into(self, buffer: kernel.WriteBuffer, binding: Binding) -> int:
        """Take bound requests into the open buffer; returns what `kernel.ProduceBinding.take` knows of the next request."""
        slab, streams = self._slab, self.context.streams
        assert slab is not None
        budget = streams.checks.budget
        begin(self._what_produces)
        calls = ProduceCalls(UNAVAILABLE)
        self._low, need, checked_bytes = binding.requests.take(
            buffer, calls, slab.view, slab, self._low, self._high,
            self.context.settings.requests_in_flight_max - self._request_count,
            budget.left, streams.clock.now_ms(), self.arrived,
        )  # fmt: skip
        if checked_bytes:
            budget.spend(checked_bytes)
        if calls.request_count:
            calls.began(self, binding.caller)
            self.add(calls)
            streams.added(calls)
        return need

    def add(self, place: Place) -> None:
        """Queue the requests of `place` for their answer, and count them."""
        self._slots.append(place)
        self._request_count += place.count
        self._apis[place.api].requests.value += place.count

    @abstractmethod
    def answer(self, place: Place, chunks: Sequence[codec.Buffer]) -> None:
        """Complete a place; without chunks its requests get no response."""

    @abstractmethod
    def _pump(self) -> None:
        """Send all completed responses. Raises nothing."""
