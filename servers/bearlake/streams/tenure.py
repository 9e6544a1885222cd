"""Checks whether this server's registration is live, and so whether the server still owns its leases (I14).

A lease depends on its holder's registration. While a server is suspended, observers may declare its registration lapsed and other servers
may take its leases, unnoticed. So code that answers under a lease calls this module first, and stores with the lease the `lapse_count` up
to which the lease is verified:

    request ──> confirm: read the store's lapse count after the request arrived ──same──> answer
                                                                                └─grown─> heartbeat ──> look the lease up ──> answer
                                                                                                            └─ taken ──> forget the lease

The heartbeat comes first, because a look-up proves nothing while the server is lapsed. After the heartbeat, no server can take a lease
because of that lapse.

There are two levels of certainty. `confirm` costs one read of the store, shared by concurrent callers (group coordinators use it).
`is_sure` costs nothing but relies on clocks (dispatchers use it: a delivery cannot be undone anyway). See decision 75.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from bearlake import clock
from bearlake.errors import Fenced, Unavailable
from bearlake.metadata import Leases, Membership
from bearlake.metadata.model import Lease, ServerRef
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import noticed

T = TypeVar("T")

log = logging.getLogger(__name__)

CONFIRM_MS = 3_000
"""Timeout (ms) of one confirmation. A caller that arrives during a confirmation waits for it and for the next one."""
GATHER_MS = 10
"""Shortest time (ms) between the starts of two confirmations: at most a hundred small reads per second, whatever the load."""

Instant = tuple[float, float]
"""(loop time, time since boot) in s; the time since boot includes the time that the machine was suspended."""


class Tenure:
    """This server's own registration. Use it from the event loop's thread only. Its creator closes it."""

    def __init__(
        self,
        servers: Membership,
        server: ServerRef,
        *,
        timeout_ms: int | None = None,
        registered_at: Instant | None = None,
        boot_time_s: Callable[[], float] = clock.boot_time_s,
    ) -> None:
        """`timeout_ms`: the registration's timeout; None: clocks are ignored. `registered_at`: `now()` from before registering."""
        self.server = server
        self.lapse_count = 0
        """How often the registration has lapsed, as of a moment when it was live."""
        self._servers = servers
        self._timeout_s = float("inf") if timeout_ms is None else timeout_ms / 1000
        self._boot_time_s = boot_time_s
        self._live_at = registered_at or self.now()
        self._is_over = False
        self._running: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None
        self._started_s = float("-inf")

    def now(self) -> Instant:
        """Read both clocks."""
        return asyncio.get_running_loop().time(), self._boot_time_s()

    def is_sure(self) -> bool:
        """Whether both clocks show that the last successful heartbeat was sent less than `timeout_ms` ago.

        If clocks run at the same speed, no observer can then have seen silence for `timeout_ms`. Always False once a heartbeat is fenced.
        """
        return not self._is_over and all(
            now_s - live_s < self._timeout_s for now_s, live_s in zip(self.now(), self._live_at, strict=True)
        )

    async def beat(self) -> None:
        """Send a heartbeat. Raises `Fenced`, `Unavailable`."""
        await self._beat()

    async def _beat(self) -> int:
        sent_at = self.now()
        try:
            lapse_count = await self._servers.heartbeat(self.server)
        except Fenced:
            self._is_over = True
            raise
        self._live_at = max(self._live_at, sent_at)
        if lapse_count > self.lapse_count:
            log.warning(
                "peers considered this server dead; checking its leases",
                extra={"server": self.server, "lapse_count": lapse_count},
            )
            metrics.SERVER_LAPSES.labels("own").inc(lapse_count - self.lapse_count)
            self.lapse_count = lapse_count
        return lapse_count

    async def confirm(self) -> int:
        """Return the registration's lapse count, read after this call from a live registration (a heartbeat revives a lapsed one).

        A lease verified at this count still belonged to this server at that moment. Callers during one read share the next read.

        Raises:
            Fenced: a newer process with this server's name has registered, or this server has deregistered.
            Unavailable: the store did not answer in time.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._confirm_after(self._running))
            self._next.add_done_callback(noticed(log, "confirm the registration"))
        return await _shared(self._next)

    async def _confirm_after(self, running: "asyncio.Task[int] | None") -> int:
        loop = asyncio.get_running_loop()
        if running is not None and not running.done():
            await asyncio.wait([running])
        pause_s = self._started_s + GATHER_MS / 1000 - loop.time()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._running, self._next = self._next, None  # later callers need the next read
        self._started_s = loop.time()
        try:
            async with asyncio.timeout(CONFIRM_MS / 1000):
                lapse_count = await self._servers.lapse_count(self.server)
                return lapse_count if lapse_count == self.lapse_count else await self._beat()
        except TimeoutError as error:
            raise Unavailable(f"the metadata store did not confirm the registration within {CONFIRM_MS} ms") from error

    async def close(self) -> None:
        """Stop, and cancel all waiting callers."""
        tasks = [task for task in (self._running, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class HeldLease:
    """A lease that this server took, and the lapse count up to which it is verified."""

    def __init__(self, tenure: Tenure, leases: Leases, lease: Lease, lapse_count: int) -> None:
        """Use `take`."""
        self.lease = lease
        self._tenure = tenure
        self._leases = leases
        self._verified_count = lapse_count
        self._looking: asyncio.Task[None] | None = None

    @classmethod
    async def take(cls, tenure: Tenure, leases: Leases, name: str) -> "HeldLease":
        """Take the lease for the tenure's server. Raises as `Leases.acquire`."""
        lapse_count = tenure.lapse_count  # read before acquiring, so that a lapse meanwhile makes the lease unverified
        return cls(tenure, leases, await leases.acquire(name, tenure.server), lapse_count)

    @property
    def is_unverified(self) -> bool:
        """Whether this server has lapsed since the lease was verified, so that another server may have taken the lease."""
        return must_verify(self._verified_count, self._tenure.lapse_count)

    async def confirm(self) -> None:
        """Return if this server held the lease at some moment after the call.

        Raises:
            Fenced: another server holds the lease, or this server is no longer registered.
            Unavailable: the store did not answer in time.
        """
        lapse_count = await self._tenure.confirm()
        while must_verify(self._verified_count, lapse_count):
            await self.verify()

    async def verify(self) -> None:
        """Look the lease up in the store; concurrent callers share one look-up. Raises as `confirm`."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
            self._looking.add_done_callback(noticed(log, "look a lease up"))
        await _shared(self._looking)

    async def _look(self) -> None:
        lapse_count = self._tenure.lapse_count  # set by a heartbeat before the look-up
        try:
            async with asyncio.timeout(CONFIRM_MS / 1000):
                found = await self._leases.holder(self.lease.name)
        except TimeoutError as error:
            raise Unavailable(f"the metadata store did not show the lease within {CONFIRM_MS} ms") from error
        if found != self.lease:
            raise Fenced(f"the lease {self.lease.name!r} is no longer held by this server")
        self._verified_count = lapse_count


def must_verify(verified_count: int, lapse_count: int) -> bool:
    """Whether a lease verified at `verified_count` must be looked up again before the server answers."""
    return verified_count < lapse_count


async def _shared(task: "asyncio.Task[T]") -> T:
    """Await a task shared by several callers. Raises `Unavailable` if the task was cancelled, because the server is stopping."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        raise Unavailable("this server is stopping") from None
