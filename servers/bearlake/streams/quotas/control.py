"""The deployment's quotas as one server knows them.

The hot path looks at `usage`, which is None while there is no quota. If the metadata store does not answer, the server continues with the
quotas that it knows, and reads them again when the store answers (`streams/follower.py`).
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from bearlake.metadata.quotas import Quota, QuotaChange, QuotaKey, Quotas, QuotaSet, check_quota_changes, quota_row
from bearlake.streams.audit import Audit
from bearlake.streams.conflicts import repeated
from bearlake.streams.principal import INTERNAL, Operation, Principal
from bearlake.streams.quotas.buckets import Buckets, QuotaSettings
from bearlake.streams.quotas.limits import Limits
from bearlake.streams.quotas.lines import Lines, Timer, Waiter
from bearlake.streams.quotas.usage import Usage
from bearlake.telemetry import metrics


def _call_later(seconds: float, callback: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(seconds, callback)


class QuotaControl:
    """Reads, changes and applies the quotas. Use it from the event loop's thread only."""

    def __init__(
        self,
        store: Quotas,
        settings: QuotaSettings | None = None,
        server_count: Callable[[], int] = lambda: 1,
        clock: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], Timer] = _call_later,
        audit: Audit | None = None,
    ) -> None:
        """`server_count`: the live servers among which rates are divided. `clock`: seconds, never going back.

        `call_later` plans a call, in seconds.
        """
        self._store = store
        self._audit = audit or Audit()
        self._server_count = server_count
        self._buckets = Buckets(settings or QuotaSettings(), clock)
        self._revision = -1
        self.usage: Usage | None = None
        """What clients use of their quotas; None while there is no quota."""
        self.lines = Lines(lambda: self.usage, call_later)
        """Who waits for a quota."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change of `usage`."""
        metrics.QUOTA_BUCKETS.set_function(lambda: len(self._buckets))
        metrics.QUOTA_BUCKETS_MAX.set((settings or QuotaSettings()).bucket_count_max)

    @property
    def revision(self) -> int:
        """The revision of the quotas that this server applies; -1 before they are loaded."""
        return self._revision

    def require(self, who: Principal, *keys: QuotaKey) -> None:
        """Raise `Throttled` if the client must wait before it uses more of these."""
        if (usage := self.usage) is not None:
            usage.require(who, *keys)

    def charge(self, who: Principal, key: QuotaKey, amount: float) -> None:
        """Note that the client used `amount`."""
        if (usage := self.usage) is not None:
            usage.charge(who, key, amount)

    def spend_time(self, who: Principal, seconds: float) -> None:
        """Note that the client used so much of the event loop's time, in a part of some work."""
        if (usage := self.usage) is not None:
            usage.spend_time(who, seconds)

    async def pace(self, who: Principal, *keys: QuotaKey) -> None:
        """Wait until the client may use more of these, behind the others who wait for them."""
        if self.usage is None:
            return
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        waiter = Waiter(lambda: None if turn.done() else turn.set_result(None))
        try:
            while not self.lines.admits(waiter, who, keys):
                turn = loop.create_future()
                await turn
        finally:
            waiter.leave()

    async def refresh(self) -> None:
        """Read the quotas from the store and apply them. Raises `Unavailable`."""
        self._apply(await self._store.read())

    async def list(self) -> Sequence[Quota]:
        """Return all quotas, as stored now, in a fixed order. Raises `Unavailable`."""
        found = await self._store.read()
        self._apply(found)
        return sorted(found.quotas, key=lambda quota: quota_row(quota.entity, quota.key))

    async def change(self, changes: Sequence[QuotaChange], *, who: Principal = INTERNAL) -> None:
        """Set and delete quotas for `who`, all or none. A quota that has the value already, or does not exist, stays as it is.

        Raises `Invalid`, `Overloaded`, `Unavailable` (the quotas may or may not have been changed; repeat the call).
        """
        check_quota_changes(changes)
        if not changes:
            return
        with self._audit.change(who, Operation.ALTER_CONFIGS, "Quota", "", *map(_detail, changes)):
            await repeated("quotas", partial(self._change, changes))

    async def _change(self, changes: Sequence[QuotaChange]) -> None:
        """Raises `Conflict` if another process changes quotas at the same time."""
        present = await self._store.read()
        values = {(quota.entity, quota.key): quota.value for quota in present.quotas}
        needed = [change for change in changes if values.get(change[:2]) != change.value]
        if needed:
            await self._store.change(needed, revision=present.revision)
            await self.refresh()
        else:
            self._apply(present)

    def _apply(self, found: QuotaSet) -> None:
        if found.revision <= self._revision:
            return
        self._revision = found.revision
        self.usage = Usage(Limits(found.quotas), self._buckets, self._server_count) if found.quotas else None
        self.on_change()
        self.lines.look()


def _detail(change: QuotaChange) -> str:
    """Name a change for the audit log."""
    return f"{change.key.value}={'none' if change.value is None else f'{change.value:.12g}'} for {change.entity}"
