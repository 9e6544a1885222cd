"""The put and the commit in one thread: order, and the outcome if the put or the commit fails, is late, or has a bug."""

import asyncio
import gc

import pytest

from bearlake.errors import Fenced, Unavailable
from bearlake.streams.flush import Flush
from fixtures.deployment import append, batch_of, verdicts_of
from fixtures.stores_here import STEP_S, HereStore, Server, with_server


def test_a_commit_made_by_the_put_is_not_repeated() -> None:
    async def body(server: Server, store: HereStore) -> None:
        assert verdicts_of(await server.append(b"a")) == ["ACCEPTED"]
        assert (len(server.log.behind), server.log.tokens, store.steps) == (1, [], ["put"])
        assert await server.values() == [(0, b"a")]
        assert store.attempts == [None]

    with_server(body, HereStore())


def test_a_server_does_not_read_its_own_commits_from_the_log() -> None:
    async def body(server: Server, store: HereStore) -> None:
        await server.append(b"a")
        before = (server.log.read_count, server.log.wait_count)
        for value in (b"b", b"c", b"d"):
            await server.append(value)

        assert len(server.log.behind) == 4
        assert (server.log.read_count, server.log.wait_count) == before
        assert server.log.unapplied == []

    with_server(body, HereStore())


def test_a_server_is_woken_for_its_commit_behind_an_entry_that_it_has_not_read() -> None:
    async def body(server: Server, store: HereStore) -> None:
        await server.append(b"a")
        other = await server.serve_other()
        waiting = server.log._inner._waiting  # noqa: SLF001
        waiting.notify = waiting.note  # a commit of another process would not wake this one
        await append(other, server.view, batch_of(b"b"))
        del waiting.notify

        await server.append(b"c")
        await asyncio.sleep(0.001)

        assert len(server.log.unapplied) == 1
        assert await server.values() == [(0, b"a"), (1, b"b"), (2, b"c")]

    with_server(body, HereStore())


def test_a_failed_commit_of_a_put_is_repeated_with_its_token() -> None:
    async def body(server: Server, store: HereStore) -> None:
        assert verdicts_of(await server.append(b"a")) == ["ACCEPTED"]
        assert server.log.behind == server.log.tokens

    with_server(body, HereStore(), Unavailable("busy"))


def test_a_put_whose_reply_is_lost_goes_on_on_the_event_loop_and_is_then_committed() -> None:
    async def body(server: Server, store: HereStore) -> None:
        assert verdicts_of(await server.append(b"a")) == ["ACCEPTED"]
        assert (store.steps, server.log.behind, len(server.log.tokens)) == (["put", "again"], [], 1)
        assert await server.values() == [(0, b"a")]

    with_server(body, HereStore("lost"))


def test_a_put_that_fails_for_good_stores_nothing_and_the_next_one_is_tried_by_the_thread() -> None:
    async def body(server: Server, store: HereStore) -> None:
        store.is_full = True
        first = await server.append(b"a")
        second = await server.append(b"b")

        assert verdicts_of([*first, *second]) == ["NOT_STORED", "ACCEPTED"]
        assert store.steps == ["put", "again", "put"]
        assert await server.values() == [(0, b"b")]

    with_server(body, HereStore(Unavailable("disk full")))


def test_threads_commit_objects_that_are_in_flight_at_the_same_time() -> None:
    async def body(server: Server, store: HereStore) -> None:
        waiting = []
        for value in (b"a", b"b", b"c"):
            waiting.append(asyncio.ensure_future(server.submit(value)))
            await asyncio.sleep(0.02)
        await asyncio.gather(*waiting)

        assert (len(server.log.behind), server.log.tokens) == (3, [])
        assert await server.values() == [(0, b"a"), (1, b"b"), (2, b"c")]

    with_server(body, HereStore(), linger_ms=10)


def test_a_failed_put_does_not_let_a_later_object_commit_first() -> None:
    async def body(server: Server, store: HereStore) -> None:
        first = asyncio.ensure_future(server.submit(b"a"))
        await asyncio.sleep(0.02)
        second = asyncio.ensure_future(server.submit(b"b"))
        await asyncio.gather(first, second)

        assert await server.values() == [(0, b"a"), (1, b"b")]

    with_server(body, HereStore("lost"), linger_ms=10)


def test_without_a_thread_the_event_loop_stores_the_object() -> None:
    async def body(server: Server, store: HereStore) -> None:
        store.is_without_threads = True
        assert verdicts_of(await server.append(b"a")) == ["ACCEPTED"]
        assert (store.steps, server.log.behind, len(server.log.tokens)) == ([], [], 1)

    with_server(body, HereStore())


def test_a_bug_in_the_thread_stops_the_server_before_the_next_commit() -> None:
    async def body(server: Server, store: HereStore) -> None:
        waiting = asyncio.ensure_future(server.submit(b"a"))
        await asyncio.sleep(2 * STEP_S)
        later = await server.append(b"b")

        assert verdicts_of(later) == ["SERVER_FENCED"]
        assert (server.log.behind, server.log.tokens, waiting.done()) == ([], [], False)

    with_server(body, HereStore(ValueError("a bug")))


def test_a_fenced_server_whose_commit_may_have_happened_does_not_say_that_nothing_was_stored() -> None:
    async def body(server: Server, store: HereStore) -> None:
        server.log.failures = [Fenced("a newer epoch was registered")]
        assert verdicts_of(await server.append(b"a")) == ["UNAVAILABLE"]

    with_server(body, HereStore(), Unavailable("the reply was lost"))


def test_a_server_that_is_refused_at_once_says_that_nothing_was_stored() -> None:
    async def body(server: Server, store: HereStore) -> None:
        server.log.failures = [Fenced("a newer epoch was registered")]
        assert verdicts_of(await server.append(b"a")) == ["SERVER_FENCED"]

    with_server(body, HereStore(), Fenced("a newer epoch was registered"))


def test_closing_waits_for_the_thread_and_acknowledges_nothing() -> None:
    async def body(server: Server, store: HereStore) -> None:
        store.late = []
        waiting = asyncio.ensure_future(server.submit(b"a"))
        await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(server.streams.close())
        await asyncio.sleep(1)
        assert not closing.done()
        store.late[0]()
        await closing

        assert verdicts_of(await waiting) == ["UNAVAILABLE"]

    with_server(body, HereStore())


def test_draining_waits_for_the_thread_and_answers() -> None:
    async def body(server: Server, store: HereStore) -> None:
        waiting = asyncio.ensure_future(server.submit(b"a"))
        await asyncio.sleep(0.01)
        await server.streams.drain()

        assert verdicts_of(await waiting) == ["ACCEPTED"]

    with_server(body, HereStore())


@pytest.mark.parametrize("failure", [None, "lost", Unavailable("disk full")])
def test_nothing_of_a_flush_is_pending_after_its_answer(failure: Exception | str | None) -> None:
    async def body(server: Server, store: HereStore) -> None:
        store.is_full = isinstance(failure, Exception)
        await server.append(b"a")
        await asyncio.sleep(0)
        writer = server.streams._writer  # noqa: SLF001

        assert (writer.put_count, writer.pending_bytes, writer.pending_count) == (0, 0, 0)

    with_server(body, HereStore(failure))


def test_errors_of_a_thread_keep_no_object_in_memory() -> None:
    class Counted(bytearray):
        count = 0

        def __init__(self, content: bytes) -> None:
            super().__init__(content)
            Counted.count += 1

        def __del__(self) -> None:
            Counted.count -= 1

    async def body(server: Server, store: HereStore) -> None:
        writer = server.streams._writer  # noqa: SLF001
        start = writer._start_here  # noqa: SLF001

        def counting(flush: Flush) -> bool:
            flush.sealed = flush.sealed._replace(buffer=Counted(bytes(flush.sealed.buffer)))
            return bool(start(flush))

        writer._start_here = counting  # noqa: SLF001
        store.is_full = True
        gc.collect()
        gc.disable()  # a cycle would keep the object until cycles are collected
        try:
            assert verdicts_of(await server.append(b"a")) == ["NOT_STORED"]
            await asyncio.sleep(0)
            assert Counted.count == 0
        finally:
            gc.enable()

    with_server(body, HereStore(Unavailable("disk full")))


def test_a_thread_that_never_returns_does_not_keep_a_server_from_closing(caplog: pytest.LogCaptureFixture) -> None:
    async def body(server: Server, store: HereStore) -> None:
        store.late = []
        result = server.submit(b"a")
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()

        await server.streams.close()

        assert asyncio.get_running_loop().time() - began == pytest.approx(3, abs=0.1)
        assert verdicts_of(await result) == ["UNAVAILABLE"]
        store.late[0]()  # it returns after all
        await asyncio.sleep(0)
        assert "closing while threads still store objects" in caplog.text

    with_server(body, HereStore(), deadline_ms=3_000)
