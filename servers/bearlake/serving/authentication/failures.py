"""Failed logins are limited, so that a password cannot be guessed.

An address that fails too often must wait. A user whose logins fail too often from several addresses must wait as well. Both limits exempt
a user at an address where this user logged in before: otherwise anyone could lock a user out, also a client with a wrong password behind
the same proxy. Such a pair has an allowance of its own, as large as that of an address. The tables are bounded; the entry that was idle
longest goes first.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from time import monotonic

from bearlake.errors import Overloaded
from bearlake.serving.authentication.settings import FailureSettings


class MustWait(Overloaded):
    """Too many logins failed; the client may try again after `wait_s` seconds."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many failed logins, retry in {math.ceil(wait_s)} s")
        self.wait_s = wait_s


class Failures:
    """Counts failed logins by address and user."""

    def __init__(self, settings: FailureSettings, now_s: Callable[[], float] = monotonic) -> None:
        self._addresses = _Allowances(settings.per_address_max, settings, now_s)
        self._users = _Allowances(settings.per_user_max, settings, now_s)
        self._pairs = _Allowances(settings.per_address_max, settings, now_s)
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._entries_max = settings.entries_max

    def check(self, address: str, user: str) -> None:
        """Raise `MustWait` if the address or the user must wait."""
        if (user, address) in self._known:
            wait_s = self._pairs.wait_s((user, address))
        else:
            wait_s = max(self._addresses.wait_s(address), self._users.wait_s(user))
        if wait_s > 0:
            raise MustWait(wait_s)

    def failed(self, address: str, user: str) -> None:
        """Count a failed login; `user` may be empty if no name is known."""
        if (user, address) in self._known:
            self._pairs.take((user, address))
        else:
            self._addresses.take(address)
        if user:
            self._users.take(user)

    def succeeded(self, address: str, user: str) -> None:
        """Remember that this user logs in from this address."""
        self._known[user, address] = None
        self._known.move_to_end((user, address))
        if len(self._known) > self._entries_max:
            self._known.popitem(last=False)


class _Allowances:
    """A token bucket per key: `count_max` tokens, which return evenly over the window."""

    def __init__(self, count_max: int, settings: FailureSettings, now_s: Callable[[], float]) -> None:
        self._count_max = count_max
        self._per_second = count_max * 1000 / settings.window_ms
        self._entries_max = settings.entries_max
        self._now_s = now_s
        self._used: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens used, and when that was true

    def wait_s(self, key: Hashable) -> float:
        return max(0.0, (self._now_used(key) - self._count_max + 1) / self._per_second)

    def take(self, key: Hashable) -> None:
        self._used[key] = min(self._now_used(key) + 1, self._count_max), self._now_s()
        self._used.move_to_end(key)
        if len(self._used) > self._entries_max:
            self._used.popitem(last=False)

    def _now_used(self, key: Hashable) -> float:
        used, since_s = self._used.get(key, (0.0, 0.0))
        return max(0.0, used - (self._now_s() - since_s) * self._per_second)
