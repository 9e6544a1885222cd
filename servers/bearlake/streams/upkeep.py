"""Upkeep of the metadata store in bounded steps: rolls up and truncates the commit log, expires idle producers, ends transactions that take
too long.

Every server runs it; the store lets one server work and the others return. Without upkeep, the log and the start-up time of servers would
grow without bound. So would the producer states, because every client start creates new ones.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bearlake.errors import BearlakeError
from bearlake.metadata import CommitLog
from bearlake.metadata.producer_ids import ProducerIds
from bearlake.metadata.producers import MINUTE_MS
from bearlake.streams.transactions import TransactionService
from bearlake.telemetry import metrics
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)

PRODUCER_COUNT_MAX = 1_000
"""Producers expired in one step. In PostgreSQL, a step over 1,000 partitions took 0.2 s on a busy machine with 2 cores, and the slowest
commit beside it 0.1 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSettings:
    """How often the log is rolled up, how much of it stays, and how long producers are remembered."""

    pause_ms: int = 2_000
    """Pause (ms) between two turns of upkeep. A longer pause makes the roll-up cheaper, because a turn writes each partition once for all
    its new slices. Look-ups of the newest offsets, and starts of servers, then read more log entries."""
    entry_count_min: int = 2_000
    """Newest entries that always stay, for followers that are slightly behind. Followers further behind restart at the head."""
    producer_idle_ms: int = 86_400_000
    """How long (ms) a producer without batches is remembered: a day, as in Kafka (KIP-854). A batch that its client sends again after that
    may be stored twice. Servers count the time in minutes while they run; wall clocks are not used. If servers have different values, the
    smallest one applies to all."""
    producer_pause_ms: int = 600_000
    """Pause (ms) between searches for idle producers."""


class ProducerClock:
    """Advances the producer clock of the store by a minute once it has stood still for a minute of the event loop's clock."""

    def __init__(self, producers: ProducerIds) -> None:
        self._producers = producers
        self._minute = -1
        """The minute at which the store's clock stood when it was last read; -1: never read."""
        self._seen_s = 0.0
        """When the event loop got that reply."""

    async def watch(self) -> None:
        """Advance the clock if that is due. Raises `Unavailable`; the next call tries again."""
        loop = asyncio.get_running_loop()
        if self._minute < 0 or loop.time() >= self._seen_s + MINUTE_MS / 1000:
            self._minute = await self._producers.advance_clock(self._minute)
            self._seen_s = loop.time()


class Upkeep:
    """Runs `CommitLog.maintain`, a `ProducerClock`, `ProducerIds.expire`, and the expiry of transactions and their ids.

    The service's task group owns `run`.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        producers: ProducerIds,
        settings: UpkeepSettings,
        transactions: TransactionService | None = None,
    ) -> None:
        self._log = commit_log
        self._producers = producers
        self._clock = ProducerClock(producers)
        self._settings = settings
        self._transactions = transactions

    async def run(self) -> None:
        """Run until cancelled. If the store does not answer, the next round tries again."""
        outages = {
            job: Outage(log, f"upkeep of the {job} failed; retrying", f"upkeep of the {job} works again")
            for job in ("commit log", "producer clock", "producers", "transactions", "transactional ids")
        }
        loop = asyncio.get_running_loop()
        producers_due = loop.time() + self._settings.producer_pause_ms / 1000
        transactions, transactions_due, ids_due = self._transactions, loop.time(), producers_due
        while True:
            await asyncio.sleep(self._settings.pause_ms / 1000)
            await _attempt(self._maintain, outages["commit log"])
            await _attempt(self._clock.watch, outages["producer clock"])
            if loop.time() >= producers_due and await _attempt(self._forget_producers, outages["producers"]):
                producers_due = loop.time() + self._settings.producer_pause_ms / 1000
            if transactions is not None and loop.time() >= transactions_due:
                await _attempt(transactions.expire, outages["transactions"])
                transactions_due = loop.time() + transactions.settings.expire_pause_ms / 1000
            if transactions is not None and loop.time() >= ids_due:
                await _attempt(transactions.forget, outages["transactional ids"])
                ids_due = loop.time() + self._settings.producer_pause_ms / 1000

    async def _maintain(self) -> None:
        count = await self._log.maintain(entry_count_min=self._settings.entry_count_min)
        metrics.MAINTENANCE_ENTRIES.inc(count)

    async def _forget_producers(self) -> None:
        idle_ms = self._settings.producer_idle_ms
        while await self._producers.expire(idle_ms=idle_ms, limit=PRODUCER_COUNT_MAX) >= PRODUCER_COUNT_MAX // 2:
            pass  # a step leaves out producers of partitions that are busy at that moment


async def _attempt(job: Callable[[], Awaitable[None]], outage: Outage) -> bool:
    """Run a job; returns whether it succeeded. A failure does not stop other jobs (I11)."""
    try:
        await job()
    except BearlakeError as error:
        outage.failed(error)
        return False
    except Exception as error:  # noqa: BLE001 - boundary: one job
        outage.fault("upkeep of the metadata store", error)
        return False
    outage.over()
    return True
