"""Token buckets: what clients have used, in a bounded number of buckets.

A bucket fills at its rate, up to what its rate gives in `burst_ms`. A client may begin while its bucket is not below zero, and may take
more than the bucket holds: then it owes the rest, and waits until the bucket has refilled to zero. So a request of any size passes, and
the clients of a bucket together get no more than the rate in the long run. A debt of more than `throttle_ms_max` is forgiven, so that no
client waits longer.

The rate is an argument of each call: buckets follow changed quotas and changed numbers of servers at once, and keep what is owed, up to
what the new rate allows in `throttle_ms_max`.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

THROTTLE_MS_LIMIT = 86_400_000
"""Largest `throttle_ms_max` (ms): one day. Responses of Kafka say how long to wait in 32 bits, which hold 24 days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    """How quotas are enforced. The quotas themselves are in the metadata store."""

    burst_ms: int = 1_000
    """Time (ms) whose share of a quota a client that was idle may use at once. With a longer time, clients that pause are throttled
    later, and servers must bear larger bursts."""
    throttle_ms_max: int = 30_000
    """Longest time (ms) for which a client is throttled by one quota. A request that uses more of its quota than this time allows is
    served, and the rest is forgiven. At most one day (86,400,000)."""
    bucket_count_max: int = 10_000
    """Clients (users, client ids, addresses) whose use this server remembers at once. The least recently seen is forgotten first, and may
    then use its burst again. Those that owe something are forgotten last."""

    def __post_init__(self) -> None:
        if min(self.burst_ms, self.throttle_ms_max, self.bucket_count_max) < 1:
            raise ValueError("burst_ms, throttle_ms_max and bucket_count_max must be at least 1")
        if self.throttle_ms_max > THROTTLE_MS_LIMIT:
            raise ValueError(f"throttle_ms_max is {self.throttle_ms_max}, expected at most {THROTTLE_MS_LIMIT} (a day)")


WAIT_S_MIN = 0.001
"""The shortest wait. A smaller debt stays, and is not waited for."""

EVICTION_LOOKS_MAX = 16
"""Buckets that are looked at for one that owes nothing, before one that owes is forgotten."""


class _Bucket:
    """`tokens` at time `at` (s); below zero: owed until `owes_until` (s). `is_recovering` until half of the burst is saved again."""

    __slots__ = ("at", "is_recovering", "owes_until", "tokens")

    def __init__(self, at: float, tokens: float) -> None:
        self.at = at
        self.tokens = tokens
        self.owes_until = at
        self.is_recovering = False


class Buckets:
    """Buckets by name, the least recently used first."""

    def __init__(self, settings: QuotaSettings, clock: Callable[[], float]) -> None:
        """`clock` returns seconds, and never goes back."""
        self._settings = settings
        self._burst_s = settings.burst_ms / 1000
        self._wait_s_max = settings.throttle_ms_max / 1000
        self._clock = clock
        self._buckets: OrderedDict[Hashable, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        """The number of buckets."""
        return len(self._buckets)

    def take(self, name: Hashable, rate: float, amount: float) -> float:
        """Take `amount` from the bucket, which fills at `rate` (per second); return the time (s) until nothing is owed."""
        bucket = self._refilled(name, rate)
        bucket.tokens = max(bucket.tokens - amount, -rate * self._wait_s_max)
        wait_s = _wait_s(bucket.tokens, rate)
        bucket.owes_until = bucket.at + wait_s
        bucket.is_recovering |= wait_s > 0
        return wait_s

    def reserve(self, name: Hashable, rate: float, amount: float) -> float:
        """Take `amount`; return what was taken, for `give_back`: less than `amount` if some of the debt was forgiven."""
        before = self._refilled(name, rate).tokens
        self.take(name, rate, amount)
        return before - self._buckets[name].tokens

    def give_back(self, name: Hashable, taken: float) -> None:
        """Put back what `reserve` returned. A bucket that was forgotten meanwhile stays so."""
        bucket = self._buckets.get(name)
        if bucket is not None:
            bucket.tokens += taken

    def due_s(self, name: Hashable, rate: float) -> float:
        """Return the time (s) until the bucket owes nothing."""
        if name not in self._buckets:
            return 0.0
        return _wait_s(self._refilled(name, rate).tokens, rate)

    def is_recovering(self, name: Hashable, rate: float) -> bool:
        """Whether the bucket has owed something since it last had half of its burst."""
        return name in self._buckets and self._refilled(name, rate).is_recovering

    def _refilled(self, name: Hashable, rate: float) -> _Bucket:
        now = self._clock()
        burst = rate * self._burst_s
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= self._settings.bucket_count_max:
                self._forget_one(now)
            bucket = self._buckets[name] = _Bucket(now, burst)
            return bucket
        self._buckets.move_to_end(name)
        owed_max = rate * self._wait_s_max  # the rate may have been higher when the client began to owe
        bucket.tokens = max(min(bucket.tokens + (now - bucket.at) * rate, burst), -owed_max)
        bucket.at = now
        bucket.is_recovering &= bucket.tokens < burst / 2
        return bucket

    def _forget_one(self, now: float) -> None:
        """Forget a client that owes nothing: use under many other names must not remove a debt."""
        for _ in range(min(EVICTION_LOOKS_MAX, len(self._buckets))):
            name, bucket = next(iter(self._buckets.items()))
            if bucket.owes_until <= now:
                break
            self._buckets.move_to_end(name)
        self._buckets.popitem(last=False)


def _wait_s(tokens: float, rate: float) -> float:
    wait_s = -tokens / rate
    return wait_s if wait_s >= WAIT_S_MIN else 0.0
