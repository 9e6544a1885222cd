"""Transactional ids as servers serve them: the store changes a row as `metadata/transaction_rules.py` decides.

A server keeps nothing about a transactional id between two requests, so any server serves any request. A conflict shows that another
server, or a commit, changed the row while it was decided: the request is decided anew.

`expire` aborts transactions that take too long. Every server runs it. Time decides only when a server tries; the compare-and-set
decides whether the abort or a commit of the producer comes first (I13). A transaction takes too long by the store's clock, or by the
server's own clock since the server first saw it: a store's clock that steps back delays no abort for longer (decision 181). `expire`
also measures the oldest open transaction, and learns whether other servers have transactional ids.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from bearlake.errors import Conflict, NotFound, Unavailable
from bearlake.metadata import Metadata, transaction_rules
from bearlake.metadata.model import CommittedOffset, Lease, PartitionKey
from bearlake.metadata.transaction_rules import NO_PRODUCER, Problem, Step
from bearlake.metadata.transactions import EPOCH_MAX, End, Put, Transaction, is_transactional_id
from bearlake.telemetry import metrics
from bearlake.telemetry.fault_isolation import FaultIsolation

log = logging.getLogger(__name__)

ATTEMPTS = 10
"""Attempts to change a row that others change at the same time. A producer sends one request at a time, so conflicts are rare."""

PAGE_COUNT = 1_000
"""Rows that are read at once."""

OWNER_COUNT_MAX = 100_000
"""Producer ids whose transactional id a server remembers (about 200 bytes each)."""

Began = tuple[int, int, int]
"""What tells a transaction from the others of its transactional id: producer id, epoch, and when it began (`Transaction.started_ms`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Limits of transactions."""

    timeout_max_ms: int = 900_000
    """Longest `transaction.timeout.ms` (ms) of a producer; Kafka's `transaction.max.timeout.ms`. An open transaction holds back readers of
    committed records and compaction in its partitions."""
    group_count_max: int = 1_000
    """Most groups whose offsets one transaction may have. Each request that adds one stores the names of all."""
    expire_pause_ms: int = 5_000
    """Pause (ms) between searches for transactions that take too long. A longer pause makes them hold back readers longer."""
    idle_ms: int = 604_800_000
    """How long (ms) a transactional id without requests is remembered: seven days, as Kafka's `transactional.id.expiration.ms`."""


class TransactionRefusal(Exception):
    """A request is refused; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.name)
        self.problem = problem


def began(row: Transaction) -> Began:
    """Return what tells the row's ongoing transaction from its others."""
    return row.producer_id, row.epoch, row.started_ms


def monotonic_s() -> float:
    """Return the time (s) by the event loop's clock, which does not step."""
    return asyncio.get_running_loop().time()


PutOffsets = Callable[[Callable[[Lease], Awaitable[None]]], Awaitable[None]]
"""Runs a write with the lease of a group, after checking that its member may commit."""


class _Concerned:
    """The transaction that a request concerns: the one that is ongoing when the request is first decided.

    Transactions of KIP-98 share an epoch. So a request that is decided anew, after a conflict, may find a later transaction of the same
    epoch. It must not end it, or add to it: another server has answered the request by then.
    """

    def __init__(self) -> None:
        self._began: Began | None = None

    def is_over(self, held: Transaction | None) -> bool:
        """Return whether `held` has a later transaction of the same epoch. (One that began in the same millisecond is not noticed.)"""
        if held is None or not held.is_ongoing:
            return False
        now = began(held)
        self._began = self._began or now
        return self._began != now and self._began[:2] == now[:2]


class TransactionService:
    """One server's access to transactional ids. Every method raises `TransactionRefusal`, `Unavailable` and `Overloaded`."""

    def __init__(
        self, metadata: Metadata, settings: TransactionSettings, on_ended: Callable[[], None] = lambda: None
    ) -> None:
        """`on_ended` is called when a transaction was ended here, or is acknowledged as ended."""
        self._metadata = metadata
        self._store = metadata.transactions
        self._on_ended = on_ended
        self.settings = settings
        self.is_used = False
        """Whether this server knows that the deployment has, or had, a transactional id."""
        self._fault_isolation = FaultIsolation(log, "expire transactions", metadata.log.head)
        self._seen: dict[tuple[str, Began], float] = {}
        """When this server first saw each ongoing transaction, by the event loop's clock (s)."""
        self._owners: dict[int, str] = {}
        """Transactional ids by producer id. An entry never becomes wrong: a producer id belongs to one transactional id for all time."""

    def owner(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer id; None if this server must look it up (`find_owners`)."""
        return self._owners.get(producer_id)

    async def find_owners(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the transactional ids of producer ids; ids that belong to none are left out."""
        found = await self._store.owners(producer_ids)
        for producer_id, transactional_id in found.items():
            self._remember(producer_id, transactional_id)
        return found

    def _remember(self, producer_id: int, transactional_id: str) -> None:
        if len(self._owners) >= OWNER_COUNT_MAX:
            del self._owners[next(iter(self._owners))]
        self._owners[producer_id] = transactional_id

    async def initialize(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] = NO_PRODUCER
    ) -> tuple[int, int]:
        """Return producer id and epoch for a new producer, which fences the former one and aborts its transaction.

        `expected`: what the producer has, if it bumps its own epoch (KIP-360).
        """

        def decide(held: Transaction | None, new_id: int) -> Step:
            return transaction_rules.initialize(held, transactional_id, timeout_ms, new_id, expected)

        row = await self._change(transactional_id, decide)
        self._on_ended()  # another server may have ended the former producer's transaction
        return row.producer_id, row.epoch

    async def add(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        partitions: Collection[PartitionKey] = (),
        group: str | None = None,
    ) -> None:
        """Add partitions or a group to the producer's transaction; begins one if there is none."""

        def decide(held: Transaction | None, _: int) -> Step:
            return self._add(held, producer, partitions=partitions, group=group)

        await self._change(transactional_id, decide)

    async def end(
        self, transactional_id: str, producer: tuple[int, int], *, is_commit: bool, bumps: bool
    ) -> tuple[int, int]:
        """Commit or abort the producer's transaction; returns the producer id and epoch of its next one."""
        concerned = _Concerned()

        def decide(held: Transaction | None, new_id: int) -> Step:
            if concerned.is_over(held):
                return Problem.INVALID_STATE
            return transaction_rules.end(held, producer, new_id, is_commit=is_commit, bumps=bumps)

        row = await self._change(transactional_id, decide)
        self._on_ended()  # also of a repeat: another server may have ended it
        return row.producer_id, row.epoch

    async def keep_offsets(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        group: str,
        offsets: Mapping[PartitionKey, CommittedOffset],
        put: PutOffsets,
        *,
        begins: bool,
    ) -> None:
        """Keep offsets of a group until the transaction ends. `begins`: as in KIP-890, the group need not have been added before.

        `put` passes the lease of the group; passes its errors on.
        """
        concerned = _Concerned()
        for _ in range(ATTEMPTS):
            held = await self._row(transactional_id)
            step = Problem.INVALID_STATE if concerned.is_over(held) else self._add(held, producer, group=group)
            if isinstance(step, Problem):
                raise TransactionRefusal(step)
            assert isinstance(step, Put)
            assert held is not None
            if not begins and step.after is not held:
                raise TransactionRefusal(Problem.INVALID_STATE)
            conflicts: list[Conflict] = []

            async def write(
                lease: Lease,
                after: Transaction = step.after,
                version: int = held.version,
                lost: list[Conflict] = conflicts,
            ) -> None:
                try:
                    await self._store.put_offsets(after, version, group, offsets, lease)
                except Conflict as error:
                    lost.append(error)

            await put(write)
            if not conflicts:
                return
        raise Unavailable(f"the transactional id {transactional_id!r} is changed by others all the time")

    async def abort(self, transactional_id: str, producer: tuple[int, int]) -> None:
        """Abort the transaction of exactly this producer id and epoch, and fence the producer: for an administrator (KIP-664)."""

        def decide(held: Transaction | None, new_id: int) -> Step:
            if held is None or held.producer_id != producer[0]:
                return Problem.INVALID_MAPPING
            if held.epoch != producer[1]:
                return Problem.FENCED
            return transaction_rules.expire(held, new_id) if held.is_ongoing else Put(held)

        await self._change(transactional_id, decide)
        self._on_ended()  # also if it was over: another server may have ended it

    async def abort_all(self, producer: tuple[int, int]) -> None:
        """Abort what is ongoing of this producer id and epoch, as `abort` does; does nothing if nothing is."""
        async for page in self.pages(is_ongoing=True):
            for row in page:
                if row.producer_id == producer[0]:
                    await self.abort(row.transactional_id, producer)
        self._on_ended()

    async def get(self, transactional_id: str) -> tuple[Transaction, list[PartitionKey]]:
        """Return a row, and the partitions of its ongoing transaction. Raises `NotFound`."""
        row = await self._row(transactional_id)
        if row is None:
            raise NotFound(f"no transactional id {transactional_id!r}")
        opened = await self._store.open_offsets(producer_id=row.producer_id) if row.is_ongoing else ()
        return row, sorted(row.partitions.union(item.partition for item in opened))

    async def pages(self, *, is_ongoing: bool = False) -> AsyncIterator[Sequence[Transaction]]:
        """Yield all rows, or those with an ongoing transaction, by transactional id, at most `PAGE_COUNT` at a time."""
        after = ""
        while page := await self._store.list(after=after, limit=PAGE_COUNT, is_ongoing=is_ongoing):
            yield page
            after = page[-1].transactional_id

    async def expire(self) -> None:
        """Abort the transactions that take longer than their producers allow, and fence the producers.

        A transaction that cannot be ended does not keep the others from their end (I11).
        """
        if not self.is_used:
            self.is_used = bool(await self._store.list(limit=1))
        now_ms = await self._metadata.now_ms()
        watched_s = monotonic_s()
        oldest_ms = 0
        seen: dict[tuple[str, Began], float] = {}
        async for page in self.pages(is_ongoing=True):
            for row in page:
                key = row.transactional_id, began(row)
                seen[key] = self._seen.get(key, watched_s)
                age_ms = max(now_ms - row.started_ms, int((watched_s - seen[key]) * 1000))
                oldest_ms = max(oldest_ms, age_ms)
                if age_ms > row.timeout_ms:
                    async with self._fault_isolation.of(f"transactional id {row.transactional_id}"):
                        await self._expire(row)
        self._fault_isolation.end_round()
        self._seen = seen
        metrics.TRANSACTIONS_OPEN_AGE.set(oldest_ms)

    async def _expire(self, row: Transaction) -> None:
        step = transaction_rules.expire(row, await self._new_id(row))
        try:
            await self._store.end(step.after, row.version, is_commit=False)
        except Conflict:
            return  # it ended, or another server was first
        metrics.TRANSACTIONS_EXPIRED.inc()

    async def forget(self) -> None:
        """Forget transactional ids that nobody has used for long."""
        now_ms = await self._metadata.now_ms()
        async for page in self.pages():
            for row in page:
                if not row.is_ongoing and now_ms - row.changed_ms > self.settings.idle_ms:
                    await self._store.forget(row.transactional_id, row.version)

    def _add(
        self,
        held: Transaction | None,
        producer: tuple[int, int],
        *,
        partitions: Collection[PartitionKey] = (),
        group: str | None = None,
    ) -> Step:
        step = transaction_rules.add(held, producer, partitions=partitions, group=group)
        is_too_much = isinstance(step, Put) and len(step.after.groups) > self.settings.group_count_max
        return Problem.TOO_MANY_GROUPS if is_too_much else step

    async def _change(self, transactional_id: str, decide: Callable[[Transaction | None, int], Step]) -> Transaction:
        new_id = -1

        def decide_with_id(held: Transaction | None) -> Step | None:
            step = decide(held, new_id)  # also without an id: an end notes which transaction it concerns
            return None if new_id < 0 and _may_need_id(held) and not isinstance(step, Problem) else step

        for _ in range(ATTEMPTS):
            try:
                done = await self._attempt(transactional_id, decide_with_id)
            except Conflict:
                continue
            if isinstance(done, Problem):
                raise TransactionRefusal(done)
            if done is not None:
                self.is_used = True
                self._remember(done.producer_id, transactional_id)
                return done
            new_id = (await self._metadata.producers.allocate(1)).start
        raise Unavailable(f"the transactional id {transactional_id!r} is changed by others all the time")

    async def _attempt(
        self, transactional_id: str, decide: Callable[[Transaction | None], Step | None]
    ) -> Transaction | Problem | None:
        """Return the row as stored, or why the change is refused; None if `decide` returned None. Raises `Conflict`."""
        if not is_transactional_id(transactional_id) and isinstance(step := decide(None), Problem | None):
            return step  # no store keeps such a name (decision 161)
        problem: Problem | None = None

        def accepted(held: Transaction | None) -> Put | End | None:
            nonlocal problem
            step = decide(held)
            problem = step if isinstance(step, Problem) else None
            return None if isinstance(step, Problem) else step

        row = await self._store.change(transactional_id, accepted)
        return row if problem is None else problem

    async def _row(self, transactional_id: str) -> Transaction | None:
        """Return the row; None also for names that no store keeps (decision 161)."""
        return await self._store.get(transactional_id) if is_transactional_id(transactional_id) else None

    async def _new_id(self, held: Transaction) -> int:
        """Return a producer id that a change of the row may need, else -1."""
        return (await self._metadata.producers.allocate(1)).start if _may_need_id(held) else -1


def _may_need_id(held: Transaction | None) -> bool:
    """Return whether a change may give the row a new producer id: it is the first one, or the epoch is nearly used up."""
    return held is None or held.epoch >= EPOCH_MAX - 1
