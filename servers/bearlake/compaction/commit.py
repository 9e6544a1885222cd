"""The commit protocol of a task: prepare → table commit → swap; each step may be repeated (DESIGN.md, section 5).

`Committer.recover` looks for commits of earlier epochs; `commit` runs the three steps for tasks of one stream together, with one table
commit for all of them. The table's applied tasks show which epoch's commit the table has. That epoch's objects are swapped in, even if
it is an earlier epoch of the task. The data files of all other epochs can never be used: exactly those keys are deleted.

The table records a task even if the task adds no file, because the record tells the next epoch whose files the table has.

A late commit of a fenced epoch cannot succeed (decision 79). Each attempt of a table commit loads the table, asks the metadata store
whether its claim is still the newest, and replaces exactly the version that it has loaded. Every commit that an earlier epoch can still
send therefore replaces a version older than the current claim. Such a commit fails once the current epoch has replaced the table's
version: by its own commit, or by a `fence` before a merge is dropped.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from bearlake.compaction import encoding
from bearlake.compaction.cleaned_files import is_only_in_log
from bearlake.compaction.covering import check_task_cover, with_rowless
from bearlake.compaction.ensuring import ensure_table
from bearlake.compaction.key_compaction import CleaningPlan
from bearlake.compaction.mending import written_anew
from bearlake.compaction.model import TaskResult
from bearlake.compaction.retries import Retries
from bearlake.compaction.settings import WorkerSettings
from bearlake.errors import BearlakeError, Conflict, Fenced, NotFound
from bearlake.metadata import Metadata, task_object_rules
from bearlake.metadata.compaction import Swap, SwapObject, Task, TaskClaim, TaskKind
from bearlake.metadata.model import LocatedSlice, ObjectRef, Stream, partition_index
from bearlake.objects import ObjectStore
from bearlake.owned_tasks import without_stray_end
from bearlake.streams import configs as stream_configs
from bearlake.table import Tables
from bearlake.table import naming as table_naming
from bearlake.table.column_book import ColumnBook
from bearlake.table.model import AppliedTask, TableChange, TableCommit, TableState
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

T = TypeVar("T")

TABLE_COUNT_MAX = 1_000
"""Number of tables whose last state is cached."""
APPLIED_TASKS_MAX = 32
"""Number of applied tasks in a table above which closed tasks are forgotten."""


@dataclass(slots=True, kw_only=True)
class Work:
    """A claimed task in progress. `winner`: the epoch whose files are in the table; -1 while unknown."""

    task: Task
    stream: Stream
    claim: TaskClaim
    started_s: float
    slices: Sequence[LocatedSlice] = ()
    inputs: Sequence[ObjectRef] = ()
    cleaning: CleaningPlan | None = None
    """What a MERGE task cleans; None: it keeps all records."""
    result: TaskResult = field(default_factory=lambda: TaskResult(items=()))
    columns: ColumnBook | None = None
    """The typed columns of its data files; None: they have none."""
    winner: int = -1
    is_prepared: bool = False
    """Whether the store may have `result`, so that this epoch may have sent a table commit."""
    kept_objects: Sequence[SwapObject] | None = None
    """Current kept objects of an earlier epoch that won; None: those of the winner's result."""

    def winning(self) -> TaskResult:
        """Return the winning epoch's result."""
        if self.winner == self.claim.epoch:
            return self.result
        return encoding.decode_result(self.task.results[self.winner])

    def objects(self) -> list[SwapObject]:
        """Return the winning epoch's objects for the index."""
        items = self.winning().items
        kept_objects = (
            [swap for item in items for swap in item.kept_objects] if self.kept_objects is None else self.kept_objects
        )
        return [*(file.swap for item in items for file in item.files), *kept_objects]


class Committer:
    """Commits the tasks of one worker, for several streams at once; see the module docstring."""

    def __init__(
        self,
        metadata: Metadata,
        store: ObjectStore,
        tables: Tables,
        settings: WorkerSettings,
        retries: Retries,
        next_key: Callable[[], str],
    ) -> None:
        """`next_key` generates keys for kept objects."""
        self._next_key = next_key
        self._metadata = metadata
        self._store = store
        self._tables = tables
        self._settings = settings
        self._retries = retries
        self._states: OrderedDict[int, TableState] = OrderedDict()
        self._calls = asyncio.Semaphore(settings.store_calls_max)

    # -- before the run ------------------------------------------------------------------------------------------

    async def location(self, stream: Stream) -> str:
        """Return the key prefix of the stream's data files, without a trailing slash; create its table if it has none.

        Raises:
            StreamDeleted: the stream was deleted and has no table.
            Conflict: its table belongs to another owner.
            Unavailable: the catalog did not answer.
        """
        rules = stream_configs.table_rules(stream.name, stream.configs)
        if not rules.is_enabled:
            return table_naming.location_key(stream)
        state = self._states.get(stream.number)
        if state is None:
            state = await ensure_table(stream, self._metadata.streams, self._tables)
            if state is None:
                return table_naming.location_key(stream)
            self._remember(stream, state)
        return state.location_key

    async def recover(self, work: Work) -> None:
        """Set `work.winner` if the table has an earlier epoch's commit. The epoch's objects then exist and belong to the task (I10).

        Raises:
            Conflict: the task is committed but the table does not show by which epoch, or a data file was forbidden.
            NotFound: a data file was lost.
            Unavailable: a store did not answer.
        """
        if work.task.results:
            await self._find_winner(work, await self._tables.state(work.stream))

    async def fence(self, work: Work) -> None:
        """Ensure that no epoch of a task can still commit to the table, before the task is dropped. Sets `work.winner` if one has.

        Raises as `recover` does.
        """
        if work.winner < 0 and task_object_rules.may_list(work.task.results, is_prepared=work.is_prepared):
            state = await self._ask(lambda: self._tables.fence(work.stream))
            await self._find_winner(work, state)

    async def _find_winner(self, work: Work, state: TableState | None) -> None:
        if state is None:
            return
        task = work.task
        winner = state.applied.get(task.id)
        if winner is not None and (winner in task.results or (work.is_prepared and winner == work.claim.epoch)):
            work.winner = winner
            await self._take_over(work)
        elif winner is not None or _is_reached(task, state):
            raise Conflict(f"the table contains task {task.id} of epoch {winner}, which prepared no result")

    async def _take_over(self, work: Work) -> None:
        """Ensure that the winner's objects exist and belong to the task. Rewrites lost kept objects."""
        items = work.winning().items
        files = [file.swap.object.key for item in items for file in item.files]
        await self._ask(lambda: self._metadata.tasks.prepare(work.claim, None, files))
        for key in files:
            await self._ask(partial(self._store.size, key))
        work.kept_objects = []
        for swap in [swap for item in items for swap in item.kept_objects]:
            found = swap if await self._is_there(work, swap.object.key) else await self._written_anew(work, swap)
            work.kept_objects = [*work.kept_objects, *([] if found is None else [found])]

    async def _is_there(self, work: Work, key: str) -> bool:
        try:
            await self._ask(lambda: self._metadata.tasks.prepare(work.claim, None, [key]))
            await self._ask(lambda: self._store.size(key))
        except (Conflict, NotFound):
            return False
        return True

    async def _written_anew(self, work: Work, lost: SwapObject) -> SwapObject | None:
        found = await written_anew(lost, work.stream, self._metadata.log, self._store, self._next_key)
        if found is not None:
            key = found.object.key
            await self._ask(lambda: self._metadata.tasks.prepare(work.claim, None, [key]))
        metrics.COMPACTION_MENDED.inc()
        details = {"task": work.task.id, "stream": work.stream.name, "key": lost.object.key}
        log.warning("a kept object of a task is missing; rewriting it from the WAL", extra=details)
        return found

    # -- after the run -------------------------------------------------------------------------------------------

    async def commit(self, stream: Stream, works: Sequence[Work]) -> dict[int, Exception]:
        """Run all steps for tasks of one stream; return errors by task id. Tasks without an error are done."""
        errors: dict[int, Exception] = {}
        fresh = [work for work in works if work.winner < 0]
        await self._each(fresh, self._prepare, errors)
        fresh = [work for work in fresh if work.task.id not in errors]
        if fresh:
            await self._list(stream, fresh, errors)
        await self._each([work for work in works if work.task.id not in errors], self._swap, errors)
        return errors

    async def _each(
        self, works: Iterable[Work], step: Callable[[Work], Awaitable[None]], errors: dict[int, Exception]
    ) -> None:
        async def run_step(work: Work) -> None:
            try:
                async with self._calls:
                    await without_stray_end(step(work))
            except Exception as error:  # noqa: BLE001 - boundary: one task
                errors[work.task.id] = error

        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(run_step(work))

    async def _prepare(self, work: Work) -> None:
        if work.cleaning is not None:
            work.result = with_rowless(work.task.id, work.result)
        check_task_cover(work.task.id, work.slices, work.result)
        result = encoding.encode_result(work.result)
        keys = sorted(keys_of([work.result]))
        work.is_prepared = True
        await self._ask(lambda: self._metadata.tasks.prepare(work.claim, result, keys))  # I10: now the task owns them

    async def _list(self, stream: Stream, works: Sequence[Work], errors: dict[int, Exception]) -> None:
        """Commit the files to the table, together if possible."""
        try:
            if not await self._has_table(stream, works):
                for work in works:
                    work.winner = work.claim.epoch
                return
            try:
                await self._apply(stream, works)
            except (Conflict, Fenced, NotFound) as error:
                metrics.COMPACTION_CONFLICTS.inc()
                log.info(
                    "a table commit conflicts with another change", extra={"stream": stream.name, "error": repr(error)}
                )
                self._states.pop(stream.number, None)
                for work in works:
                    await self._list_alone(stream, work, errors)
        except Exception as error:  # noqa: BLE001 - boundary: one stream
            for work in works:
                errors.setdefault(work.task.id, error)

    async def _list_alone(self, stream: Stream, work: Work, errors: dict[int, Exception]) -> None:
        """Commit one task alone, so that it fails alone. Creates a dropped table again if its stream should still have a table."""
        try:
            await self._ask(lambda: self._metadata.tasks.check([work.claim]))  # a fenced worker creates no tables
            state = await self._ask(lambda: ensure_table(stream, self._metadata.streams, self._tables))
            if state is None:
                work.winner = work.claim.epoch
            else:
                await self._apply(stream, [work])
        except (Conflict, Fenced, NotFound) as error:
            errors[work.task.id] = error

    async def _apply(self, stream: Stream, works: Sequence[Work]) -> None:
        books = [work.columns for work in works if work.columns is not None]
        columns = max(books, key=lambda book: book.version, default=None)
        commit = TableCommit(changes=[_change(work) for work in works], columns=columns)
        closed = await self._closed(stream)
        started_s = asyncio.get_running_loop().time()
        claims = [work.claim for work in works]
        state = await self._ask(lambda: self._commit_once(stream, commit, claims, closed))
        metrics.COMPACTION_SECONDS.labels("commit").observe(asyncio.get_running_loop().time() - started_s)
        self._remember(stream, state)
        for work in works:
            winner = state.applied.get(work.task.id)
            known = {*work.task.results, work.claim.epoch}
            if winner not in known:
                raise Conflict(f"the table contains task {work.task.id} of epoch {winner}, which prepared no result")
            work.winner = winner

    async def _commit_once(
        self, stream: Stream, commit: TableCommit, claims: Sequence[TaskClaim], closed: Collection[int]
    ) -> TableState:
        """Make one table commit. Once the call has ended, in any way, its thread cannot start another attempt (I12)."""
        is_over = False

        async def check() -> None:
            await self._metadata.tasks.check(claims)
            if is_over:
                raise Fenced("this table commit was abandoned")

        try:
            return await self._tables.commit(stream, commit, closed_tasks=closed, check=check)
        finally:
            is_over = True

    async def _has_table(self, stream: Stream, works: Iterable[Work]) -> bool:
        if stream_configs.table_rules(stream.name, stream.configs).is_enabled:
            return True
        if not any(work.task.results for work in works):
            return False
        # An earlier epoch may still write to the table: only a record of the task excludes it.
        return await self._ask(lambda: self._tables.state(stream)) is not None

    async def _closed(self, stream: Stream) -> set[int]:
        """Return tasks that the table can forget. An applied task of a known state that is no longer queued is closed permanently."""
        state = self._states.get(stream.number)
        if state is None or len(state.applied) <= APPLIED_TASKS_MAX:
            return set()
        open_tasks = await self._open_tasks(stream)
        return set(state.applied) - open_tasks

    async def _open_tasks(self, stream: Stream) -> set[int]:
        found: set[int] = set()
        after = 0
        while True:
            page = await self._ask(partial(self._metadata.tasks.list, stream_number=stream.number, after=after))
            if not page:
                return found
            found.update(task.id for task in page)
            after = page[-1].id

    async def _swap(self, work: Work) -> None:
        swap = Swap(claim=work.claim, objects=work.objects())
        started_s = asyncio.get_running_loop().time()
        await self._ask(lambda: self._metadata.log.swap(swap))
        metrics.COMPACTION_SECONDS.labels("swap").observe(asyncio.get_running_loop().time() - started_s)
        await self.delete_files(work, keep=work.winner)

    async def delete_files(self, work: Work, *, keep: int | None = None) -> None:
        """Delete the files of all epochs of a closed task except `keep`; they can never be in the table (I10)."""
        results = {work.claim.epoch: work.result}
        for epoch, text in work.task.results.items():
            results[epoch] = encoding.decode_result(text)
        winning = keys_of([results[keep]]) if keep is not None and keep in results else set()
        keys = keys_of([result for epoch, result in results.items() if epoch != keep]) - winning
        if not keys:
            return
        metrics.SWEEP_OBJECTS.labels("lost").inc(len(keys))
        try:
            await self._store.delete(sorted(keys))
        except BearlakeError as error:  # the orphan sweep will find them
            log.info(
                "cannot delete files of attempts that lost; the orphan sweep will",
                extra={"count": len(keys), "error": repr(error)},
            )

    def state(self, number: int) -> TableState | None:
        """Return the last known state of a stream's table."""
        return self._states.get(number)

    def _remember(self, stream: Stream, state: TableState) -> None:
        self._states[stream.number] = state
        self._states.move_to_end(stream.number)
        while len(self._states) > TABLE_COUNT_MAX:
            self._states.popitem(last=False)

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        until_s = asyncio.get_running_loop().time() + self._settings.deadline_ms / 1000
        return await self._retries.call(call, until_s=until_s)


def keys_of(results: Iterable[TaskResult]) -> set[str]:
    """Return the keys of all objects in the results."""
    return {
        swap.object.key
        for result in results
        for item in result.items
        for swap in [*(file.swap for file in item.files), *item.kept_objects]
    }


def _is_reached(task: Task, state: TableState) -> bool:
    return task.kind is TaskKind.COMPACT and all(
        state.ends.get(partition_index(partition), 0) >= end for partition, _, end in task.ranges
    )


def _change(work: Work) -> TableChange:
    """Build the task's part of a table commit."""
    ranges = {partition_index(partition): (start, end) for partition, start, end in work.task.ranges}
    task = AppliedTask(task_id=work.task.id, epoch=work.claim.epoch, ranges=ranges)
    add = [written.file for item in work.result.items for written in item.files]
    if work.cleaning is None:
        return TableChange(
            task=task, add=add, remove=list(work.task.inputs) if work.task.kind is TaskKind.MERGE else ()
        )
    if all(is_only_in_log(file.key) for file in add):  # the table keeps its history
        return TableChange(task=task, add=())
    unchanged = {key for item in work.result.items for key in item.unchanged}
    remove = sorted(set(work.task.inputs) - unchanged)
    return TableChange(task=task, add=add, remove=remove, drops_rows=True)
