"""The write path: *object first, commit second, acknowledge third*. Only this module implements that order.

    submit → open buffer → `flush_policy.py` → seal → put object → commit, in seal order → answer callers → cache, tail index

- Each flush writes one object, regardless of the number of partitions (design: PUTs per second = servers x flush rate).
- Several puts may be in flight. Commits happen in seal order, so batches of one producer never overtake each other (I3).
- A batch is acknowledged only after its object is durable and its commit is known (I1): `committer.py` retries it until it is.
- Where both stores are on this machine, threads put and commit the objects (`flush.py`).
- A commit names the oldest log position that this server knew when it received a batch that may be its producer's first (`may_begin`).
- `bytes_max` and `batch_count_max` bound memory: above them, protocol servers stop reading and wait in line (`relief`, `reservations`).
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial

from bearlake import kernel
from bearlake.clock import Clock
from bearlake.errors import BearlakeError, Conflict, OutOfRoom, Unavailable
from bearlake.metadata import CommitLog
from bearlake.metadata.model import ObjectCommitted, ServerRef
from bearlake.objects import ObjectStore
from bearlake.streams import outcomes
from bearlake.streams.answering import Answering, OnCommitted
from bearlake.streams.append import SERVER_FENCED, UNAVAILABLE, AppendCall, Call
from bearlake.streams.buffer import OpenBuffer, seal
from bearlake.streams.committer import Committer
from bearlake.streams.flush import CommitOrder, Flush, Storing, unfinished
from bearlake.streams.flush_policy import FlushPolicy
from bearlake.streams.putting import Putting
from bearlake.streams.relief import ReliefLine
from bearlake.streams.reservations import Reservations
from bearlake.streams.unstored_batches import UnstoredBatches
from bearlake.streams.waiting_calls import WaitingCalls
from bearlake.streams.write_problem import WriteProblem
from bearlake.streams.writer_settings import WriterSettings
from bearlake.telemetry import metrics
from bearlake.wal import keys as wal_keys

log = logging.getLogger(__name__)

TICK_S = 0.001
"""Shortest timer (s). uvloop rounds the time of a timer to ms, and calls it at once if nothing is left: the event loop would spin."""


class Writer:
    """One server's write path. Use it from the event loop's thread only."""

    def __init__(
        self,
        store: ObjectStore,
        commit_log: CommitLog,
        server: ServerRef,
        settings: WriterSettings,
        clock: Clock,
        random_source: random.Random,
        seen: outcomes.Seen,
        on_committed: OnCommitted,
        on_repeated: Callable[[], None],
        on_fenced: Callable[[], None],
        on_unknown: Callable[[], None],
        has_readers: Callable[[], bool] = lambda: True,
    ) -> None:
        """`on_committed` receives every committed object and owns its copy, if there is one; it returns whether readers see the commit now.

        `has_readers`: whether somebody may soon read what is committed, so that copies are of use.

        `on_repeated` runs when batches are acknowledged that were stored before, here or by another server.

        `on_fenced` runs once when this server is fenced.

        `on_unknown` runs instead when the store has not answered a commit for `commit_unknown_ms_max`, or a bug ended a write.
        `seen` holds the newest log position that this server knows.
        """
        self._store = Putting(store)
        self._commit_here = commit_log.blocking_commit()
        self.committer = Committer(commit_log, settings, random_source, on_fenced, on_unknown)
        self._loop = asyncio.get_running_loop()  # Python 3.11 asks the kernel for the process id each time
        self._server = server
        self._settings = settings
        self._keys = wal_keys.KeySource(clock, random_source.getrandbits)
        self._seen = seen
        self._has_readers = has_readers
        self._open = OpenBuffer(settings)
        self._full: deque[OpenBuffer] = deque()
        """Full buffers, which wait for an upload slot; bounded by `bytes_max` and `batch_count_max`."""
        self._in_flight: dict[Flush, None] = {}
        self.problem = WriteProblem(self.committer, self._store, self._in_flight, settings.deadline_ms)
        self._last_commit: asyncio.Future[None] | None = None
        self._order = CommitOrder()
        self._calls = WaitingCalls(settings.deadline_ms)
        self._closed_bytes = self._closed_count = 0
        """Bytes of the batches that are not in the open buffer, and the number of these batches."""
        self.relief = ReliefLine(self._used)
        """Those who wait until less than half of the budget is used."""
        share = settings.client_share_percent / 100
        self.reservations = Reservations(self.relief, lambda: self.pending_bytes, settings.bytes_max, share)
        self._answering = Answering(
            self._calls,
            UnstoredBatches(commit_log),
            seen,
            on_committed,
            on_repeated,
            self._commit_here,
            self._newest_number,
        )
        self._flush_count = 0  # objects sealed so far, which is the newest object's number
        self._is_closed = False
        self._is_kicked = False
        self._is_draining = False
        self._policy = FlushPolicy(settings)
        self._linger_timer: asyncio.TimerHandle | None = None
        self._linger_at = 0.0  # due time of `_linger_timer`; a uvloop handle cannot report it within the last 0.5 ms

    def submit(self, call: AppendCall) -> None:
        """Queue the call's batches, in order; the callback runs when their outcomes are known, or after the deadline.

        Never waits. Refuses batches only when this server is fenced or closed; callers watch `is_over_budget`.
        """
        at = 0
        while (buffer := self.open_buffer()) is not None:
            at = buffer.add(call, call.appends, at, call.seen)
            if at == len(call.appends):
                self.added(call)
                return
            self.close_buffer()
        call.refuse(SERVER_FENCED)

    def open_buffer(self) -> kernel.WriteBuffer | None:
        """Return the open buffer, for batches that the caller adds now and then reports by `added`; None once fenced or closed."""
        if self.committer.is_fenced or self._is_closed:
            return None
        batches = self._open.batches
        if not batches.size:
            self._open.since = self._loop.time()
            batches.seen = self._seen.position
        return batches

    def buffer_with_room(self) -> kernel.WriteBuffer | None:
        """As `open_buffer`, but None also if the budget is used up, or others wait for it."""
        batches = self._open.batches  # asked at every read of a socket: no calls
        size, count = self._closed_bytes + batches.size, self._closed_count + batches.count
        is_over = size > self.reservations.left_bytes or count > self._settings.batch_count_max
        return None if is_over or self.relief.waiting else self.open_buffer()

    def added(self, call: Call) -> None:
        """Answer `call`, whose batches are in the open buffer, when their outcomes are known, or after the deadline."""
        self._calls.add(call)
        self._kick_soon()

    def close_buffer(self) -> None:
        """Open another buffer; the former one waits for an upload slot."""
        self._full.append(self._take_open())
        self._kick_soon()

    def _kick_soon(self) -> None:
        if not self._is_kicked:
            self._is_kicked = True
            self._loop.call_soon(self._kick)

    def _take_open(self) -> OpenBuffer:
        buffer, self._open = self._open, OpenBuffer(self._settings)
        self._closed_bytes += buffer.batches.size
        self._closed_count += buffer.batches.count
        return buffer

    @property
    def is_over_budget(self) -> bool:
        """Whether callers should stop reading their sockets and join `relief`."""
        return self.relief.is_closed

    @property
    def put_count(self) -> int:
        """Objects currently being put or committed."""
        return len(self._in_flight)

    @property
    def pending_bytes(self) -> int:
        """Bytes of batches that are waiting or in flight."""
        return self._closed_bytes + self._open.batches.size

    @property
    def pending_count(self) -> int:
        """These batches."""
        return self._closed_count + self._open.batches.count

    def _used(self) -> float:
        used_bytes = self.pending_bytes / self.reservations.left_bytes
        return max(used_bytes, self.pending_count / self._settings.batch_count_max)

    async def drain(self) -> None:
        """Flush the open buffer and wait until nothing is in flight, including batches that arrive meanwhile."""
        self._is_draining = True
        self._kick()
        while self._in_flight:
            await asyncio.wait([flush.done for flush in self._in_flight], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # let the callbacks flush buffers that were waiting for a slot
        await self._calls.answered()

    async def close(self) -> None:
        """Stop without flushing; pending calls are answered UNAVAILABLE, and later calls are refused.
        Waits up to `deadline_ms` for threads that still work; a thread that works longer finds its stores closed.
        """
        self._is_closed = True
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        in_flight = list(self._in_flight)
        for flush in in_flight:
            if flush.task is not None:
                flush.task.cancel()
        if late_count := await unfinished(in_flight, self._settings.deadline_ms):  # the store closes next
            log.warning("closing while threads still store objects", extra={"object_count": late_count})
        self._calls.close()

    def _kick(self) -> None:
        """Flush the buffers that the policy allows now; a full one alone, because sealing copies it."""
        self._is_kicked = False
        if self._is_closed:  # I3: the writes before these batches were cancelled
            return
        while len(self._in_flight) < self._settings.puts_in_flight_max:
            if self._full:
                self._flush(self._full.popleft(), "full")
                if self._full or self._open.batches.size:
                    self._kick_soon()
                return
            buffer = self._open
            if not buffer.batches.size:
                return
            reason, wait_ms = self._policy.decide(
                buffer, self._loop.time(), is_in_flight=bool(self._in_flight), is_draining=self._is_draining
            )
            if reason is None:
                self._arm_linger(wait_ms)
                return
            self._flush(self._take_open(), reason)

    def _arm_linger(self, wait_ms: float) -> None:
        at = self._loop.time() + max(wait_ms / 1000, TICK_S)
        if self._linger_timer is not None:
            if self._linger_at <= at:
                return
            self._linger_timer.cancel()
        self._linger_at = at
        self._linger_timer = self._loop.call_at(at, self._linger_over)

    def _linger_over(self) -> None:
        self._linger_timer = None
        self._kick()

    def _flush(self, buffer: OpenBuffer, reason: str) -> None:
        """Seal a buffer and start its put and commit."""
        try:
            # a remote store would hold the receive buffers for long
            is_copied = self._store.here is None or self._has_readers()
            sealed = seal(buffer, self._server, is_copied=is_copied)
        except Exception as error:  # noqa: BLE001 - boundary: the batches are lost, and no later batch may be stored (I3)
            self.committer.fail(error)
            self._release(buffer.batches)
            return
        self._policy.flushed(len(sealed.batches))
        self._flush_count += 1
        metrics.APPEND_FLUSHES.labels(reason).inc()
        metrics.APPEND_FLUSH_BYTES.observe(sealed.size)
        before, self._last_commit = self._last_commit, self._loop.create_future()
        commit = sealed.commit(self._keys.next(), self._server)
        flush = Flush(self._flush_count, sealed, commit, before, self._last_commit, buffer.since)
        self._in_flight[flush] = None
        if not self._start_here(flush):
            self._start(flush, self._write(flush))

    # -- put and commit in threads ---------------------------------------------------------------------------------

    def _start_here(self, flush: Flush) -> bool:
        """Put and commit the object in threads; returns False, with nothing done, where this is not possible."""
        put_here, commit_here = self._store.here, self._commit_here
        if put_here is None or commit_here is None or self.committer.is_fenced:
            return False
        storing = Storing(flush, put_here, commit_here, self._order)
        try:
            put_here.start(storing.put, storing.commit, partial(self._stored, storing, self._store.failure_count))
        except Unavailable:
            return False  # there is no thread
        return True

    def _stored(self, storing: Storing, failure_count: int, bug: BaseException | None) -> None:
        """The threads have ended, with whatever success; called in seal order."""
        flush = storing.flush
        try:
            if bug is not None:
                raise bug
            is_over = self._is_answered(storing, failure_count)
        except BaseException as error:  # noqa: BLE001 - boundary: fence before the next commit may begin (I3)
            self.committer.fail(error)
            is_over = True
        if is_over:
            self._ended(flush)

    def _is_answered(self, storing: Storing, failure_count: int) -> bool:
        """Answer the batches of a committed object; returns False if a task does the rest."""
        flush, put_here = storing.flush, self._store.here
        assert put_here is not None
        put_here.attempted(storing.put_s, flush.sealed.size, storing.put_error)
        if storing.put_error is None:
            self._store.succeeded(failure_count)
        if self._is_closed:
            return True
        if storing.result is None:
            self._start(flush, self._finish(flush, storing))
            return False
        self.committer.observe(storing.commit_s)
        if self._answering.committed(flush, storing.result):
            self._start(flush, self._answering.unsure(flush, storing.result))
            return False
        return True

    async def _finish(self, flush: Flush, storing: Storing) -> None:
        """Go on where the thread has failed."""
        put_error, commit_error = storing.put_error, storing.commit_error
        storing.forget_errors()
        try:
            if put_error is not None:
                try:
                    await self._store.again(flush.key, flush.sealed.parts, put_error)
                except BearlakeError:
                    await self._answering.not_stored(flush)
                    return
            if commit_error is None:
                await self._commit(flush, self.committer.commit(flush.commit))
            else:
                await self._commit(flush, self.committer.commit_again(flush.commit, commit_error))
        finally:
            put_error = commit_error = None  # their tracebacks hold this frame, and so the buffer

    # -- put and commit on the event loop --------------------------------------------------------------------------

    def _start(self, flush: Flush, work: Coroutine[None, None, None]) -> None:
        """Let a task finish the flush."""
        flush.task = self._loop.create_task(work)
        flush.task.add_done_callback(partial(self._task_ended, flush))

    async def _write(self, flush: Flush) -> None:
        if self.committer.is_fenced:
            self._answering.all(flush, SERVER_FENCED)
            return
        try:
            await self._store.put(flush.key, flush.sealed.parts)
        except BearlakeError:
            await self._answering.not_stored(flush)
            return
        await self._commit(flush, self.committer.commit(flush.commit))

    async def _commit(self, flush: Flush, commit: Coroutine[None, None, ObjectCommitted | None]) -> None:
        """Commit a stored object behind the one before, and answer."""
        try:
            if flush.before is not None:
                await flush.before
            result = await commit
        except OutOfRoom:
            await self._answering.not_stored(flush)
        except (Conflict, Unavailable) as error:
            log.warning("commit outcome unknown; giving up", extra={"key": flush.key, "error": repr(error)})
            self._answering.all(flush, UNAVAILABLE)
        else:
            if result is None:
                self._answering.all(flush, SERVER_FENCED)
            elif self._answering.committed(flush, result):
                await self._answering.unsure(flush, result)
        finally:
            commit.close()  # it may not have begun

    # -- end -----------------------------------------------------------------------------------------------------------

    def _task_ended(self, flush: Flush, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.committer.fail(error)  # before the next commit may begin (I3)
        self._ended(flush)

    def _ended(self, flush: Flush) -> None:
        """The flush is over, successful or not: the next object may be committed, and another flush may begin."""
        del self._in_flight[flush]
        if not (self._is_closed or self.committer.is_fenced):
            self._order.ended(flush.number)
        if not flush.done.done():
            flush.done.set_result(None)
        flush.sealed.release()
        self._release(flush.sealed.queued)
        self._policy.written(self._loop.time(), self._open.batches.count)
        self._kick_soon()

    def _newest_number(self) -> int:
        return self._flush_count + len(self._full) + 1

    def _release(self, written: kernel.WriteBuffer) -> None:
        self._closed_bytes -= written.size
        self._closed_count -= written.count
        self.reservations.freed()
