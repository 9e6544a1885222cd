"""The stream service: the only interface between protocol servers and storage. Protocol servers call nothing below it.

Each server process has one `Streams`. Calls that name a stream carry the caller's `Principal`; all authorization checks go through here.

    produce   `submit` (callback, hot path) or `append` (await)  → writer
    consume   `fetch`, `offsets`, `bounds`                       → reader, history, offsets
    manage    `management.py` (create, alter, delete, trim), `groups`, `coordinator`, `subscriptions`
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from bearlake.cache.objects import CacheSettings, ObjectCache
from bearlake.clock import Clock, SystemClock
from bearlake.index.isolation import IsolationIndex
from bearlake.index.segments import SegmentIndex
from bearlake.index.tail import TailIndex
from bearlake.kernel import WriteBuffer
from bearlake.metadata import CommitLog, Metadata
from bearlake.metadata.model import (
    ObjectCommitted,
    ObjectRef,
    PartitionBounds,
    PartitionKey,
    ServerRef,
    stream_number,
)
from bearlake.objects import ObjectStore
from bearlake.owned_tasks import Tasks
from bearlake.streams import gauges, promotions
from bearlake.streams.access.control import AccessControl, AccessSettings
from bearlake.streams.append import Append, AppendCall, Appended, Call
from bearlake.streams.audit import Audit, AuditSettings
from bearlake.streams.catalog import Catalog, StreamView
from bearlake.streams.checking import Checks, CheckSettings
from bearlake.streams.committed import CommittedViews
from bearlake.streams.fetch import Reader, ReaderSettings
from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.follower import Follower, FollowerSettings
from bearlake.streams.generation import Generation
from bearlake.streams.groups.configs import GroupConfigs
from bearlake.streams.groups.peers import Alone, Peers
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.history import History, HistorySettings
from bearlake.streams.internal_topics import KafkaTopics
from bearlake.streams.management import Management
from bearlake.streams.offsets import OffsetAnswer, OffsetQuestion, Offsets
from bearlake.streams.on_demand import GROUPS, SUBSCRIPTIONS, OnDemand, PartsOnDemand
from bearlake.streams.outcomes import Seen
from bearlake.streams.own_writes import OwnWrites
from bearlake.streams.principal import Authorizer, Principal, client_of
from bearlake.streams.quotas.buckets import QuotaSettings
from bearlake.streams.quotas.control import QuotaControl
from bearlake.streams.reservations import Reservation
from bearlake.streams.schemas.compiled import SchemaCompiler, ValueChecker
from bearlake.streams.subscriptions.settings import SubscriptionSettings
from bearlake.streams.tenure import Tenure
from bearlake.streams.transactions import TransactionService, TransactionSettings
from bearlake.streams.upkeep import Upkeep, UpkeepSettings
from bearlake.streams.writer import Writer
from bearlake.streams.writer_settings import WriterSettings
from bearlake.table.reader import DataFileReader
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.streams.group_service import GroupService
    from bearlake.streams.shares import ConfiguredTerms
    from bearlake.streams.subscriptions.service import SubscriptionService

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSettings:
    """Settings of the protocol-independent core and its parts."""

    writer: WriterSettings = field(default_factory=WriterSettings)
    """When records are flushed, and how much may wait."""
    checks: CheckSettings = field(default_factory=CheckSettings)
    """How records of batches that clients encoded are checked."""
    reader: ReaderSettings = field(default_factory=ReaderSettings)
    """Bounds of reads."""
    history: HistorySettings = field(default_factory=HistorySettings)
    """What is kept and read ahead for consumers that lag behind the tail index."""
    cache: CacheSettings = field(default_factory=CacheSettings)
    """The object cache."""
    follower: FollowerSettings = field(default_factory=FollowerSettings)
    """How the commit log is followed."""
    upkeep: UpkeepSettings = field(default_factory=UpkeepSettings)
    """Roll-up and truncation of the commit log."""
    groups: GroupSettings = field(default_factory=GroupSettings)
    """Limits of consumer groups."""
    subscriptions: SubscriptionSettings = field(default_factory=SubscriptionSettings)
    """Limits of subscriptions, and how their cursors are saved."""
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    """Limits of transactions."""
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    """How quotas are enforced."""
    audit: AuditSettings = field(default_factory=AuditSettings)
    """How many denials are logged."""
    tail_slice_count_max: int = 200_000
    """Slices in the tail index (about 400 bytes each). Readers further behind need a look-up in the metadata store per fetch."""
    stream_count_max: int = 100_000
    """Streams that this deployment may have."""
    partition_count_max: int = 200_000
    """Partitions of all streams of this deployment. Clients ask for all of them in one request, and every server keeps state for each."""
    stream_partition_count_max: int = 10_000
    """Partitions of one stream; a stream that has more keeps them."""


class Streams(Management, PartsOnDemand):
    """The stream service of one server process. Use it from the event loop's thread only."""

    def __init__(
        self,
        metadata: Metadata,
        store: ObjectStore,
        server: ServerRef,
        settings: StreamsSettings | None = None,
        *,
        clock: Clock | None = None,
        random_source: random.Random | None = None,
        authorizer: Authorizer | None = None,
        access: AccessSettings | None = None,
        audit: Audit | None = None,
        server_count: Callable[[], int] = lambda: 1,
        peers: Peers | None = None,
        on_fenced: Callable[[], None] = lambda: None,
        on_unknown: Callable[[], None] | None = None,
        tenure: Tenure | None = None,
        compiler: SchemaCompiler | None = None,
        checker: ValueChecker | None = None,
    ) -> None:
        """Wire up the parts of the stream service; `start` loads them.

        `server`: the registration that fences this process's writes. `on_fenced` runs once when the server loses its registration.
        `on_unknown` (default: `on_fenced`) runs instead when the outcome of a write stays unknown: the process must stop and re-register.
        `access`: settings that complete the deployment's access rules; an `authorizer` decides instead of the rules. `audit`: its log.
        `server_count`: live servers, among which quotas are divided. `peers`: those that coordinate groups; None: this server alone.
        `tenure`: tracks this server's own lapses; the caller closes it. None: no heartbeats, and only lapses that others declare count.
        `compiler`: compiles Protobuf schemas for validation; the caller closes it. None: `schema.validation=value` refuses such values.
        `checker`: the same for values of JSON Schema.
        """
        settings = self.settings = settings or StreamsSettings()
        self.server = server
        self.clock = clock or SystemClock()
        audit = audit or Audit(settings.audit)
        self.access = AccessControl(metadata.access, access, audit)
        quotas = QuotaControl(metadata.quotas, settings.quotas, server_count, audit=audit)
        super().__init__(metadata, _catalog(metadata, store, settings), authorizer or self.access, quotas, audit)
        self.generation = Generation()
        """Changes whenever another stream, access rule or quota applies, or this server drains."""
        self.keeps_answers = authorizer is None
        """Whether the right to append to a stream changes only with the generation: an `authorizer` may change its answer at any time."""
        self.access.on_change = quotas.on_change = self.generation.advance
        self.catalog.on_change.add(self.generation.advance)
        self.checks = Checks(settings.checks, metadata.schemas, compiler, checker)
        self.seen = Seen(metadata.log)
        """The newest log position that this server knows. Protocol servers record it when a request arrives, for `AppendCall.seen`."""
        self._open_reads(store)
        self.own_writes = OwnWrites(self.catalog)
        self._writer = self._open_writer(store, metadata.log, random_source, on_fenced, on_unknown or on_fenced)
        self._open_hot_path()
        self._owns_tenure = tenure is None
        self.tenure = tenure or Tenure(metadata.servers, server)
        self.transactions = TransactionService(metadata, settings.transactions, self.own_writes.unplaced)
        self.topics = KafkaTopics(self.catalog, lambda: self.transactions.is_used)
        """The streams and Kafka's internal topics, for Kafka's protocol and consumer groups."""
        self._peers = peers or Alone(server)
        self.group_configs = GroupConfigs(metadata.defaults, settings.groups)
        self._group_service = OnDemand(GROUPS, self._groups_by)
        self._subscription_service = OnDemand(SUBSCRIPTIONS, self._subscriptions_by)
        self._upkeep = Upkeep(metadata.log, metadata.producers, settings.upkeep, self.transactions)
        gauges.expose_writes(self._writer, settings.writer)
        gauges.expose_reads(self._tail, settings.tail_slice_count_max, self._cache, settings.cache)
        gauges.expose_history(self._history, settings.history)

    def _open_reads(self, store: ObjectStore) -> None:
        """Wire up what follows the commit log, and what reads."""
        metadata, settings = self.metadata, self.settings
        self._tail = TailIndex(settings.tail_slice_count_max, self._on_gap)
        self._cache = ObjectCache(
            store, settings.cache, lambda is_hit: (metrics.CACHE_HITS if is_hit else metrics.CACHE_MISSES).inc()
        )
        index, isolation = SegmentIndex(settings.history.piece_count_max), IsolationIndex()
        self._follower = Follower(
            metadata.log, self._tail, index, self.catalog, (self.access, self.quotas), settings.follower,
            self.seen.advance, isolation, self._cache.has_readers,
        )  # fmt: skip
        self._history = _history(metadata, store, self._tail, index, settings)
        views = CommittedViews(metadata.transactions, isolation, self._tail)
        self._reader = Reader(metadata.log, self._tail, self._history, self._cache, views, settings.reader)
        self.at_tail = self._reader.at_tail
        """Reads that need neither the store nor a task. The caller must check `sees(…, READ, …)` for every stream first."""
        self._offsets = Offsets(metadata.log, self._history, self._cache)

    def _groups_by(self, made: "type[GroupService]") -> "GroupService":
        parts = self._peers, self.tenure, self.topics, self.group_configs
        return made(self.metadata, self.server, self.settings.groups, *parts)

    def _subscriptions_by(
        self, made: "tuple[type[SubscriptionService], type[ConfiguredTerms]]"
    ) -> "SubscriptionService":
        service, terms = made
        subscriptions = service(
            self.metadata, self.metadata.cursors, self.server, self, self._knows, self.clock, self.settings.subscriptions,
            self.tenure, self._is_terminated, terms(self.group_configs, self.metadata.groups),
        )  # fmt: skip
        self.catalog.on_change.add(subscriptions.streams_changed)
        return subscriptions

    def _open_writer(
        self,
        store: ObjectStore,
        commit_log: CommitLog,
        random_source: random.Random | None,
        on_fenced: Callable[[], None],
        on_unknown: Callable[[], None],
    ) -> Writer:
        return Writer(
            store, commit_log, self.server, self.settings.writer, self.clock, random_source or random.SystemRandom(),
            self.seen, self._on_committed, self.own_writes.unplaced, on_fenced, on_unknown, self._cache.has_readers,
        )  # fmt: skip

    async def start(self) -> None:
        """Load the catalog and start at the log's head. Raises `Unavailable`."""
        await self._follower.start()

    async def run(self) -> None:
        """Run the background tasks until cancelled. The process owns this task and stops if it fails."""
        async with Tasks() as tasks:
            tasks.own("follow the commit log", self._follower.run())
            tasks.own("keep the commit log short", self._upkeep.run())
            tasks.own("coordinate groups", self._group_service.run())
            tasks.own("read the configs of groups", self.group_configs.run())
            tasks.own("dispatch subscriptions", self._subscription_service.run())
            await tasks.run()

    async def drain(self) -> None:
        """Release the groups and the subscriptions' partitions, then flush and commit everything accepted so far."""
        await self.release_groups()
        await self._subscription_service.drain()
        await self._writer.drain()

    async def close(self) -> None:
        """Stop; pending calls are answered UNAVAILABLE. The stores stay open; they belong to the caller."""
        await self._group_service.close()
        await self._subscription_service.close()
        await self._writer.close()
        self.checks.close()
        await self._history.close()
        await self._cache.close()
        if self._owns_tenure:
            await self.tenure.close()

    # -- produce -------------------------------------------------------------------------------------------------

    def submit(self, call: AppendCall) -> None:
        """Append the call's batches (at least one), in order; the callback runs when all outcomes are known, or after the deadline.

        The caller must check `may(…, WRITE, …)` and `admission.admit` for every batch first. `streams/writer.py` describes order,
        durability and duplicates. Never waits: the caller watches `is_over_budget`.
        """
        self._writer.submit(call)

    @property
    def write_problem(self) -> str:
        """Why batches are not stored now (`write_problem.py`); empty: as far as known, they are."""
        return self._writer.problem.text

    def _open_hot_path(self) -> None:
        """The parts of the write path that protocol servers use without a call in between; the rules of `submit` hold."""
        writer = self._writer
        self.open_buffer: Callable[[], WriteBuffer | None] = writer.open_buffer
        """The open buffer, for batches that the caller adds and reports by `added` at once; None if this server is fenced or closed."""
        self.buffer_with_room: Callable[[], WriteBuffer | None] = writer.buffer_with_room
        """As `open_buffer`, but None also while connections should stop reading their sockets (`is_over_budget`)."""
        self.added: Callable[[Call], None] = writer.added
        """Answers the call, whose batches are in the open buffer, when their outcomes are known, or after the deadline."""
        self.close_buffer: Callable[[], None] = writer.close_buffer
        """Opens another buffer: the next batches do not fit into this one."""

    async def append(self, appends: Sequence[Append], seen: int) -> list[Appended]:
        """Append batches and wait for their outcomes; an ACCEPTED batch is durable and visible to readers. `seen`: as in `AppendCall`.

        Returns one result per batch, in order. Cancelling the call does not withdraw the batches.
        """
        if not appends:
            return []
        done: asyncio.Future[list[Appended]] = asyncio.get_running_loop().create_future()
        call = AppendCall(appends, lambda call: None if done.done() else done.set_result(call.results), seen)
        self._writer.submit(call)
        return await done

    @property
    def is_over_budget(self) -> bool:
        """Whether protocol servers should stop reading their sockets until `on_relief`."""
        return self._writer.is_over_budget

    def on_relief(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when the write path has room again; those who wait continue in order of arrival."""
        self._writer.relief.join(resume)

    def leave_relief(self, resume: Callable[[], None]) -> None:
        """Give up waiting: do not call `resume` any more. No effect if it was called."""
        self._writer.relief.leave(resume)

    async def room(self, who: Principal, wait_ms: int | None = None) -> Reservation:
        """Wait until the write path accepts more, for at most `wait_ms` ms (None: without a limit of its own).

        Meanwhile, the caller reads nothing from its client. Then the caller tells the reservation how much it has read (`hold`, which may
        wait as long again), and gives it back when the records are appended. Raises `Overloaded` if `wait_ms` is over.
        """
        return await self._writer.reservations.enter(client_of(who), wait_ms)

    async def room_for(self, who: Principal, read_bytes: int) -> Reservation:
        """As `room` and `hold`, for a message that has been read already. Raises `Overloaded` at once if too many of them wait."""
        return await self._writer.reservations.admit(client_of(who), None, read_bytes)

    # -- consume -------------------------------------------------------------------------------------------------

    async def fetch(
        self,
        ranges: Sequence[FetchRange],
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        is_committed: bool | None = None,
    ) -> list[Fetched]:
        """Read ranges; see `streams/fetch.py`. The caller must check `may(…, READ, …)` for every stream first.

        `is_committed`: committed records, or all; None: a partition ends at its last stable offset. Without a wait, which also means
        without a least size, the fetch sees what this server has acknowledged.
        """
        await self.own_writes.shown(wait_ms if bytes_min > 0 else 0)
        found = await self._reader.fetch(
            ranges, bytes_min=bytes_min, bytes_max=bytes_max, wait_ms=wait_ms, is_committed=is_committed is not False
        )
        if is_committed is None:
            for fetched in found:
                fetched.end = min(fetched.end, fetched.last_stable)
        return found

    async def offsets(self, questions: Sequence[OffsetQuestion], *, is_committed: bool = False) -> list[OffsetAnswer]:
        """Answer offset questions; see `streams/offsets.py`."""
        return await self._offsets.answer(questions, is_committed=is_committed)

    async def bounds(self, partitions: Collection[PartitionKey]) -> dict[PartitionKey, PartitionBounds]:
        """Read start, end and last stable offsets from the store; partitions that do not exist are left out. Raises `Unavailable`."""
        return await self.metadata.log.bounds(partitions)

    # -- internals -----------------------------------------------------------------------------------------------

    def _on_committed(self, ref: ObjectRef, buffer: bytearray | None, result: ObjectCommitted) -> bool:
        self._cache.add(ref, buffer, result.slices)  # before the index has them: a woken reader finds both
        if not (is_applied := self._follower.committed(ref, result)):
            self.own_writes.committed(result.position)
        return is_applied

    def _knows(self, partition: PartitionKey) -> bool:
        return self.catalog.peek_number(stream_number(partition)) is not None

    def _is_terminated(self, partition: PartitionKey) -> bool:
        return bool((view := self.catalog.peek_number(stream_number(partition))) and view.stream.is_terminated)

    @override
    def _deleted(self, view: StreamView) -> None:
        for partition in view.partitions():
            self._tail.forget(partition)

    def _on_gap(self, partition: PartitionKey) -> None:
        metrics.INDEX_GAPS.inc()
        log.error("the followed log has a gap; reloading the partition", extra={"partition": partition})


def _history(
    metadata: Metadata, store: ObjectStore, tail: TailIndex, index: SegmentIndex, settings: StreamsSettings
) -> History:
    count, files = settings.reader.slices_per_lookup, DataFileReader(store, settings.history.files)
    return History(metadata.log, tail, index, files, settings.history, slices_per_lookup=count)


def _catalog(metadata: Metadata, store: ObjectStore, settings: StreamsSettings) -> Catalog:
    limits = settings.stream_count_max, settings.partition_count_max, settings.stream_partition_count_max
    return Catalog(metadata.streams, *limits, head=metadata.log.head, note_promotion=promotions.note_in(store))
