"""The worker: claims tasks, passes them to a runner, and commits the results. Any number of workers; each may die at any moment.

    claim → recover earlier epochs (commit.py) → read the index, split into items → run ─┬─► commit, at most a few rounds at a time
      └──────────────────────────── next round, while earlier rounds commit ◄────────────┘

Failures. The tasks of a failed round are given back, and as many tasks are then claimed one at a time, so that the faulty task fails
alone (I11). If a store does not answer, no attempt is counted: the task waits, longer each time, and lets others pass. Any other failure
counts as an attempt: the task waits, longer each time, and is quarantined after `attempts_max` attempts. The store counts an attempt only
if the claim is still current, so a fenced worker changes nothing, and no error can make a task fail repeatedly without being counted.
"""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from bearlake.clock import Clock
from bearlake.compaction.claims import Claims
from bearlake.compaction.cleaning_items import CleaningItems
from bearlake.compaction.commit import Committer, Work
from bearlake.compaction.covering import NothingLeft
from bearlake.compaction.ensuring import StreamDeleted
from bearlake.compaction.items import deal_out
from bearlake.compaction.merge_inputs import Outdated
from bearlake.compaction.model import WorkItem
from bearlake.compaction.quarantine import KEPT_PREFIX, move_to_quarantine
from bearlake.compaction.report import Outcome, Reporter
from bearlake.compaction.retries import Retries
from bearlake.compaction.runner import Runner
from bearlake.compaction.settings import CompactionSettings
from bearlake.compaction.slot import Slots
from bearlake.compaction.value_schemas import ValueSchemas
from bearlake.compaction.work_items import WorkItems
from bearlake.errors import BearlakeError, Denied, Fenced, Invalid, NotFound, Overloaded, Unavailable
from bearlake.metadata import Metadata
from bearlake.metadata.compaction import TaskClaim
from bearlake.metadata.model import ServerRef, Stream
from bearlake.objects import ObjectStore
from bearlake.owned_tasks import Tasks, without_stray_end
from bearlake.streams.schemas.compiled import SchemaCompiler
from bearlake.table import Tables, Unmergeable
from bearlake.telemetry import metrics
from bearlake.telemetry.containment import contained, fault
from bearlake.telemetry.outage import Outage
from bearlake.wal.keys import KeySource

log = logging.getLogger(__name__)

ERROR_LENGTH_MAX = 1_000
WAITS_REMEMBERED_MAX = 10_000
"""Number of tasks whose waits for a store are counted."""


class Worker:
    """One worker's task loop; see the module docstring. The service's task group owns `run`; `drain` ends it in good order."""

    def __init__(
        self,
        metadata: Metadata,
        store: ObjectStore,
        tables: Tables,
        runner: Runner,
        server: ServerRef,
        settings: CompactionSettings,
        *,
        clock: Clock,
        random_source: random.Random,
        on_fenced: Callable[[], None] = lambda: None,
        compiler: SchemaCompiler | None = None,
    ) -> None:
        """`on_fenced` is called when a newer registration has replaced `server`. The caller closes the `compiler` of Protobuf schemas."""
        self._metadata = metadata
        self._store = store
        self._runner = runner
        self._server = server
        self._settings = settings.worker
        self._choice = settings.choice
        self._quarantine_retry_ms = settings.sweep.quarantine_retry_ms
        self._on_fenced = on_fenced
        self._retries = Retries(
            random_source,
            pause_ms=settings.worker.unavailable_pause_ms,
            pause_max_ms=settings.worker.retry_max_ms,
        )
        self._keys = KeySource(clock, random_source.getrandbits, KEPT_PREFIX)
        self._committer = Committer(metadata, store, tables, settings.worker, self._retries, self._keys.next)
        self._values = ValueSchemas(metadata, tables, settings.columns, compiler)
        cleanings = CleaningItems(metadata, tables, settings, clock)
        self._items = WorkItems(metadata, self._committer, cleanings, self._values, settings)
        self._claims = Claims(metadata.tasks, server)
        self._hint = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_draining = False
        self._alone_count = 0
        self._slots = Slots(settings.worker)
        self._wait_counts: OrderedDict[int, int] = OrderedDict()
        self._trouble = Outage(log, "a step of compaction failed; retrying", "compaction works again")
        self.reports = Reporter(self._committer)

    def hint(self) -> None:
        """Look for tasks now: there may be new ones."""
        self._hint.set()

    @property
    def held_count(self) -> int:
        """Number of tasks that this worker holds."""
        return self._claims.held_count

    async def run(self) -> None:
        """Process tasks. Ends only by cancellation."""
        async with Tasks() as tasks:
            while True:
                await self._release_due_claims()
                works = [] if self._is_draining else await self._claim()
                if works:
                    self._idle.clear()
                    works = await self._run_round(works)
                if not works:
                    self._set_idle_if_done()
                    await self._pause()
                    continue
                await self._slots.acquire()
                tasks.start("commit a round of tasks", self._commit_round(works))

    async def drain(self) -> None:
        """Claim no more tasks; return once all claimed tasks are done or given back."""
        self._is_draining = True
        self._hint.set()
        await self._idle.wait()

    async def close(self) -> None:
        """Give back the held tasks, after `run` was cancelled. If the store does not answer, the end of the registration frees them."""
        claims = self._claims.drop()
        if claims:
            try:
                await self._metadata.tasks.release(claims)
            except BearlakeError as error:
                log.info("cannot release tasks", extra={"count": len(claims), "error": repr(error)})

    def _set_idle_if_done(self) -> None:
        if self._claims.is_empty:
            self._idle.set()

    async def _pause(self) -> None:
        """Wait until there may be work."""
        pause_s = self._settings.claim_pause_ms / 1000
        if self._trouble.failure_count:
            await asyncio.sleep(self._retries.pause_s(self._trouble.failure_count))
            return
        self._hint.clear()
        try:
            async with asyncio.timeout(pause_s):
                await self._hint.wait()
        except TimeoutError:
            pass

    # -- claiming ------------------------------------------------------------------------------------------------

    async def _claim(self) -> list[Work]:
        """Claim tasks and look up their streams; empty if there are none or a store does not answer."""
        limit = self._settings.claim_count_max if self._alone_count <= 0 else 1
        self._alone_count -= 1
        try:
            tasks = await self._metadata.tasks.claim(
                self._server, limit=limit, bytes_max=self._settings.claim_bytes_max, choice=self._choice
            )
        except Fenced:
            log.warning("a newer process registered this worker's name; stopping", extra={"server": self._server})
            self._claims.drop()
            self._idle.set()
            self._on_fenced()
            await asyncio.Event().wait()
        except BearlakeError as error:
            self._claims.record_unanswered()
            self._trouble.failed(error, step="claim")
            return []
        started_s = asyncio.get_running_loop().time()
        claims = self._claims.take(tasks)
        if not tasks:
            self._trouble.over()
            return []
        try:
            found = await self._metadata.streams.by_numbers({task.stream_number for task in tasks})
        except BearlakeError as error:
            self._trouble.failed(error, step="read streams")
            self._release(claims.values())
            return []
        streams = {stream.number: stream for stream in found if not stream.is_deleted}
        works = []
        for task in tasks:
            stream = streams.get(task.stream_number)
            if stream is None:
                await self._end_claim(claims[task.id], self._metadata.tasks.cancel(claims[task.id]))
            else:
                works.append(Work(task=task, stream=stream, claim=claims[task.id], started_s=started_s))
        return works

    # -- running -------------------------------------------------------------------------------------------------

    async def _run_round(self, works: list[Work]) -> list[Work]:
        """Run the tasks that need it; return the tasks to commit."""
        ready = []
        items: list[list[WorkItem]] = []
        for work in works:
            try:
                await self._committer.recover(work)
                items.append([] if work.winner >= 0 else await self._items.of(work))
                ready.append(work)
            except Exception as error:  # noqa: BLE001 - boundary: one task
                await self._failed(work, error)
        if not ready:
            return []
        started_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._settings.deadline_ms / 1000):
                results = await self._values.run(ready, items, self._runner)
            deal_out(ready, items, results)
        except Exception as error:  # noqa: BLE001 - boundary: one round
            await self._round_failed(ready, error)
            return []
        metrics.COMPACTION_SECONDS.labels("run").observe(asyncio.get_running_loop().time() - started_s)
        return ready

    # -- committing ----------------------------------------------------------------------------------------------

    async def _commit_round(self, works: Sequence[Work]) -> None:
        """Commit stream by stream, so that each table has one commit for all of its tasks. Frees the round's slot."""
        streams: dict[int, list[Work]] = {}
        for work in works:
            streams.setdefault(work.stream.number, []).append(work)
        async with Tasks() as tasks:
            await self._slots.hold(
                [tasks.start("commit tasks", self._commit_stream(w[0].stream, w)) for w in streams.values()]
            )
        self._set_idle_if_done()

    async def _commit_stream(self, stream: Stream, works: Sequence[Work]) -> None:
        errors: Mapping[int, Exception]
        try:
            errors = await without_stray_end(self._committer.commit(stream, works))
        except Exception as bug:  # noqa: BLE001 - boundary: one stream
            errors = dict.fromkeys((work.task.id for work in works), bug)
        now_s = asyncio.get_running_loop().time()
        for work in works:
            error = errors.get(work.task.id)
            if error is None:
                self._claims.done(work.claim)
                self._wait_counts.pop(work.task.id, None)
                self._trouble.over()
                contained(log, "report a compaction task", partial(self.reports.done, work, now_s))
            else:
                await self._failed(work, error)

    # -- failures ------------------------------------------------------------------------------------------------

    async def _round_failed(self, works: Sequence[Work], error: Exception) -> None:
        if len(works) == 1:
            await self._failed(works[0], error)
            return
        self._alone_count = len(works)
        self._trouble.failed(error, step="run a round of tasks")
        self._release([work.claim for work in works])

    async def _failed(self, work: Work, error: Exception) -> None:
        """Handle one task's failure. A bug is a failure like others; a bug on the way gives the task back, for a later attempt."""
        if not isinstance(error, BearlakeError | TimeoutError):
            fault(log, "work on a compaction task", error)
        try:
            await self._end(work, error)
        except Exception as bug:  # noqa: BLE001 - boundary: one task
            fault(log, "end a compaction task", bug)
            self._postpone(work)

    async def _end(self, work: Work, error: Exception) -> None:
        if isinstance(error, StreamDeleted):  # the orphan sweep fences its table and deletes the written files
            await self._cancel(work)
        elif isinstance(error, Outdated | Unmergeable | NothingLeft):
            await self._drop_merge(work)
        elif isinstance(error, Unavailable | Overloaded):
            self._trouble.failed(error, step="run a task", stream=work.stream.name)
            self._postpone(work)
        else:
            await self._count_failure(work, error)

    async def _drop_merge(self, work: Work) -> None:
        """Drop an impossible merge and its files, unless an earlier epoch has completed it after all."""
        try:
            await self._committer.fence(work)
        except BearlakeError as error:
            await self._failed(work, error)
            return
        if work.winner >= 0:
            await self._commit_stream(work.stream, [work])
        elif await self._cancel(work):
            await self._committer.delete_files(work)

    def _postpone(self, work: Work) -> None:
        """Give back a task whose stores do not answer; it waits, longer each time, up to `retry_max_ms`."""
        count = self._wait_counts.pop(work.task.id, 0)
        self._wait_counts[work.task.id] = count + 1
        while len(self._wait_counts) > WAITS_REMEMBERED_MAX:
            self._wait_counts.popitem(last=False)
        self._release([work.claim], round(1000 * self._retries.pause_s(count, self._settings.retry_first_ms)))

    async def _count_failure(self, work: Work, error: Exception) -> None:
        """Count an attempt, or quarantine the task after the last attempt. No effect if the claim was fenced."""
        task, settings = work.task, self._settings
        details = {"task": task.id, "stream": work.stream.name, "attempt": task.attempt_count + 1, "error": repr(error)}
        is_last = task.attempt_count + 1 >= settings.attempts_max
        is_quarantined = is_last and await self._is_moved_to_quarantine(work, details)
        pause_s = self._retries.pause_s(task.attempt_count, settings.retry_first_ms)
        if is_quarantined:
            pause_s = self._quarantine_retry_ms / 1000
        text, wait_ms = repr(error)[:ERROR_LENGTH_MAX], round(pause_s * 1000)
        step = self._metadata.tasks.fail(work.claim, text, retry_after_ms=wait_ms, is_quarantined=is_quarantined)
        if not await self._end_claim(work.claim, step):
            self.reports.ended(task, Outcome.FENCED)
        elif is_quarantined:
            log.error("a compaction task was quarantined", extra=details)
            self.reports.ended(task, Outcome.QUARANTINED)
        else:
            log.warning("a compaction task failed; retrying", extra=details)
            self.reports.ended(task, Outcome.FAILED)

    async def _is_moved_to_quarantine(self, work: Work, details: dict[str, object]) -> bool:
        """Return whether the task no longer pins other streams' objects, as far as possible."""
        try:
            details["moved_bytes"] = await move_to_quarantine(
                work.task, work.claim, work.stream, self._metadata, self._store, self._keys.next, self._settings
            )
        except (NotFound, Invalid, Denied) as problem:
            details["damage"] = repr(problem)  # its objects are unreadable and stay where they are
        except BearlakeError as problem:  # the next attempt tries again
            log.warning("cannot quarantine a task; retrying", extra={**details, "problem": repr(problem)})
            return False
        except Exception as problem:  # noqa: BLE001 - boundary: one task, whose objects stay where they are
            fault(log, "move objects to quarantine", problem)
            details["damage"] = repr(problem)
        return True

    async def _cancel(self, work: Work) -> bool:
        """Drop a task that is no longer needed; return whether the drop is certain."""
        self.reports.ended(work.task, Outcome.CANCELLED)
        return await self._end_claim(work.claim, self._metadata.tasks.cancel(work.claim))

    def _release(self, claims: Collection[TaskClaim], wait_ms: int = 0) -> None:
        self._claims.release_later(claims, wait_ms)
        metrics.COMPACTION_TASKS.labels("any", Outcome.RELEASED).inc(len(claims))

    async def _end_claim(self, claim: TaskClaim, step: Coroutine[Any, Any, None]) -> bool:
        """Run the last step of a claim; return whether the store did it. Without an answer, give the task back. Held until then."""
        try:
            await step
        except (Fenced, NotFound):
            self._claims.done(claim)
            return False
        except BearlakeError as error:
            self._trouble.failed(error, step="end a task")
            self._release([claim])
            return False
        self._claims.done(claim)
        return True

    async def _release_due_claims(self) -> None:
        try:
            await self._claims.release_due()
        except BearlakeError as error:
            self._trouble.failed(error, step="give tasks back")
