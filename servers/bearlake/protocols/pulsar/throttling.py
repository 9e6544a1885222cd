"""Quotas of one Pulsar connection, as Pulsar's own server enforces its limits: it pauses, without a message to the client.

    produce   a connection with producers is not read while the client owes bytes or time
    consume   consumers get no messages while the client owes bytes
    time      no connection is read while the client owes time; a login does not wait

The connections and the consumers of one client continue one after another (`streams/quotas/lines.py`). Time is charged for all that the
event loop does for a connection: it reads commands, executes them, delivers messages and writes frames.

Source: Pulsar's publish rate limits (a connection is not read) and dispatch rate limits (subscriptions wait).
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol, TypeVar

from bearlake.metadata.quotas import QuotaKey
from bearlake.streams.principal import Principal
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.quotas.lines import Waiter
from bearlake.streams.quotas.timing import Stopwatch, Timed
from bearlake.streams.subscriptions.model import Delivery

T = TypeVar("T")

_TIME = (QuotaKey.REQUEST_PERCENTAGE,)
_PRODUCE = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)


class ThrottledConnection(Protocol):
    """The connection."""

    waiter: Waiter
    """The connection in lines."""

    @property
    def who(self) -> Principal:
        """The client."""

    def throttle(self, wait_s: float) -> bool:
        """Do not read for that time (s); returns whether the connection waits."""


class Throttling:
    """What the quotas say about one connection."""

    __slots__ = ("_connection", "_quotas", "_watch")

    def __init__(self, connection: ThrottledConnection, quotas: QuotaControl) -> None:
        self._connection = connection
        self._quotas = quotas
        self._watch = Stopwatch(quotas, connection.who)

    def connected(self, address: str) -> None:
        """Note the new connection of an address."""
        if (usage := self._quotas.usage) is not None:
            self._connection.throttle(usage.connected(address))

    def admits(self, *, has_producers: bool) -> bool:
        """Whether the connection may take commands now; if not, it continues when its turn has come."""
        if self._quotas.usage is None:
            return True
        connection = self._connection
        keys = _PRODUCE if has_producers else _TIME
        return self._quotas.lines.admits(connection.waiter, connection.who, keys, begins=False)

    def sent(self, size: int) -> None:
        """Note that the client has sent messages of so many bytes."""
        if (usage := self._quotas.usage) is not None:
            self._connection.throttle(usage.charge(self._connection.who, QuotaKey.PRODUCER_BYTE_RATE, size))

    @property
    def _is_timed(self) -> bool:
        usage = self._quotas.usage
        return usage is not None and usage.is_timed

    def run(self, work: Callable[[], T]) -> T:
        """Do some work for the client now, and charge its time."""
        return self._watch.run(self._connection.who, work) if self._is_timed else work()

    def timed(self, work: Coroutine[None, None, None]) -> Coroutine[None, None, None]:
        """Return the work of a request, whose steps are charged."""
        return self._timed(work) if self._is_timed else work

    async def _timed(self, work: Coroutine[None, None, None]) -> None:
        await Timed(self._watch, self._connection.who, work)

    def worked(self) -> None:
        """Charge the running work up to now: the connection is not read while the client owes time."""
        if self._is_timed and (usage := self._quotas.usage) is not None:
            self._watch.lap()
            self._connection.throttle(usage.charge_time(self._connection.who, 0.0))

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Note what a consumer was sent."""
        if (usage := self._quotas.usage) is not None:
            size = sum(len(delivery.batch) for delivery in deliveries)
            usage.charge(self._connection.who, QuotaKey.CONSUMER_BYTE_RATE, size)

    def may_deliver(self, consumer: Waiter) -> bool:
        """Whether a consumer may be sent more; if not, it is resumed when its turn has come."""
        if self._quotas.usage is None:
            return True
        return self._quotas.lines.admits(consumer, self._connection.who, (QuotaKey.CONSUMER_BYTE_RATE,), begins=False)
