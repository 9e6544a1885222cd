"""Brings current tables up to date: for each stream with `table.current=on`, a table with the newest record of each key.

    look, every `pause_ms`: streams whose compacted offsets are beyond the current table's → lease of the stream → view of both tables →
    work items, run as compaction's → one commit, on the condition that the current table has not changed

The lease only spreads the streams over the workers. Correctness needs neither leases nor claims (decision 266): a round is a function of
the two snapshots that it reads, and its commit replaces exactly one of them. A worker that dies leaves files that no snapshot names, which
the orphan sweep deletes after a fence. A failure of one stream does not block others (I11); the stream is tried again, later each time.
A current table whose settings have changed, or that was made of another table, is dropped and made anew.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bearlake.clock import Clock
from bearlake.compaction.all_streams import all_streams
from bearlake.compaction.current_rounds import Round, bytes_of_round, half_of, items_of, plan_round, state_after
from bearlake.compaction.ensuring import StreamDeleted, ensure_current
from bearlake.compaction.model import ItemResult, WorkItem
from bearlake.compaction.runner import Runner
from bearlake.compaction.settings import CompactionSettings
from bearlake.errors import BearlakeError, Conflict, Fenced, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.model import Lease, ServerRef, Stream
from bearlake.owned_tasks import Tasks
from bearlake.streams.current_rules import CurrentRules, Envelope, current_rules, current_stream
from bearlake.table import Tables, Unmergeable
from bearlake.table.column_book import decode_book
from bearlake.table.column_tree import ids_of
from bearlake.table.current_columns import CurrentColumns, current_columns
from bearlake.table.current_model import CurrentChange, CurrentStore, CurrentView
from bearlake.telemetry import metrics
from bearlake.telemetry.fault_isolation import FaultIsolation
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)

LEASE_PREFIX = "compaction/current/"
_QUIET_PAUSE_COUNT = 5
"""Pauses until the next look at a stream that has no table yet, or whose table has not what was compacted without it."""
LIST_MS = 5_000
"""Time (ms) for which the list of streams with a current table is used."""


@dataclass(slots=True)
class _Known:
    """What this worker knows of a stream's current table: up to where it is, and when its next round may begin (s, event loop's clock)."""

    ends: Mapping[int, int] | None = None
    due_s: float = 0.0
    round_bytes: int | None = None
    """Bytes of data files that the next round takes, if its predecessor needed too much memory."""
    has_been_late: bool = False
    """Whether a round has missed its deadline; rounds then take no more than the settings say."""
    failure_count: int = 0
    caught_up_ms: int = 0
    """When the table was last seen to have all that the stream's table had (ms)."""


class CurrentTables:
    """The current tables, as one worker sees them; see the module docstring. The service's task group owns `run`."""

    def __init__(
        self,
        metadata: Metadata,
        tables: Tables,
        store: CurrentStore,
        runner: Runner,
        server: ServerRef,
        settings: CompactionSettings,
        *,
        clock: Clock,
        random_source: random.Random,
    ) -> None:
        """`clock` is compared with the times of commits only to space rounds out."""
        self._metadata = metadata
        self._tables = tables
        self._store = store
        self._runner = runner
        self._server = server
        self._settings = settings
        self._clock = clock
        self._random = random_source
        self._streams: list[Stream] = []
        self._list_at_s = 0.0
        self._known: dict[int, _Known] = {}
        self._running: set[int] = set()
        self._places = asyncio.Semaphore(settings.current.concurrent_count)
        self._isolation = FaultIsolation(log, "current-tables", metadata.log.head)
        self._outage = Outage(
            log, "current tables cannot be looked at; retrying", "current tables can be looked at again"
        )
        self._is_draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Make rounds. Ends only by cancellation."""
        async with Tasks() as tasks:
            while True:
                if not self._is_draining:
                    try:
                        await self._look(lambda stream: tasks.start("step a current table", self._step(stream)))
                        self._outage.over()
                    except BearlakeError as error:
                        self._outage.failed(error)
                    except Exception as error:  # noqa: BLE001 - boundary: one look
                        self._outage.fault("look at current tables", error)
                await asyncio.sleep(self._settings.current.pause_ms / 1000)

    async def drain(self) -> None:
        """Begin no more rounds; return once all have ended."""
        self._is_draining = True
        await self._idle.wait()

    # -- which tables are behind ---------------------------------------------------------------------------------

    async def _look(self, begin: Callable[[Stream], object]) -> None:
        """Begin a step for each stream whose current table is behind and due."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._list_at_s:
            await self._list()
            self._list_at_s = now_s + LIST_MS / 1000
        for stream in self._streams:
            known = self._known.setdefault(stream.number, _Known())
            if stream.number not in self._running and known.due_s <= now_s and await self._is_behind(stream, known):
                self._running.add(stream.number)
                self._idle.clear()
                begin(stream)

    async def _list(self) -> None:
        """List the streams with a current table."""
        self._streams = [
            stream
            async for stream in all_streams(self._metadata.streams, self._settings.sweep.page_count)
            if not stream.is_deleted
            and current_rules(stream.configs) is not None
            and self._settings.choice.takes(stream.name)
        ]
        for number in self._known.keys() - {stream.number for stream in self._streams} - self._running:
            del self._known[number]
        self._isolation.forget(*(set(self._isolation.failing) - {stream.name for stream in self._streams}))

    async def _is_behind(self, stream: Stream, known: _Known) -> bool:
        keys = [stream.partition(index) for index in range(stream.partition_count)]
        compacted = await self._metadata.tasks.compacted(keys)
        ends = known.ends
        return ends is None or any(ends.get(index, 0) < compacted[key] for index, key in enumerate(keys))

    # -- one round -----------------------------------------------------------------------------------------------

    async def _step(self, stream: Stream) -> None:
        """Make a round of a stream's current table, if no other worker does."""
        known = self._known.setdefault(stream.number, _Known())
        try:
            async with self._places:
                is_good = False
                with suppress(Exception):  # of the probe of the metadata store: the next look says so
                    async with self._isolation.of(stream.name):
                        await self._leased_round(stream, known)
                        is_good = True
                self._note(known, is_good=is_good)
        finally:
            self._running.discard(stream.number)
            if not self._running:
                self._idle.set()

    def _note(self, known: _Known, *, is_good: bool) -> None:
        if is_good:
            known.failure_count = 0
            return
        settings = self._settings.current
        wait_ms = min(settings.retry_max_ms, settings.pause_ms * 2 ** min(known.failure_count, 20))
        known.due_s = asyncio.get_running_loop().time() + self._random.uniform(0.5, 1) * wait_ms / 1000
        known.failure_count += 1

    async def _leased_round(self, stream: Stream, known: _Known) -> None:
        lease = await self._lease(stream)
        if lease is None:
            self._wait(known, self._settings.current.pause_ms)
            return
        try:
            await self._round(stream, known)
        except Exception:
            await self._release(lease)
            raise
        await self._release(lease)  # not if cancelled: the lease ends with this registration

    async def _release(self, lease: Lease) -> None:
        with suppress(BearlakeError):
            await self._metadata.leases.release(lease)

    async def _lease(self, stream: Stream) -> Lease | None:
        try:
            return await self._metadata.leases.acquire(f"{LEASE_PREFIX}{stream.number}", self._server)
        except (Conflict, Fenced):
            return None

    async def _round(self, stream: Stream, known: _Known) -> None:
        found = await self._metadata.streams.by_numbers([stream.number])
        rules = current_rules(found[0].configs) if found and not found[0].is_deleted else None
        if rules is None:
            return
        stream = found[0]
        derived = current_stream(stream)
        now_ms = self._clock.now_ms()  # before the view: what it lacks is newer than that
        view = await self._view(stream, derived)
        if view is None:
            self._wait(known, self._settings.current.pause_ms * _QUIET_PAUSE_COUNT)
            return
        columns = await self._columns(stream, rules)  # after the view: the book has the columns of all of its files
        if (reason := self._why_anew(view, rules, columns, known)) is not None:
            log.info("making a current table anew", extra={"stream": stream.name, "reason": reason})
            await self._tables.drop(derived)
            return
        known.ends = view.starts
        if not view.is_behind:
            known.caught_up_ms = now_ms
            self._wait(known, self._settings.current.pause_ms * _QUIET_PAUSE_COUNT)
            return
        age_ms = 0 if view.state is None else now_ms - view.state.at_ms
        if view.state is not None and view.state.is_whole and 0 <= age_ms < rules.freshness_ms:
            self._wait(known, rules.freshness_ms - age_ms)
            return
        bytes_min = self._settings.current.round_bytes_max
        bytes_max = bytes_min if known.has_been_late else bytes_of_round(view, bytes_min)
        bytes_ = min(known.round_bytes or bytes_max, bytes_max)
        round_ = plan_round(view, bytes_)
        if not await self._make(stream, derived, view, round_, rules, columns, known, now_ms):
            known.round_bytes = half_of(view, bytes_)
            return
        if known.round_bytes is not None:
            known.round_bytes = None if 2 * known.round_bytes >= bytes_max else 2 * known.round_bytes
        known.ends = round_.ends
        if round_.is_whole:
            known.caught_up_ms = now_ms
            self._wait(known, rules.freshness_ms)

    async def _view(self, stream: Stream, derived: Stream) -> CurrentView | None:
        """Return the tables; create the current one if there is none. None: the stream has no table, or should have none."""
        view = await self._store.view(stream, derived)
        if view is not None:
            return view
        try:
            if await self._tables.state(stream) is None:
                return None
            await ensure_current(stream, self._metadata.streams, self._tables)
        except StreamDeleted:
            return None
        return await self._store.view(stream, derived)

    def _why_anew(self, view: CurrentView, rules: CurrentRules, columns: CurrentColumns, known: _Known) -> str | None:
        """Return why the table cannot go on from its state; None: it can."""
        state = view.state
        if view.bucket_count != rules.bucket_count or (state is not None and state.buckets != rules.bucket_count):
            return "table.current.buckets has changed"
        if not all(file.is_ours and file.bucket < view.bucket_count for file in view.files):
            return "another engine has written it"
        if not view.column_ids <= set(ids_of(columns.columns)):
            return "some of its columns have given way to columns of the row"
        if state is None:
            return None
        if state.envelope != rules.envelope.value:
            return "table.current.envelope has changed"
        if state.source != view.source or view.is_ahead:
            return "the stream's table is another one"
        idle_ms = self._clock.now_ms() - max(state.at_ms, known.caught_up_ms)
        if rules.loses_tombstones and view.is_behind and idle_ms > rules.remember_ms:
            return "key compaction may have removed tombstones"
        return None

    async def _make(
        self,
        stream: Stream,
        derived: Stream,
        view: CurrentView,
        round_: Round,
        rules: CurrentRules,
        columns: CurrentColumns,
        known: _Known,
        now_ms: int,
    ) -> bool:
        """Run the round's work items and commit their files; False: its records take too much memory. `now_ms`: a time before the view."""
        round_id = (
            uuid.uuid4().hex
        )  # unique whatever the random source: a commit recognizes its own earlier attempt by it
        items = items_of(stream, view, round_, rules, columns, self._settings, round_id)
        began_s = asyncio.get_running_loop().time()
        results = await self._run(items, known)
        if any(result.exceeds_memory for result in results):
            return False
        unchanged = {key for result in results for key in result.unchanged}
        newest_us = max(result.newest_us for result in results)
        state = state_after(view, round_, rules, round_id=round_id, newest_us=newest_us, now_ms=now_ms)
        change = CurrentChange(
            table=view.table,
            snapshot_id=view.snapshot_id,
            added=[
                (written.file, bucket)
                for result in results
                for written, bucket in zip(result.files, result.buckets, strict=True)
            ],
            removed=[file.key for file in view.files if file.key not in unchanged],
            ends=round_.ends,
            state=state,
            columns=columns.columns,
        )
        await self._commit(derived, change)
        metrics.CURRENT_SECONDS.observe(asyncio.get_running_loop().time() - began_s)
        metrics.CURRENT_BYTES.labels("read").inc(sum(result.read_bytes for result in results))
        metrics.CURRENT_BYTES.labels("written").inc(sum(result.written_bytes for result in results))
        return True

    async def _run(self, items: Sequence[WorkItem], known: _Known) -> Sequence[ItemResult]:
        deadline_ms = self._settings.worker.deadline_ms
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                return await self._runner.run(items)
        except TimeoutError:
            known.has_been_late = True
            raise Unavailable(f"no result of a current table's work items within {deadline_ms} ms") from None

    async def _commit(self, derived: Stream, change: CurrentChange) -> None:
        try:
            await self._store.commit(derived, change)
        except Unmergeable:
            log.warning("another engine has changed a current table; making it anew", extra={"table": derived.name})
            await self._tables.drop(derived)

    async def _columns(self, stream: Stream, rules: CurrentRules) -> CurrentColumns:
        stored = await self._metadata.table_columns.get(stream.number)
        book = decode_book(stored.text, stored.version) if stored.version else None
        return current_columns(book, is_unwrapped=rules.envelope is Envelope.DEBEZIUM)

    def _wait(self, known: _Known, wait_ms: int) -> None:
        known.due_s = asyncio.get_running_loop().time() + wait_ms / 1000
