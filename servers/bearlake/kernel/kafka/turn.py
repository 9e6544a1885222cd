"""What a connection does for most reads of its socket: it takes the Produce requests that need no question, and reads on."""

from collections.abc import Callable
from typing import Any, Protocol

from bearlake.kernel.kafka import TurnWorld
from bearlake.kernel.kafka.binding import ProduceBinding


class Bound(Protocol):
    """What is known about the next requests: `protocols.kafka.handlers.produce_pipelined.Binding`."""

    @property
    def generation(self) -> int:
        """The generation in which it was asked."""

    @property
    def caller(self) -> object:
        """Who sends the requests."""

    @property
    def requests(self) -> ProduceBinding:
        """What the requests have in common."""


class ProduceTurn:
    """The state that a turn of the event loop needs of a Kafka connection, and the two functions that the event loop calls.

    The base of connections, before `serving.pacing.PacedConnection`: its attributes have the names by which the other bases know them,
    and their meaning there. It decides nothing that is not decided in Python already: the requests that it takes are those that the
    binding admits, in the generation of the binding, while the connection need not wait and the write path has room. For everything else
    it calls the methods that subclasses have.
    """

    __slots__ = (
        "_asked", "_binding", "_emptied", "_fetches", "_frame_since", "_high", "_is_encrypted", "_is_finishing", "_is_frugal",
        "_is_logging_in", "_is_reading_paused", "_is_write_paused", "_last_active", "_last_arrived", "_last_bytes", "_low", "_need",
        "_ready_bytes", "_request_count", "_seen", "_slab", "_slots", "_waiting_bytes", "_waits_for_budget", "_wish", "_world",
        "arrived", "produce_tail", "quota_wait", "session", "waiter",
    )  # fmt: skip

    _world: TurnWorld
    """What all connections of a server share. Set it, and `_fetches`, `_seen`, `_slots` and `waiter`, before the first read."""
    arrived: int
    _asked: int
    _emptied: int
    _frame_since: float
    _high: int
    _is_encrypted: bool
    _is_finishing: bool
    _is_frugal: bool
    _is_logging_in: bool
    _is_reading_paused: bool
    _is_write_paused: bool
    _last_active: float
    _last_arrived: int
    _last_bytes: int
    _low: int
    _need: int
    _ready_bytes: int
    _request_count: int
    _waiting_bytes: int
    _waits_for_budget: bool
    _binding: Any
    """What is known about the next requests (`Bound`), or None."""
    _fetches: Any
    _seen: Any
    _slab: Any
    _slots: Any
    _wish: Any
    produce_tail: Any
    quota_wait: Any
    session: Any
    waiter: Any

    def __new__(cls, *_: object, **__: object) -> "ProduceTurn":
        """All numbers are 0, and all objects None."""
        turn = super().__new__(cls)
        for name in ProduceTurn.__slots__:
            setattr(turn, name, None)
        turn._low = turn._high = turn._need = turn._asked = 0
        turn.arrived = turn._emptied = turn._last_arrived = turn._last_bytes = 0
        turn._request_count = turn._ready_bytes = turn._waiting_bytes = 0
        turn._frame_since = turn._last_active = 0.0
        turn._is_encrypted = turn._is_frugal = turn._is_finishing = turn._is_logging_in = False
        turn._is_reading_paused = turn._is_write_paused = turn._waits_for_budget = False
        return turn

    # -- what the other bases and subclasses have -----------------------------------------------------------------

    _find_room: Callable[[], Any]
    """Return the memory for the next bytes."""
    _lacks_room: Callable[[Any], bool]
    _pace: Callable[[], None]
    _proceed: Callable[[], None]
    """Go on with the bytes that have arrived, by asking."""
    _received: Callable[[int], None]
    _release_consumed: Callable[[], None]

    # -- called by the event loop ---------------------------------------------------------------------------------

    def get_buffer(self, _: int, /) -> Any:
        """Return the memory for the next bytes."""
        return self._find_room()

    def buffer_updated(self, nbytes: int, /) -> None:
        """Take what has arrived."""
        self._received(nbytes)
        self._world.received.value += nbytes
        if self._high - self._low < self._need:
            if self._slab is not None and self._lacks_room(self._slab):
                self._pace()
        elif not self._takes_bound():
            self._proceed()

    # -- internals ------------------------------------------------------------------------------------------------

    def _must_wait(self) -> bool:
        """Whether no more requests may be taken now."""
        world = self._world
        return (
            self._is_write_paused
            or self._request_count >= world.request_count_max
            or self._ready_bytes >= world.ready_bytes_max
            or self._waiting_bytes + self._fetches.waiting_bytes >= world.waiting_bytes_max
            or self._waits_for_budget
            or self.quota_wait is not None
            or self.waiter.is_waiting
            or self._wish is not None
            or self._is_finishing
            or self._is_logging_in
        )

    def _takes_bound(self) -> bool:
        """Take bound requests; returns whether nothing is left to do for the bytes that have arrived."""
        binding, session, world = self._binding, self.session, self._world
        if (
            binding is None
            or binding.generation != world.generation.number
            or self._slab is None
            or self.produce_tail is not None
            or (session is not None and not session.is_logged_in)
            or self._must_wait()
            or (buffer := world.buffer_with_room()) is None
        ):
            return False
        first = self._low
        need = self._take_into(buffer, binding)
        self._last_active = now = world.time()
        if self._low != first:
            self._frame_since = 0.0  # what is left has just begun to arrive
        elif need == 0:
            self._binding = None  # the next request is another one, and so may be those behind it
        is_empty = self._low == self._high
        if self._request_count >= world.request_count_max or (need <= 0 and not is_empty):
            return False
        self._need = need
        if is_empty:
            self._release_consumed()
        elif not self._frame_since:
            self._frame_since = now
        if self._is_reading_paused or (self._slab is not None and self._lacks_room(self._slab)):
            self._pace()
        return True

    def _take_into(self, buffer: Any, binding: Bound) -> int:
        """Take bound requests into the open buffer; returns what `ProduceBinding.take` knows of the next request."""
        slab, world = self._slab, self._world
        world.doing.request = world.what
        calls = world.calls(world.outcome)
        self._low, need, checked_bytes = binding.requests.take(
            buffer, calls, slab.view, slab, self._low, self._high, world.request_count_max - self._request_count,
            world.budget.left, world.now_ms(), self.arrived,
        )  # fmt: skip
        if checked_bytes:
            world.budget.spend(checked_bytes)
        count = calls.request_count
        if count:
            calls.began(self, binding.caller)
            self._slots.append(calls)
            self._request_count += count
            world.requests.value += count
            world.added(calls)
        return need
