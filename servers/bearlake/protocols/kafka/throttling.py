"""Quotas of one Kafka connection: when its next request may begin, and how long its client waits after a request.

    before   Produce and Fetch wait, unread, while the client owes bytes or time, whatever connection used them
    after    the response says how long the client should wait (`throttle_time_ms`), and the socket is not read meanwhile (KIP-219)

A Produce request is charged when it arrives, other requests when they are done. While a client's Produce requests are limited, they are
taken one by one, so that each response can say how long to wait.

Source: KIP-13, KIP-124 (time), KIP-219, KIP-599 (mutations).
"""

import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bearlake.metadata.quotas import QuotaKey
from bearlake.protocols.kafka.codec import ApiKey
from bearlake.protocols.kafka.context import Caller
from bearlake.protocols.kafka.handlers import fetch, produce
from bearlake.protocols.kafka.request_kinds import LOGIN
from bearlake.protocols.kafka.slot import Slot
from bearlake.serving.slabs import Slab
from bearlake.streams.principal import Principal
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.quotas.timing import Timed
from bearlake.streams.quotas.usage import Usage

_MUTATIONS = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})
_PRODUCE = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
_FETCH = (QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
_BEFORE = {ApiKey.PRODUCE.value: _PRODUCE, ApiKey.FETCH.value: _FETCH}
"""Requests that wait while something is owed."""


class Throttling:
    """What the quotas say about one connection."""

    __slots__ = ("_is_limited", "_known", "_quotas", "_throttle")

    def __init__(self, quotas: QuotaControl, throttle: Callable[[float], bool]) -> None:
        """`throttle` makes the connection wait for a time (s), and returns whether it waits."""
        self._quotas = quotas
        self._throttle = throttle
        self._known: tuple[Usage, Principal] | None = None
        self._is_limited = False

    @property
    def usage(self) -> Usage | None:
        """The use of quotas; None while there is no quota."""
        return self._quotas.usage

    def connected(self, address: str) -> None:
        """Note the new connection of an address."""
        if (usage := self._quotas.usage) is not None:
            self._throttle(usage.connected(address))

    def takes_singly(self, usage: Usage, who: Principal) -> bool:
        """Whether the client's Produce requests are limited."""
        known = self._known
        if known is None or known[0] is not usage or known[1] is not who:
            self._known = (usage, who)
            self._is_limited = usage.limits(who, *_PRODUCE)
        return self._is_limited

    def holds(self, usage: Usage, who: Principal, api: memoryview) -> bool:
        """Whether the next request must wait; the connection goes on when it need not wait any more."""
        key = int.from_bytes(api, "big")
        limits = _BEFORE.get(key)
        return self._throttle(0.0 if limits is None else usage.due_s(who, *limits))

    def receive(
        self,
        connection: produce.Requester,
        slot: Slot,
        caller: Caller,
        correlation_id: int,
        frame: memoryview,
        position: int,
        slab: Slab,
    ) -> None:
        """Handle a Produce request as `produce.receive`; its response says how long its client should wait. Raises `Corrupt`."""
        usage = self._quotas.usage
        assert usage is not None
        wait_s = usage.charge(caller.who, QuotaKey.PRODUCER_BYTE_RATE, len(frame))
        slot.throttle_ms = _milliseconds(wait_s)
        started = time.perf_counter()
        produce.receive(connection, slot, caller, correlation_id, frame, position, slab)
        if usage.is_timed:
            wait_s = max(wait_s, usage.charge_time(caller.who, time.perf_counter() - started))
        self._throttle(wait_s)

    async def handled(self, caller: Caller, key: int, work: Awaitable[Any]) -> Any:
        """Handle another request; return its response, which says how long to wait if it can."""
        usage, who = self._quotas.usage, caller.who
        assert usage is not None
        timed = Timed(work)
        response = await timed
        if key in LOGIN:
            return response
        wait_s = usage.charge_time(who, timed.seconds) if usage.is_timed else 0.0
        if key == ApiKey.FETCH:
            wait_s = max(wait_s, usage.charge(who, QuotaKey.CONSUMER_BYTE_RATE, fetch.size_of(response)))
        elif key in _MUTATIONS:
            wait_s = max(wait_s, usage.due_s(who, QuotaKey.CONTROLLER_MUTATION_RATE))
        if wait_s > 0 and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = _milliseconds(wait_s)
        self._throttle(wait_s)
        return response


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)
