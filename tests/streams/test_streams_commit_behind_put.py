"""The commit on the put's thread: order, and the outcome if the put or the commit fails or is late."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.model import ObjectCommit, ObjectCommitted, ServerRef
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
    """Records which commits followed a put on its thread, and fails chosen commits before their effect."""

    def __init__(self, inner: Any, *failures: Exception) -> None:
        super().__init__(inner)
        self.behind: list[str] = []
        self.failures_behind = list(failures)

    def blocking_commit(self) -> Callable[[ObjectCommit], ObjectCommitted]:
        def commit_here(commit: ObjectCommit) -> ObjectCommitted:
            self.behind.append(commit.token)
            if self.failures_behind:
                raise self.failures_behind.pop(0)
            result: ObjectCommitted = self._inner._commit(commit)  # noqa: SLF001 - as the store in a file does after a put
            return result

        return commit_here


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
