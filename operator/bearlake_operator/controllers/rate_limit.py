"""Limits the Events of each resource to a short burst and a slow rate after it, so that a flapping resource does not flood the cluster."""

import time

BURST_COUNT = 10
REFILL_S = 60.0


class EventRateLimiter:
    """A token bucket of `BURST_COUNT` per uid; one token is added every `REFILL_S`. Full buckets are dropped."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        """By uid: the tokens left, and the monotonic time at which they were counted."""
        self._pruned_at = time.monotonic()

    def allow(self, uid: str) -> bool:
        """Take a token. Returns False if none is left."""
        now = time.monotonic()
        if now - self._pruned_at > REFILL_S:
            self._buckets = {key: bucket for key, bucket in self._buckets.items() if _tokens(bucket, now) < BURST_COUNT}
            self._pruned_at = now
        tokens = _tokens(self._buckets.get(uid, (float(BURST_COUNT), now)), now)
        if tokens < 1:
            return False
        self._buckets[uid] = tokens - 1, now
        return True


def _tokens(bucket: tuple[float, float], now: float) -> float:
    tokens, counted_at = bucket
    return min(float(BURST_COUNT), tokens + (now - counted_at) / REFILL_S)
