"""The write path: *object first, commit second, acknowledge third*. Only this module implements that order.

    submit → open buffer → `flush_policy.py` → seal → put object → commit, in seal order → answer callers → cache, tail index

- Each flush writes one object, regardless of the number of partitions (design: PUTs per second = servers x flush rate).
- Several puts may be in flight. Commits happen in seal order, so batches of one producer never overtake each other (I3).
- A batch is acknowledged only after its object is durable and its commit is known (I1). A lost reply is neither success nor
  failure: the writer retries the commit with the same token until the outcome is known or this server is fenced. After
  `commit_unknown_ms_max` the server stops, so that clients move to other servers; the store decides each token once, even if late (I8).
- A commit names the oldest log position that this server knew when it received a batch that may be its producer's first (`may_begin`).
- `bytes_max` and `batch_count_max` bound memory: above them, protocol servers stop reading and wait in line (`relief`, `reservations`).
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable

from bearlake import kernel
from bearlake.clock import Clock
from bearlake.errors import BearlakeError, Conflict, Fenced, Overloaded, Unavailable
from bearlake.metadata import CommitLog
from bearlake.metadata.model import ObjectCommit, ObjectCommitted, ObjectRef, OutcomeKind, ServerRef
from bearlake.metadata.tokens import surely_not_stored
from bearlake.objects import ObjectStore
from bearlake.streams import outcomes
from bearlake.streams.append import SERVER_FENCED, UNAVAILABLE, AppendCall, Call
from bearlake.streams.attempt import Attempt
from bearlake.streams.buffer import OpenBuffer, Sealed, seal
from bearlake.streams.flush_policy import FlushPolicy
from bearlake.streams.putting import Putting
from bearlake.streams.relief import ReliefLine
from bearlake.streams.reservations import Reservations
from bearlake.streams.unstored_batches import UnstoredBatches
from bearlake.streams.waiting_calls import WaitingCalls
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
        on_committed: Callable[[ObjectRef, bytearray, ObjectCommitted], bool],
        on_repeated: Callable[[], None],
        on_fenced: Callable[[], None],
        on_unknown: Callable[[], None],
    ) -> None:
        """`on_committed` receives every committed object and owns its buffer; it returns whether readers see the commit now.

        `on_repeated` runs when batches are acknowledged that were stored before, here or by another server.

        `on_fenced` runs once when this server is fenced.

        `on_unknown` runs instead when the store has not answered a commit for `commit_unknown_ms_max`, or a bug ended a write.
        `seen` holds the newest log position that this server knows.
        """
        self._store = Putting(store)
        self._loop = asyncio.get_running_loop()  # Python 3.11 asks the kernel for the process id each time
        self._commit_log = commit_log
        self._commit_here = commit_log.blocking_commit()
        self._server = server
        self._settings = settings
        self._keys = wal_keys.KeySource(clock, random_source.getrandbits)
        self._random = random_source
        self._seen = seen
        self._on_committed = on_committed
        self._on_repeated = on_repeated
        self._on_fenced = on_fenced
        self._on_unknown = on_unknown
        self._open = OpenBuffer(settings)
        self._full: deque[OpenBuffer] = deque()
        """Full buffers, which wait for an upload slot; bounded by `bytes_max` and `batch_count_max`."""
        self._in_flight: dict[asyncio.Task[None], None] = {}
        self._last_commit: asyncio.Future[None] | None = None
        self._calls = WaitingCalls(settings.deadline_ms)
        self._closed_bytes = self._closed_count = 0
        """Bytes of the batches that are not in the open buffer, and the number of these batches."""
        self.relief = ReliefLine(self._used)
        """Those who wait until less than half of the budget is used."""
        share = settings.client_share_percent / 100
        self.reservations = Reservations(self.relief, lambda: self.pending_bytes, settings.bytes_max, share)
        self._unstored = UnstoredBatches(commit_log)
        self._flush_count = 0  # objects sealed so far, which is the newest object's number
        self._is_fenced = self._is_closed = False
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
            self._open.is_transactional |= call.is_transactional
            if at == len(call.appends):
                self.added(call)
                return
            self.close_buffer()
        call.refuse(SERVER_FENCED)

    def open_buffer(self) -> kernel.WriteBuffer | None:
        """Return the open buffer, for batches that the caller adds now and then reports by `added`; None once fenced or closed."""
        if self._is_fenced or self._is_closed:
            return None
        batches = self._open.batches
        if not batches.size:
            self._open.since = self._loop.time()
            batches.seen = self._seen.position
        return batches

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
        count_max = self._settings.batch_count_max
        return max(self.pending_bytes / self.reservations.left_bytes, self.pending_count / count_max)

    async def drain(self) -> None:
        """Flush the open buffer and wait until nothing is in flight, including batches that arrive meanwhile."""
        self._is_draining = True
        self._kick()
        while self._in_flight:
            await asyncio.wait(list(self._in_flight), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # let the callbacks flush buffers that were waiting for a slot
        await self._calls.answered()

    async def close(self) -> None:
        """Stop without flushing; pending calls are answered UNAVAILABLE, and later calls are refused."""
        self._is_closed = True
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        for task in (tasks := list(self._in_flight)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._calls.close()

    def _kick(self) -> None:
        """Flush the buffers that the policy allows now; a full one alone, because sealing copies it."""
        self._is_kicked = False
        if self._is_closed:  # I3: the writes before these batches were cancelled
            return
        settings = self._settings
        while len(self._in_flight) < settings.puts_in_flight_max:
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
            sealed = seal(buffer, self._server)
        except Exception as error:  # noqa: BLE001 - boundary: the batches are lost, and no later batch may be stored (I3)
            self._failed(error)
            self._release(buffer.batches)
            return
        self._policy.flushed(len(sealed.batches))
        self._flush_count += 1
        metrics.APPEND_FLUSHES.labels(reason).inc()
        metrics.APPEND_FLUSH_BYTES.observe(len(sealed.buffer))
        before, self._last_commit = self._last_commit, self._loop.create_future()
        task = self._loop.create_task(self._write(sealed, self._flush_count, before, self._last_commit))
        self._in_flight[task] = None
        task.add_done_callback(self._written)

    async def _write(
        self, sealed: Sealed, number: int, before: asyncio.Future[None] | None, done: asyncio.Future[None]
    ) -> None:
        queued, buffer, batches, size = sealed.queued, sealed.buffer, sealed.batches, sealed.queued.size
        try:
            if self._is_fenced:
                self._calls.resolve(queued, [SERVER_FENCED] * len(batches))
                return
            key = self._keys.next()
            commit = sealed.commit(key, self._server)
            here = self._commit_here if before is None or before.done() else None
            attempt = Attempt(here.commit, commit) if here is not None else None
            try:
                await self._store.put(key, (buffer,), *(() if attempt is None else (attempt.run,)))
            except BearlakeError:
                if attempt is None or attempt.claim():
                    if before is not None:
                        await before
                    results = await self._unstored.outcomes(commit)
                    last = self._flush_count + len(self._full) + 1  # the open buffer's
                    self._calls.resolve(queued, self._unstored.answers_not_stored(number, batches, results, last))
                    return
            if before is not None:
                await before
            try:
                if attempt is not None and attempt.result is not None:
                    result: ObjectCommitted | None = attempt.result
                    metrics.LOG_COMMITS.inc()
                    metrics.LOG_COMMIT_SECONDS.observe(attempt.seconds)
                else:
                    result = await self._commit(commit)
            except (Conflict, Unavailable) as error:
                log.warning("commit outcome unknown; giving up", extra={"key": key, "error": repr(error)})
                self._calls.resolve(queued, [UNAVAILABLE] * len(batches))
                return
            if result is None:
                self._calls.resolve(queued, [SERVER_FENCED] * len(batches))
                return
            others = outcomes.count(result, size)
            if result.position:
                is_applied = self._on_committed(ObjectRef(key, len(buffer)), buffer, result)
                if here is not None:  # now, so that the follower need not read the entry
                    here.announce(result.position, is_applied=is_applied)
            if OutcomeKind.DUPLICATE in others:
                self._on_repeated()
            if OutcomeKind.UNSURE in others:
                await self._seen.read_head()
                self._unstored.record_unsure(batches, result.outcomes, self._flush_count + len(self._full) + 1)
            self._calls.resolve(queued, self._unstored.answers_committed(number, batches, result.outcomes))
        except Exception as error:  # noqa: BLE001 - boundary: fence before the next commit may begin (I3)
            self._failed(error)
        finally:
            if not done.done():
                done.set_result(None)
            self._release(queued)

    async def _commit(self, commit: ObjectCommit) -> ObjectCommitted | None:
        """Retry the commit until the outcome is known; None if this server is fenced and nothing was stored.

        Raises:
            Conflict: the store decided the token, but has forgotten the result.
            Unavailable: the outcome is unknown, and the writer does not retry: this server is stopping, or was fenced after an unanswered
                attempt, or the store has forgotten whether it decided the token (I8).
        """
        loop = self._loop
        started = loop.time()
        pause_ms = self._settings.retry_pause_ms
        is_unknown = False
        while not self._is_fenced:
            try:
                result = await self._commit_log.commit(commit)
            except Fenced as error:
                is_unknown = is_unknown or not surely_not_stored(error)
                log.warning("commit refused; stopping this server", extra={"key": commit.token, "error": repr(error)})
                self._end(self._on_fenced)
            except (Unavailable, Overloaded) as error:
                # I1: neither success nor failure. Retry with the same token; later objects wait behind this one (I3).
                if not is_unknown:
                    log.warning("commit outcome unknown; retrying", extra={"key": commit.token, "error": repr(error)})
                is_unknown = True
                metrics.LOG_COMMIT_ERRORS.labels(type(error).__name__).inc()
                await asyncio.sleep(pause_ms * (0.5 + self._random.random()) / 1000)
                pause_ms = min(pause_ms * 2, self._settings.retry_pause_max_ms)
                unknown_ms = (loop.time() - started) * 1000  # the wall clock may step
                if unknown_ms >= self._settings.commit_unknown_ms_max:
                    log.error(  # noqa: TRY400
                        "commit outcome unknown for too long; stopping this server",
                        extra={"key": commit.token, "unknown_ms": round(unknown_ms), "error": repr(error)},
                    )
                    self._end(self._on_unknown)
            else:
                if is_unknown:
                    log.info("commit outcome known", extra={"key": commit.token})
                metrics.LOG_COMMITS.inc()
                metrics.LOG_COMMIT_SECONDS.observe(loop.time() - started)
                return result
        if is_unknown:
            raise Unavailable(f"commit outcome unknown: {commit.token}")
        return None

    def _end(self, notify: Callable[[], None]) -> None:
        """Stop accepting batches and retrying commits; call `notify` the first time."""
        if not self._is_fenced:
            self._is_fenced = True
            notify()

    def _written(self, task: asyncio.Task[None]) -> None:
        self._in_flight.pop(task, None)
        self._policy.written(self._loop.time(), self._open.batches.count)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
        self._kick()

    def _failed(self, error: BaseException) -> None:
        log.error("the write path failed; stopping this server", exc_info=error)
        self._end(self._on_unknown)

    def _release(self, written: kernel.WriteBuffer) -> None:
        self._closed_bytes -= written.size
        self._closed_count -= written.count
        self.reservations.freed()
