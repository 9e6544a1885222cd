"""Quotas of one Pulsar connection, as Pulsar's own server enforces its limits: it pauses, without a message to the client.

    produce   a connection with producers is not read while the client owes bytes or time
    consume   consumers get no messages while the client owes bytes

Source: Pulsar's publish rate limits (a connection is not read) and dispatch rate limits (subscriptions wait).
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from bearlake.metadata.quotas import QuotaKey
from bearlake.streams.principal import Principal
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.subscriptions.model import Delivery

_PRODUCE = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)


class Resumable(Protocol):
    """A consumer of the connection."""

    def resume(self) -> None:
        """Continue deliveries."""


class ThrottledConnection(Protocol):
    """The connection."""

    @property
    def who(self) -> Principal:
        """The client."""

    def throttle(self, wait_s: float) -> bool:
        """Do not read for that time (s); returns whether the connection waits."""


class Throttling:
    """What the quotas say about one connection."""

    __slots__ = ("_connection", "_consumers", "_quotas", "consumer_wait")

    def __init__(
        self, connection: ThrottledConnection, quotas: QuotaControl, consumers: Callable[[], Collection[Resumable]]
    ) -> None:
        self._connection = connection
        self._quotas = quotas
        self._consumers = consumers
        self.consumer_wait: asyncio.TimerHandle | None = None
        """The end of the time in which consumers get nothing; None: they need not wait."""

    def connected(self, address: str) -> None:
        """Note the new connection of an address."""
        if (usage := self._quotas.usage) is not None:
            self._connection.throttle(usage.connected(address))

    def holds_sends(self) -> bool:
        """Whether messages must wait; the connection continues when the wait is over."""
        usage = self._quotas.usage
        return usage is not None and self._connection.throttle(usage.due_s(self._connection.who, *_PRODUCE))

    def sent(self, size: int) -> None:
        """Note that the client has sent messages of so many bytes."""
        if (usage := self._quotas.usage) is not None:
            self._connection.throttle(usage.charge(self._connection.who, QuotaKey.PRODUCER_BYTE_RATE, size))

    @property
    def is_timed(self) -> bool:
        """Whether the time of some clients is limited."""
        usage = self._quotas.usage
        return usage is not None and usage.is_timed

    def worked(self, seconds: float) -> None:
        """Note that the server has worked for the client for that time (s)."""
        if (usage := self._quotas.usage) is not None:
            self._connection.throttle(usage.charge_time(self._connection.who, seconds))

    def delivered(self, deliveries: Sequence[Delivery]) -> None:
        """Note what a consumer was sent."""
        if (usage := self._quotas.usage) is not None:
            size = sum(len(delivery.batch) for delivery in deliveries)
            self._hold_consumers(usage.charge(self._connection.who, QuotaKey.CONSUMER_BYTE_RATE, size))

    def may_deliver(self) -> bool:
        """Whether consumers may be sent more; if not, they are resumed when they may."""
        if (usage := self._quotas.usage) is not None:
            self._hold_consumers(usage.due_s(self._connection.who, QuotaKey.CONSUMER_BYTE_RATE))
        return self.consumer_wait is None

    def resume_consumers(self) -> None:
        """End the wait of the consumers."""
        if self.consumer_wait is not None:
            self.consumer_wait.cancel()
            self.consumer_wait = None
        for consumer in self._consumers():
            consumer.resume()

    def close(self) -> None:
        """The connection is lost."""
        if self.consumer_wait is not None:
            self.consumer_wait.cancel()

    def _hold_consumers(self, wait_s: float) -> None:
        if wait_s > 0 and self.consumer_wait is None:
            self.consumer_wait = asyncio.get_running_loop().call_later(wait_s, self.resume_consumers)
