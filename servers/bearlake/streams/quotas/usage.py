"""What clients use, against their quotas: asked by every protocol before and after its work.

A protocol asks `due_s` before work that a quota limits, and holds the work, or refuses it, while something is owed. It calls `charge`
when it knows how much the work took, and lets the client wait as long as the answer says.

Rates in bytes, mutations and connections per second are divided over the live servers that clients use, whatever protocol they speak, so
that the deployment as a whole keeps to them. A percentage of time is one of each server's time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bearlake.errors import BearlakeError, Throttled, Unavailable
from bearlake.metadata.quotas import QuotaKey
from bearlake.streams.principal import SERVER, Principal
from bearlake.streams.quotas.buckets import Buckets
from bearlake.streams.quotas.limits import Limit, Limits
from bearlake.telemetry import metrics

FOUND_COUNT_MAX = 10_000
"""Most clients and keys whose quota is remembered: to find it takes ten times as long as to look it up here."""


class Usage:
    """The use of the quotas of one revision. Use it from the event loop's thread only."""

    __slots__ = ("_buckets", "_found", "_limits", "_server_count", "is_timed")

    def __init__(self, limits: Limits, buckets: Buckets, server_count: Callable[[], int]) -> None:
        """`server_count`: the live servers among which rates are divided."""
        self._limits = limits
        self._buckets = buckets
        self._server_count = server_count
        self._found: dict[tuple[QuotaKey, str, str], Limit | None] = {}
        self.is_timed = QuotaKey.REQUEST_PERCENTAGE in limits.keys
        """Whether some clients have a quota of time."""

    def charge(self, who: Principal, key: QuotaKey, amount: float) -> float:
        """Note that the client used `amount`; returns how long (s) it should wait before it uses more."""
        limit = self._limit(who, key)
        if limit is None:
            return 0.0
        wait_s = self._buckets.take(limit.name, self._rate(limit), amount)
        if wait_s > 0:
            metrics.QUOTA_THROTTLED.labels(key.value).inc()
        return wait_s

    @contextmanager
    def admitted(self, who: Principal, key: QuotaKey, amount: float) -> Iterator[None]:
        """Note that the client uses `amount` in this block. Raises `Throttled`, with nothing noted, if it must wait before.

        The amount counts from the beginning, so that concurrent requests keep to the quota together. It is given back if the block raises
        an error that says that nothing was done: any but `Unavailable` and a cancellation.
        """
        self.require(who, key)
        limit = self._limit(who, key)
        taken = 0.0 if limit is None else self._buckets.reserve(limit.name, self._rate(limit), amount)
        try:
            yield
        except Unavailable:
            raise
        except BearlakeError:
            if limit is not None:
                self._buckets.give_back(limit.name, taken)
            raise

    @contextmanager
    def advanced(self, who: Principal, key: QuotaKey, amount: float) -> Iterator[None]:
        """Charge an estimate while this block runs, which then charges what was really used."""
        limit = self._limit(who, key) if amount else None
        if limit is None:
            yield
            return
        taken = self._buckets.reserve(limit.name, self._rate(limit), amount)
        try:
            yield
        finally:
            self._buckets.give_back(limit.name, taken)

    def limits_of(self, who: Principal, *keys: QuotaKey) -> tuple[Limit, ...]:
        """Return the quotas of these keys that apply to the client."""
        return tuple(limit for key in keys if (limit := self._limit(who, key)) is not None)

    def charge_time(self, who: Principal, seconds: float) -> float:
        """Note that the client used so much of the event loop's time; returns how long (s) it should wait."""
        return self.charge(who, QuotaKey.REQUEST_PERCENTAGE, 100 * seconds)

    def spend_time(self, who: Principal, seconds: float) -> None:
        """As `charge_time`, for a part of some work: the client does not wait before the end of the work, nor counts as throttled."""
        limit = self._limit(who, QuotaKey.REQUEST_PERCENTAGE)
        if limit is not None:
            self._buckets.take(limit.name, self._rate(limit), 100 * seconds)

    def due_s(self, who: Principal, *keys: QuotaKey) -> float:
        """Return how long (s) the client should wait before it uses more of these; 0: it may begin."""
        longest = 0.0
        for key in keys:
            limit = self._limit(who, key)
            if limit is not None:
                longest = max(longest, self._buckets.due_s(limit.name, self._rate(limit)))
        return longest

    def is_recovering(self, who: Principal, *keys: QuotaKey) -> bool:
        """Whether the client has owed some of these lately: it has saved less than half of its burst since."""
        return any(self._buckets.is_recovering(limit.name, self._rate(limit)) for limit in self.limits_of(who, *keys))

    def require(self, who: Principal, *keys: QuotaKey) -> None:
        """Raise `Throttled` if the client must wait before it uses more of these."""
        waits = {key: wait_s for key in keys if (wait_s := self.due_s(who, key)) > 0}
        for key in waits:
            metrics.QUOTA_THROTTLED.labels(key.value).inc()
        if waits:
            names = ", ".join(key.value for key in waits)
            raise Throttled(f"the quota of this client is used up: {names}", max(waits.values()))

    def connected(self, address: str) -> float:
        """Note a new connection of an IP address; returns how long (s) the connection should wait before it is served."""
        limit = self._limits.of_address(QuotaKey.CONNECTION_CREATION_RATE, address)
        if limit is None:
            return 0.0
        wait_s = self._buckets.take(limit.name, self._rate(limit), 1.0)
        if wait_s > 0:
            metrics.QUOTA_THROTTLED.labels(QuotaKey.CONNECTION_CREATION_RATE.value).inc()
        return wait_s

    def _limit(self, who: Principal, key: QuotaKey) -> Limit | None:
        if who.kind == SERVER:
            return None
        found, name = self._found, (key, who.name, who.client_id)
        if name not in found:
            if len(found) >= FOUND_COUNT_MAX:
                found.clear()
            found[name] = self._limits.of_client(*name)
        return found[name]

    def _rate(self, limit: Limit) -> float:
        if limit.name[0] is QuotaKey.REQUEST_PERCENTAGE:
            return limit.value
        return limit.value / max(1, self._server_count())
