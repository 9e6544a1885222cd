"""Whether this server still has what it took: what it knows of its own registration, and how it makes sure (I14).

Leases live with a registration. One that stood still may have been declared lapsed, and its leases taken, without the server's knowing. So
whoever answers for a lease asks here first, and remembers with the lease the `lapse_count` up to which it was verified:

    question ──> confirm: the store's count, read after the question came ──same──> answer
                                                                          └─grown─> heartbeat (live again) ──> look the lease up ──> answer
                                                                                                                  └─ another's ──> forget it

The heartbeat comes first: while the server has lapsed, a look-up decides nothing. After it nobody can take a lease because of that lapse.

Two strengths: `confirm` costs a read, shared by all who wait for one (coordinators of groups). `is_sure` costs nothing and trusts clocks
(dispatchers, whose deliveries nobody can take back in any case): see decision 75.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from bearlake import clock
from bearlake.errors import Fenced, Unavailable
from bearlake.metadata import Leases, Membership
from bearlake.metadata.model import Lease, ServerRef
from bearlake.telemetry import metrics

T = TypeVar("T")

log = logging.getLogger(__name__)

CONFIRM_MS = 3_000
"""Longest time (ms) of one confirmation; whoever comes during one waits for it and for the next."""
GATHER_MS = 10
"""Shortest time (ms) between the starts of two confirmations: at most a hundred small reads per second, however many questions come."""

Instant = tuple[float, float]
"""The loop's time and the time since boot (s), which counts a suspended machine's sleep too."""


class Tenure:
    """This server's own registration. Used from the event loop's thread only. Whoever makes it closes it; all others only ask."""

    def __init__(
        self,
        servers: Membership,
        server: ServerRef,
        *,
        timeout_ms: int | None = None,
        registered_at: Instant | None = None,
        boot_time_s: Callable[[], float] = clock.boot_time_s,
    ) -> None:
        """`timeout_ms` is the registration's; None: never in doubt by clocks alone. `registered_at`: before it was made (`now`)."""
        self.server = server
        self.lapse_count = 0
        """How often the registration has lapsed, as of a moment in which it was live."""
        self._servers = servers
        self._timeout_s = float("inf") if timeout_ms is None else timeout_ms / 1000
        self._boot_time_s = boot_time_s
        self._live_at = registered_at or self.now()
        self._is_over = False
        self._running: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None
        self._started_s = float("-inf")

    def now(self) -> Instant:
        """This instant on both clocks."""
        return asyncio.get_running_loop().time(), self._boot_time_s()

    def is_sure(self) -> bool:
        """Whether the last heartbeat that succeeded was sent less than `timeout_ms` ago by either clock: no observer can have watched
        that long since, if clocks run at the same speed. Never again once a heartbeat was fenced."""
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
                "others took this server for dead, looking up its leases",
                extra={"server": self.server, "lapse_count": lapse_count},
            )
            metrics.SERVER_LAPSES.labels("own").inc(lapse_count - self.lapse_count)
            self.lapse_count = lapse_count
        return lapse_count

    async def confirm(self) -> int:
        """The registration's lapse count at a moment after this call, in which, or since which, it was live.

        What was verified at this count nobody else had at that moment. All who ask during one read share the next.

        Raises:
            Fenced: a newer process of this name has registered, or this one has left.
            Unavailable: the store did not answer in time.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._confirm_after(self._running))
            self._next.add_done_callback(_seen)
        return await _shared(self._next)

    async def _confirm_after(self, running: "asyncio.Task[int] | None") -> int:
        loop = asyncio.get_running_loop()
        if running is not None and not running.done():
            await asyncio.wait([running])
        pause_s = self._started_s + GATHER_MS / 1000 - loop.time()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._running, self._next = self._next, None  # whoever comes from here on is too late for this read
        self._started_s = loop.time()
        try:
            async with asyncio.timeout(CONFIRM_MS / 1000):
                lapse_count = await self._servers.lapse_count(self.server)
                return lapse_count if lapse_count == self.lapse_count else await self._beat()
        except TimeoutError as error:
            raise Unavailable(f"the metadata store did not confirm the registration within {CONFIRM_MS} ms") from error

    async def close(self) -> None:
        """Stop; whoever waits is cancelled."""
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
        lapse_count = tenure.lapse_count  # before: a lapse meanwhile is one to look into
        return cls(tenure, leases, await leases.acquire(name, tenure.server), lapse_count)

    @property
    def is_doubted(self) -> bool:
        """Whether this server has lapsed since the lease was verified: another one may have it."""
        return needs_look(self._verified_count, self._tenure.lapse_count)

    async def confirm(self) -> None:
        """Return if the lease was this server's at a moment after the call.

        Raises:
            Fenced: another server has it, or this one is not registered any more.
            Unavailable: the store did not answer in time.
        """
        lapse_count = await self._tenure.confirm()
        while needs_look(self._verified_count, lapse_count):
            await self.verify()

    async def verify(self) -> None:
        """Look the lease up in the store, once for all who wait. Raises as `confirm`."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
            self._looking.add_done_callback(_seen)
        await _shared(self._looking)

    async def _look(self) -> None:
        lapse_count = self._tenure.lapse_count  # of a heartbeat before the look-up
        try:
            async with asyncio.timeout(CONFIRM_MS / 1000):
                found = await self._leases.holder(self.lease.name)
        except TimeoutError as error:
            raise Unavailable(f"the metadata store did not show the lease within {CONFIRM_MS} ms") from error
        if found != self.lease:
            raise Fenced(f"the lease {self.lease.name!r} is another server's, or free")
        self._verified_count = lapse_count


def needs_look(verified_count: int, lapse_count: int) -> bool:
    """Whether a lease that was verified at `verified_count` must be looked up before anybody is answered."""
    return verified_count < lapse_count


async def _shared(task: "asyncio.Task[T]") -> T:
    """What a task finds out for several who wait. Raises `Unavailable` when it was cancelled: the server stops."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        raise Unavailable("this server stops") from None


def _seen(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()  # everybody who waited may have gone
