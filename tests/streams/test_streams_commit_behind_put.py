"""The commit on the put's thread: order, and the outcome if the put or the commit fails or is late."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.model import Entries, ObjectCommit, ObjectCommitted, ServerRef
from bearlake.objects import Buffer
from bearlake.objects.memory import MemoryObjectStore
from bearlake.streams.attempt import Attempt
from fixtures.deployment import append, batch_of, create, deployment, fetch, submit, values_of, verdicts_of
from fixtures.failing_stores import Failing, FailingLog, settings
from simulator.loop import virtual_time


class EmbeddedStore(MemoryObjectStore):
    """Calls `on_durable` as a store with threads does: after the effect; then takes `put_s`, or raises a given error."""

    def __init__(self, *failures: Exception | None, is_quick: bool = True) -> None:
        super().__init__()
        self.failures = list(failures)
        self.is_quick = is_quick
        self.late: list[Callable[[], None]] = []

    async def put(self, key: str, parts: Sequence[Buffer], on_durable: Callable[[], None] | None = None) -> None:
        await super().put(key, parts)
        if on_durable is not None:
            on_durable() if self.is_quick else self.late.append(on_durable)
        await asyncio.sleep(0.1)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure


class EmbeddedLog(FailingLog):
    """Records which commits followed a put on its thread, fails chosen commits before their effect, and counts the reads of the log."""

    def __init__(self, inner: Any, *failures: Exception) -> None:
        super().__init__(inner)
        self.behind: list[str] = []
        self.failures_behind = list(failures)
        self.read_count = self.wait_count = 0
        self.unapplied: list[int] = []

    def blocking_commit(self) -> "CommitBehind":
        return CommitBehind(self, self._inner)

    async def follow(self, after: int, *, limit: int) -> Entries:
        self.read_count += 1
        entries: Entries = await self._inner.follow(after, limit=limit)
        return entries

    async def wait(self, after: int, *, wait_ms: int) -> None:
        self.wait_count += 1
        await self._inner.wait(after, wait_ms=wait_ms)


class CommitBehind:
    """Commits as a store in a file does after a put."""

    def __init__(self, log: EmbeddedLog, inner: Any) -> None:
        self._log = log
        self._inner = inner

    def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        self._log.behind.append(commit.token)
        if self._log.failures_behind:
            raise self._log.failures_behind.pop(0)
        result: ObjectCommitted = self._inner._commit(commit)  # noqa: SLF001 - the step of the writer's thread
        return result

    def announce(self, position: int, *, is_applied: bool) -> None:
        if not is_applied:
            self._log.unapplied.append(position)
            self._inner.notify(position)


def test_a_commit_made_by_the_put_is_not_repeated() -> None:
    @virtual_time
    async def body() -> None:
        async with deployment(EmbeddedStore()) as stores:
            log = EmbeddedLog(stores.metadata.log)
            streams = await stores.serve(settings(), metadata=Failing(stores.metadata, log))
            view = await create(streams)

            results = await append(streams, view, batch_of(b"a"))

            assert verdicts_of(results) == ["ACCEPTED"]
            assert (len(log.behind), log.tokens) == (1, [])
            assert values_of(await fetch(streams, view)) == [(0, b"a")]

    body()


def test_a_server_does_not_read_its_own_commits_from_the_log() -> None:
    @virtual_time
    async def body() -> None:
        async with deployment(EmbeddedStore()) as stores:
            log = EmbeddedLog(stores.metadata.log)
            streams = await stores.serve(settings(), metadata=Failing(stores.metadata, log))
            view = await create(streams)
            await append(streams, view, batch_of(b"a"))
            before = (log.read_count, log.wait_count)

            for value in (b"b", b"c", b"d"):
                await append(streams, view, batch_of(value))

            assert len(log.behind) == 4
            assert (log.read_count, log.wait_count) == before
            assert log.unapplied == []

    body()


def test_a_server_is_woken_for_its_commit_behind_an_entry_that_it_has_not_read() -> None:
    @virtual_time
    async def body() -> None:
        async with deployment(EmbeddedStore()) as stores:
            log = EmbeddedLog(stores.metadata.log)
            streams = await stores.serve(settings(), metadata=Failing(stores.metadata, log))
            view = await create(streams)
            await append(streams, view, batch_of(b"a"))
            other = await stores.serve(settings())
            waiting = log._inner._waiting  # noqa: SLF001
            waiting.notify = waiting.note  # a commit of another process would not wake this one
            await append(other, view, batch_of(b"b"))
            del waiting.notify

            await append(streams, view, batch_of(b"c"))
            await asyncio.sleep(0.001)

            assert len(log.unapplied) == 1
            assert values_of(await fetch(streams, view)) == [(0, b"a"), (1, b"b"), (2, b"c")]

    body()


def test_a_failed_commit_of_a_put_is_repeated_with_its_token() -> None:
    @virtual_time
    async def body() -> None:
        async with deployment(EmbeddedStore()) as stores:
            log = EmbeddedLog(stores.metadata.log, Unavailable("busy"))
            streams = await stores.serve(settings(), metadata=Failing(stores.metadata, log))
            view = await create(streams)

            results = await append(streams, view, batch_of(b"a"))

            assert verdicts_of(results) == ["ACCEPTED"]
            assert log.behind == log.tokens

    body()


def test_a_put_whose_reply_is_lost_after_its_commit_is_a_success() -> None:
    @virtual_time
    async def body() -> None:
        async with deployment(EmbeddedStore(Unavailable("lost"))) as stores:
            log = EmbeddedLog(stores.metadata.log)
            streams = await stores.serve(settings(), metadata=Failing(stores.metadata, log))
            view = await create(streams)

            results = await append(streams, view, batch_of(b"a"))

            assert verdicts_of(results) == ["ACCEPTED"]
            assert values_of(await fetch(streams, view)) == [(0, b"a")]

    body()


def test_a_late_commit_after_a_failed_put_is_never_made() -> None:
    @virtual_time
    async def body() -> None:
        store = EmbeddedStore(Unavailable("slow"), is_quick=False)
        async with deployment(store) as stores:
            log = EmbeddedLog(stores.metadata.log)
            streams = await stores.serve(settings(), metadata=Failing(stores.metadata, log))
            view = await create(streams)

            first = await append(streams, view, batch_of(b"a"))
            second = await append(streams, view, batch_of(b"b"))
            store.late[0]()

            assert verdicts_of([*first, *second]) == ["NOT_STORED", "ACCEPTED"]
            assert log.behind == []
            assert values_of(await fetch(streams, view)) == [(0, b"b")]

    body()


def test_only_the_oldest_object_in_flight_is_committed_by_its_put() -> None:
    @virtual_time
    async def body() -> None:
        async with deployment(EmbeddedStore()) as stores:
            log = EmbeddedLog(stores.metadata.log)
            streams = await stores.serve(settings(linger_ms=10), metadata=Failing(stores.metadata, log))
            view = await create(streams)

            waiting = []
            for value in (b"a", b"b", b"c"):
                waiting.append(submit(streams, view, batch_of(value)))
                await asyncio.sleep(0.02)
            await asyncio.gather(*waiting)

            assert (len(log.behind), len(log.tokens)) == (1, 2)
            assert values_of(await fetch(streams, view)) == [(0, b"a"), (1, b"b"), (2, b"c")]

    body()


@pytest.mark.parametrize("is_run_first", [True, False])
def test_the_first_claim_of_an_attempt_decides(is_run_first: bool) -> None:
    made: list[str] = []
    result = ObjectCommitted(position=1, outcomes=(), slices=())

    def commit_here(commit: ObjectCommit) -> ObjectCommitted:
        made.append(commit.token)
        return result

    attempt = Attempt(commit_here, ObjectCommit(token="t", server=ServerRef(node_id=1, epoch=1), size=1, batches=()))
    if is_run_first:
        attempt.run()
        is_claimed = attempt.claim()
    else:
        is_claimed = attempt.claim()
        attempt.run()

    assert (is_claimed, made, attempt.result) == ((False, ["t"], result) if is_run_first else (True, [], None))
