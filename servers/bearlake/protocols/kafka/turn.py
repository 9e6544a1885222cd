"""What a turn of the event loop does for a Kafka connection most often: it takes Produce requests that need no question.

Requests are *bound* if an earlier request of the connection has asked for its client's right and its stream's rules, in this generation
(`streams/generation.py`). The event loop then calls native code alone (`kernel.ProduceTurn`): it takes all bound requests that have arrived
into the write buffer, without a Python object per request and without a Python function of the connection. It stops at the first request
that needs special handling, from which `Connection._process` goes on.

Bound requests are taken under the conditions of all others: logged in, behind no Produce request that waits, within the budget of the write
path and the connection's limits. While there is a quota, no requests are bound.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

from typing_extensions import override

from bearlake import kernel
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import KafkaContext
from bearlake.protocols.kafka.dispatch import Served
from bearlake.protocols.kafka.handlers.produce_pipelined import Binding, Lead, ProduceCalls
from bearlake.protocols.kafka.large_requests import WAITING_BYTES_MAX
from bearlake.protocols.kafka.sasl import SaslSession
from bearlake.protocols.kafka.slot import Place
from bearlake.serving.pacing import PacedConnection, Register
from bearlake.serving.receiving import READ_BYTES, ROOM_BYTES_MIN, Receiver
from bearlake.serving.slabs import SIZES, SMALL_BYTES
from bearlake.streams.append import UNAVAILABLE
from bearlake.streams.principal import ANONYMOUS, client_of
from bearlake.telemetry.watchdog import DOING


class TurnConnection(kernel.ProduceTurn, PacedConnection):
    """A connection whose Produce requests may be bound, and which answers in order."""

    def __init__(
        self, register: Register[Self], context: KafkaContext, apis: Mapping[int, Served], listener: str
    ) -> None:
        super().__init__(register, context.streams, listener, context.settings.stall_ms)
        self.context = context
        self.produce_tail: asyncio.Task[None] | None = None
        """The last Produce request that is not submitted yet."""
        self.who = ANONYMOUS
        """The client."""
        self.session: SaslSession | None = None
        """The logins; None if clients do not log in by SASL."""
        self._apis = apis
        self._slots: deque[Place] = deque()
        self._request_count = 0  # requests in `_slots`
        self._produce_lead: Lead | None = None  # of the last Produce request that `_request` took
        self._binding: Binding | None = None  # of the requests that have this lead
        self._generation = context.streams.generation
        self._is_pumping = False
        if context.turn_world is None:
            context.turn_world = _world(context, register, apis[ApiKey.PRODUCE])
        self._world = context.turn_world

    # -- receive -------------------------------------------------------------------------------------------------

    def _find_room(self) -> memoryview:
        return Receiver.get_buffer(self, -1)

    def _proceed(self) -> None:
        """Take what is not bound; what is answered at once leaves at the end of this turn, without a turn of its own."""
        is_pumping, self._is_pumping = self._is_pumping, True
        self._process()
        self._is_pumping = is_pumping
        if not is_pumping and self._slots and self._slots[0].chunks is not None:
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

    @property
    @override
    def client(self) -> str:
        return client_of(self.who)

    @property
    def is_logged_in(self) -> bool:
        """Whether the client has logged in, or need not."""
        return self.session is None or self.session.is_logged_in

    def wait_for_turn(self) -> None:
        """Take no frames before `relieved`: the next request is large."""
        self._waits_for_budget = True

    def relieved(self) -> None:
        """Take frames again."""
        self._relieved()

    def _set_lead(self, lead: Lead | None) -> None:
        self._produce_lead = lead
        self._binding = None

    def add(self, place: Place) -> None:
        """Queue the requests of `place` for their answer, and count them."""
        self._slots.append(place)
        self._request_count += place.count
        self._apis[place.api].requests.value += place.count

    def _has_room(self) -> bool:
        """Whether the next request of the lane of others may run: the client has taken most responses, or they wait for this one."""
        if self._ready_bytes < self.context.settings.response_bytes_max:
            return True
        first = self._slots[0]
        return first.chunks is None and first.api not in (ApiKey.PRODUCE, ApiKey.FETCH)

    @abstractmethod
    def answer(self, place: Place, chunks: Sequence[codec.Buffer]) -> None:
        """Complete a place; without chunks its requests get no response."""

    @abstractmethod
    def _pump(self) -> None:
        """Send all completed responses. Raises nothing."""


def _world(context: KafkaContext, register: Register[Any], produce: Served) -> kernel.TurnWorld:
    streams, settings = context.streams, context.settings
    return kernel.TurnWorld(
        generation=streams.generation,
        buffer_with_room=streams.buffer_with_room,
        added=streams.added,
        calls=ProduceCalls,
        outcome=UNAVAILABLE,
        now_ms=streams.clock.now_ms,
        time=register.loop.time,
        budget=streams.checks.budget,
        doing=DOING,
        what=produce.what,
        received=register.meters.received_bytes,
        requests=produce.requests,
        request_count_max=settings.requests_in_flight_max,
        ready_bytes_max=settings.response_bytes_max,
        waiting_bytes_max=WAITING_BYTES_MAX,
        read_bytes=READ_BYTES,
        room_bytes_min=ROOM_BYTES_MIN,
        slab_bytes_min=SMALL_BYTES,
        slab_bytes_max=SIZES[-1],
    )
