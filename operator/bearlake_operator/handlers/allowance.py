"""How many Events a resource may have: some at once, and then one more now and then, so that what flaps floods nobody."""

import time

COUNT_AT_ONCE = 10
EVERY_S = 60.0


class Allowance:
    """A bucket of `COUNT_AT_ONCE` for each uid, into which one more comes every `EVERY_S`. Full ones are forgotten."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        """What was left of a bucket, and when that was."""
        self._tidied_at = time.monotonic()

    def take(self, uid: str) -> bool:
        """Take one; whether there was one."""
        now = time.monotonic()
        if now - self._tidied_at > EVERY_S:
            self._left = {one: left for one, left in self._left.items() if _now_left(left, now) < COUNT_AT_ONCE}
            self._tidied_at = now
        left = _now_left(self._left.get(uid, (float(COUNT_AT_ONCE), now)), now)
        if left < 1:
            return False
        self._left[uid] = left - 1, now
        return True


def _now_left(then: tuple[float, float], now: float) -> float:
    left, since = then
    return min(float(COUNT_AT_ONCE), left + (now - since) / EVERY_S)
