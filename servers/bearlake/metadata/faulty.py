"""A metadata store that fails as real stores do, for tests and the simulation.

Every call of every method is passed on to the inner store. On the way there or back the call may be late, fail before its effect, or lose
its reply after the effect. The last two raise `Unavailable`, because a caller cannot tell them apart. A cancelled call may have
happened too: the effect is not undone if the reply is delayed. Faults come from an injected random source, and waits from the event
loop alone, so a seed replays exactly, also in virtual time.

A write may also be given up (`Unavailable`) while its effect is still to come. This wrapper does the worst that the stores' guarantee
allows (DESIGN.md, I12): the effect happens at any moment until the next write through this wrapper begins, or never, but not later.
One wrapper stands for one process; writes of other processes may come in between.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from typing_extensions import override

from bearlake.errors import BearlakeError, Unavailable
from bearlake.metadata import (
    CommitLog,
    GroupStore,
    Leases,
    Membership,
    Metadata,
    StreamCatalog,
)
from bearlake.metadata.access_rules import AccessRules
from bearlake.metadata.compaction import ObjectRegister, TaskQueue
from bearlake.metadata.defaults import DefaultsStore
from bearlake.metadata.producer_ids import ProducerIds
from bearlake.metadata.quotas import Quotas
from bearlake.metadata.schemas import SchemaStore
from bearlake.metadata.subscriptions import CursorStore
from bearlake.metadata.table_columns import TableColumnsStore
from bearlake.metadata.transactions import Decide, Transaction, Transactions, change_in_two_steps
from bearlake.metadata.users import UserStore


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFaults:
    """How often and how the store fails; rates are probabilities per call, 0 to 1."""

    delay_ms_max: float = 0.0
    """Each call waits up to this long before its effect, and again before its reply (uniform). 0: it yields to the loop once."""

    error_rate: float = 0.0
    """`Unavailable` without an effect."""

    lost_reply_rate: float = 0.0
    """`Unavailable` although the effect happened."""

    late_rate: float = 0.0
    """`Unavailable` of a write whose effect comes later, at the latest when the next write begins, or (just as often) never."""


READS = frozenset(
    {
        "cluster_id",
        "now_ms",
        "get",
        "newest",
        "list",
        "by_numbers",
        "live",
        "last_epoch",
        "load",
        "offsets",
        "holder",
        "holders",
    }
    | {"incarnations", "lapse_count", "deletion_count"}
    | {"follow", "wait", "head", "bounds", "locate", "locate_timestamp", "locate_max_timestamp", "producers", "usage"}
    | {
        "slices",
        "check",
        "uncompacted",
        "backlog",
        "commits",
        "compacted",
        "unused",
        "data_files",
        "subject",
        "schemas",
    }
    | {"by_fingerprint", "subjects", "versions", "usages", "some_usages", "referrers", "contexts", "last_id"}
    | {"revision", "read", "owners", "open_offsets", "isolation", "pending"}
)
"""Methods without an effect, of all interfaces."""


class FaultyMetadata(Metadata):
    """A `Metadata` that passes calls on to `inner`, with faults. Closing it closes `inner`."""

    def __init__(self, inner: Metadata, faults: MetadataFaults, randomness: random.Random) -> None:
        self._inner = inner
        self._line = Line(faults, randomness)
        self.streams: StreamCatalog = cast("StreamCatalog", FaultyNoun(inner.streams, self._line))
        self.servers: Membership = cast("Membership", FaultyNoun(inner.servers, self._line))
        self.log: CommitLog = cast("CommitLog", FaultyNoun(inner.log, self._line))
        self.producers: ProducerIds = cast("ProducerIds", FaultyNoun(inner.producers, self._line))
        self.groups: GroupStore = cast("GroupStore", FaultyNoun(inner.groups, self._line))
        self.leases: Leases = cast("Leases", FaultyNoun(inner.leases, self._line))
        self.tasks: TaskQueue = cast("TaskQueue", FaultyNoun(inner.tasks, self._line))
        self.objects: ObjectRegister = cast("ObjectRegister", FaultyNoun(inner.objects, self._line))
        self.schemas: SchemaStore = cast("SchemaStore", FaultyNoun(inner.schemas, self._line))
        self.cursors: CursorStore = cast("CursorStore", FaultyNoun(inner.cursors, self._line))
        self.defaults: DefaultsStore = cast("DefaultsStore", FaultyNoun(inner.defaults, self._line))
        self.users: UserStore = cast("UserStore", FaultyNoun(inner.users, self._line))
        self.access: AccessRules = cast("AccessRules", FaultyNoun(inner.access, self._line))
        self.quotas: Quotas = cast("Quotas", FaultyNoun(inner.quotas, self._line))
        self.transactions: Transactions = cast("Transactions", FaultyTransactions(inner.transactions, self._line))
        self.table_columns: TableColumnsStore = cast("TableColumnsStore", FaultyNoun(inner.table_columns, self._line))

    def misbehave(self, faults: MetadataFaults) -> None:
        """Use these faults from now on."""
        self._line.faults = faults

    @override
    async def cluster_id(self) -> str:
        return cast("str", await self._line.call("cluster_id", self._inner.cluster_id))

    @override
    async def now_ms(self) -> int:
        return cast("int", await self._line.call("now_ms", self._inner.now_ms))

    async def close(self) -> None:
        """Close the inner store, without faults."""
        await self._inner.close()


class Line:
    """The path of a call to the store and back."""

    def __init__(self, faults: MetadataFaults, randomness: random.Random) -> None:
        self.faults = faults
        self._randomness = randomness
        self._late: list[Callable[[], Awaitable[object]]] = []
        """Effects of given-up writes that may still happen."""
        self._applying_late = asyncio.Lock()

    async def call(
        self, what: str, effect: Callable[..., Awaitable[object]], *arguments: Any, **options: Any
    ) -> object:
        """Run `effect` and return its result, or fail on the way there or back. Errors of `effect` are delayed or lost as replies are."""
        await self._delay()
        await self._apply_late(is_final=what not in READS)
        if what not in READS and self._happens(self.faults.late_rate):
            self._late.append(partial(effect, *arguments, **options))
            raise Unavailable(f"{what}: injected give-up, the effect may come late")
        if self._happens(self.faults.error_rate):
            raise Unavailable(f"{what}: injected fault before the effect")
        result, refusal = None, None
        try:
            result = await effect(*arguments, **options)
        except BearlakeError as error:
            refusal = error
        await self._delay()
        if self._happens(self.faults.lost_reply_rate):
            raise Unavailable(f"{what}: injected loss of the reply") from refusal
        if refusal is not None:
            raise refusal
        return result

    async def _apply_late(self, *, is_final: bool) -> None:
        """Let late effects happen, each with even odds; if `is_final`, the remaining ones never happen."""
        async with self._applying_late:
            waiting, self._late = self._late, []
            for effect in waiting:
                if self._happens(0.5):
                    with suppress(BearlakeError):
                        await effect()
                elif not is_final:
                    self._late.append(effect)

    async def _delay(self) -> None:
        longest_s = self.faults.delay_ms_max / 1000
        await asyncio.sleep(self._randomness.uniform(0.0, longest_s) if longest_s > 0 else 0)

    def _happens(self, rate: float) -> bool:
        return rate > 0 and self._randomness.random() < rate


class FaultyNoun:
    """One of the store's Protocols with faults in each of its methods, all of which are coroutines."""

    def __init__(self, inner: object, line: Line) -> None:
        self._inner = inner
        self._line = line

    def blocking_commit(self) -> None:
        """Return None: every commit goes through this wrapper."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        effect = getattr(self._inner, name)

        async def call(*arguments: Any, **options: Any) -> object:  # Any: whatever the method takes
            return await self._line.call(name, effect, *arguments, **options)

        return call


class FaultyTransactions(FaultyNoun):
    """Two calls for a change, as in PostgreSQL: each can fail, and writes of other processes may come in between."""

    async def change(self, transactional_id: str, decide: Decide) -> Transaction | None:
        """Read, decide in the caller's process, and store."""
        return await change_in_two_steps(cast("Transactions", self), transactional_id, decide)
