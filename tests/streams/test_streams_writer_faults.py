"""The write path: its promises when stores fail, its memory limits, and its end."""

import asyncio
import logging

import pytest

from bearlake.errors import Conflict, Fenced, Overloaded, Unavailable
from bearlake.streams.append import AppendCall, Verdict
from fixtures.deployment import append, append_of, batch_of, create, deployment, fetch, submit, values_of, verdicts_of
from fixtures.failing_stores import SlowStore, failing, settings
from simulator.loop import virtual_time

# -- what it promises ------------------------------------------------------------------------------------------------


@virtual_time
async def test_nothing_is_acknowledged_before_its_commit() -> None:
    async with deployment(SlowStore(1.0)) as stores:
        streams = await stores.serve(settings())
        view = await create(streams)

        waiting = submit(streams, view, batch_of(b"a"))
        await asyncio.sleep(0.9)
        head = await stores.metadata.log.head()
        await waiting

        assert await stores.metadata.log.head() == head + 1


@pytest.mark.parametrize("failure", [Unavailable("down"), Overloaded("full"), "lost"], ids=["down", "full", "lost"])
def test_a_commit_without_an_answer_is_repeated_with_its_token(failure: Exception | str) -> None:
    @virtual_time
    async def body() -> None:
        async with deployment() as stores:
            metadata = failing(stores, failure, failure, failure)
            streams = await stores.serve(settings(), metadata=metadata)
            view = await create(streams)

            results = await append(streams, view, batch_of(b"a"))

            assert verdicts_of(results) == ["ACCEPTED"]
            assert len(metadata.log.tokens) == 4
            assert len(set(metadata.log.tokens)) == 1
            assert values_of(await fetch(streams, view)) == [(0, b"a")]

    body()


def test_an_unknown_commit_is_given_up_before_the_store_may_have_forgotten_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise a late repeat would be a new commit, of an object whose bytes are deleted."""

    @virtual_time
    async def body() -> None:
        async with deployment() as stores:
            told: list[tuple[str, float]] = []
            loop = asyncio.get_running_loop()
            metadata = failing(stores, "lost", *[Unavailable("down")] * 1_000)
            streams = await stores.serve(
                settings(deadline_ms=3_600_000),
                name="a",
                metadata=metadata,
                on_fenced=lambda: told.append(("fenced", loop.time())),
                on_unknown=lambda: told.append(("unknown", loop.time())),
            )
            view = await create(streams)

            unknown = submit(streams, view, batch_of(b"a", producer=1))
            await asyncio.sleep(0.1)
            waiting = submit(streams, view, batch_of(b"b", producer=1, sequence=1))
            assert verdicts_of(await unknown) == ["UNAVAILABLE"]
            assert verdicts_of(await waiting) == ["SERVER_FENCED"]
            assert [what for what, _ in told] == ["unknown"]
            assert 600 <= told[0][1] < 603

            asked = list(metadata.log.tokens)
            later = await append(streams, view, batch_of(b"c", producer=1, sequence=2))
            await streams.drain()
            assert verdicts_of(later) == ["SERVER_FENCED"]
            assert metadata.log.tokens == asked
            assert len(set(asked)) == 1

            anew = await stores.serve(settings(), name="a")
            again = [await append(anew, view, batch_of(b"ab"[n : n + 1], producer=1, sequence=n)) for n in (0, 1)]
            assert [verdicts_of(result) for result in again] == [["DUPLICATE"], ["ACCEPTED"]]
            assert values_of(await fetch(anew, view)) == [(0, b"a"), (1, b"b")]

    body()

    said = [record.levelname for record in caplog.records if record.name.startswith("bearlake.streams.")]
    assert said == ["WARNING", "ERROR", "WARNING"]


@pytest.mark.parametrize("step_ms", [600_000, 30 * 24 * 3_600_000, -3_600_000])
def test_a_step_of_the_wall_clock_does_not_end_a_server_that_waits_for_an_answer(step_ms: int) -> None:
    @virtual_time
    async def body() -> None:
        async with deployment() as stores:
            told: list[str] = []
            metadata = failing(stores, *[Unavailable("down")] * 3)
            streams = await stores.serve(settings(), metadata=metadata, on_unknown=lambda: told.append("unknown"))
            view = await create(streams)

            waiting = submit(streams, view, batch_of(b"a"))
            await asyncio.sleep(0.03)  # the commit was sent once and waits for its repeat
            assert len(metadata.log.tokens) in (1, 2)
            stores.clock.step(step_ms)

            assert verdicts_of(await waiting) == ["ACCEPTED"]
            assert told == []

    body()


@virtual_time
async def test_a_commit_whose_result_is_forgotten_is_an_unknown_outcome_and_the_server_continues() -> None:
    async with deployment() as stores:
        streams = await stores.serve(settings(), metadata=failing(stores, Conflict("long ago")))
        view = await create(streams)

        first = await append(streams, view, batch_of(b"a"))
        second = await append(streams, view, batch_of(b"b"))

        assert verdicts_of([*first, *second]) == ["UNAVAILABLE", "ACCEPTED"]


@virtual_time
async def test_a_fenced_server_reports_it_once_and_appends_nothing_more() -> None:
    async with deployment() as stores:
        told: list[str] = []
        old = await stores.serve(settings(), name="a", on_fenced=lambda: told.append("fenced"))
        view = await create(old)
        new = await stores.serve(settings(), name="a")

        results = [*await append(old, view, batch_of(b"a")), *await append(old, view, batch_of(b"b"))]

        assert verdicts_of(results) == ["SERVER_FENCED", "SERVER_FENCED"]
        assert told == ["fenced"]
        assert verdicts_of(await append(new, view, batch_of(b"c"))) == ["ACCEPTED"]
        assert values_of(await fetch(new, view)) == [(0, b"c")]


@virtual_time
async def test_a_commit_that_happened_before_the_server_was_fenced_is_acknowledged() -> None:
    async with deployment() as stores:
        old = await stores.serve(settings(retry_pause_ms=1_000), name="a", metadata=failing(stores, "lost"))
        view = await create(old)

        waiting = submit(old, view, batch_of(b"a"))
        await asyncio.sleep(0.1)
        await stores.serve(settings(), name="a")

        assert verdicts_of(await waiting) == ["ACCEPTED"]


@virtual_time
async def test_a_bug_acknowledges_nothing_and_fences_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async with deployment() as stores:
        told: list[str] = []
        bug = RuntimeError("a bug")
        streams = await stores.serve(
            settings(deadline_ms=500), metadata=failing(stores, bug), on_fenced=lambda: told.append("fenced")
        )
        view = await create(streams)

        results = await append(streams, view, batch_of(b"a"))

        assert verdicts_of(results) == ["UNAVAILABLE"]
        assert told == ["fenced"]
        assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


@virtual_time
async def test_after_a_bug_no_later_object_is_committed() -> None:
    """Otherwise batches that a client sent later would be stored without those before them (I3)."""
    store = SlowStore()
    async with deployment(store) as stores:
        store.each_put_s = [0.3, 0.1]  # the second object is durable first, and its commit waits
        metadata = failing(stores, KeyError("a bug"))
        streams = await stores.serve(settings(deadline_ms=1_000, linger_ms=10), metadata=metadata)
        view = await create(streams)
        waiting = [submit(streams, view, batch_of(b"a"))]
        await asyncio.sleep(0.05)
        waiting.append(submit(streams, view, batch_of(b"b")))
        results = [verdicts_of(await answer) for answer in waiting]

        assert results == [["UNAVAILABLE"], ["SERVER_FENCED"]]
        assert len(metadata.log.tokens) == 1
        assert values_of(await fetch(streams, view)) == []


@virtual_time
async def test_a_caller_gets_an_unknown_outcome_at_its_deadline_and_the_work_continues() -> None:
    store = SlowStore(1.0)
    async with deployment(store) as stores:
        streams = await stores.serve(settings(deadline_ms=300))
        view = await create(streams)

        results = await append(streams, view, batch_of(b"a", producer=1))
        told_at = asyncio.get_running_loop().time()
        again = submit(streams, view, batch_of(b"a", producer=1))
        await asyncio.sleep(3)

        assert verdicts_of(results) == ["UNAVAILABLE"]
        assert 0.3 <= told_at < 0.31
        assert verdicts_of(await again) == ["UNAVAILABLE"]
        store.put_s = 0.0
        assert verdicts_of(await append(streams, view, batch_of(b"a", producer=1))) == ["DUPLICATE"]
        assert values_of(await fetch(streams, view)) == [(0, b"a")]


@virtual_time
async def test_callers_expire_one_by_one() -> None:
    async with deployment(SlowStore(10.0)) as stores:
        streams = await stores.serve(settings(deadline_ms=1_000))
        view = await create(streams)
        times: list[float] = []
        loop = asyncio.get_running_loop()
        for number in range(3):
            streams.submit(AppendCall([append_of(view, batch_of(b"a"))], lambda call: times.append(loop.time()), 0))
            await asyncio.sleep(0.1 * number)

        await asyncio.sleep(2)

        assert [round(at, 2) for at in times] == [1.0, 1.0, 1.1]


# -- how much it holds -----------------------------------------------------------------------------------------------


@virtual_time
async def test_above_its_budget_the_writer_asks_callers_to_stop_and_later_to_continue() -> None:
    async with deployment(SlowStore(1.0)) as stores:
        streams = await stores.serve(settings(bytes_max=3_000, object_bytes_max=1_500))
        view = await create(streams)
        relieved: list[float] = []
        waiting = []
        while not streams.is_over_budget:
            waiting.append(submit(streams, view, batch_of(b"a" * 1_000)))
        streams.on_relief(lambda: relieved.append(asyncio.get_running_loop().time()))

        await asyncio.gather(*waiting)

        assert len(waiting) == 3
        assert len(relieved) == 1
        assert not streams.is_over_budget


@virtual_time
async def test_batches_that_callers_gave_up_still_count_until_they_are_written() -> None:
    async with deployment(SlowStore(5.0)) as stores:
        streams = await stores.serve(settings(bytes_max=1_500, deadline_ms=100))
        view = await create(streams)

        await append(streams, view, batch_of(b"a" * 2_000))
        is_over_after_deadline = streams.is_over_budget
        await asyncio.sleep(6)

        assert is_over_after_deadline
        assert not streams.is_over_budget


class CountedHold:
    def __init__(self) -> None:
        self.count = 0
        self.most = 0

    def acquire(self, count: int = 1) -> None:
        self.count += count
        self.most = max(self.most, self.count)

    def release(self, count: int = 1) -> None:
        self.count -= count


@virtual_time
async def test_receive_buffers_are_released_when_the_object_is_sealed() -> None:
    store = SlowStore(1.0)
    async with deployment(store) as stores:
        streams = await stores.serve(settings())
        view = await create(streams)
        hold = CountedHold()
        received = bytearray(batch_of(b"a"))
        item = append_of(view, bytes(received))._replace(batch=memoryview(received), hold=hold)
        waiting = asyncio.ensure_future(streams.append([item, item._replace(partition=item.partition)], 0))

        await asyncio.sleep(0.5)
        count_while_put = hold.count
        received[:] = bytes(len(received))
        await waiting

        assert (hold.most, count_while_put) == (2, 0)
        assert values_of(await fetch(streams, view)) == [(0, b"a"), (1, b"a")]


# -- the end ---------------------------------------------------------------------------------------------------------


@virtual_time
async def test_draining_flushes_the_open_buffer_at_once() -> None:
    async with deployment(SlowStore()) as stores:
        streams = await stores.serve(settings(linger_ms=60_000, flush_when_idle=False))
        view = await create(streams)
        waiting = [submit(streams, view, batch_of(b"a")) for _ in range(3)]

        await streams.drain()

        assert [verdicts_of(done.result()) for done in waiting] == [["ACCEPTED"]] * 3
        assert asyncio.get_running_loop().time() < 0.3


@virtual_time
async def test_closing_reports_an_unknown_outcome_to_waiting_callers() -> None:
    async with deployment(SlowStore(100.0)) as stores:
        streams = await stores.serve(settings())
        view = await create(streams)
        waiting = [submit(streams, view, batch_of(b"a"))]
        await asyncio.sleep(0.1)
        waiting.append(submit(streams, view, batch_of(b"b")))

        await streams.close()

        assert [verdicts_of(await done) for done in waiting] == [["UNAVAILABLE"]] * 2


@virtual_time
async def test_nothing_is_flushed_after_closing() -> None:
    """The waiting batch must not be stored while the batch before it, whose write was cancelled, is not (I3)."""
    store = SlowStore(100.0)
    async with deployment(store) as stores:
        streams = await stores.serve(settings())
        view = await create(streams)
        head = await stores.metadata.log.head()
        waiting = [submit(streams, view, batch_of(b"a"))]
        await asyncio.sleep(0.1)
        waiting.append(submit(streams, view, batch_of(b"b")))

        await streams.close()
        await asyncio.sleep(1_000)

        assert [verdicts_of(await done) for done in waiting] == [["UNAVAILABLE"]] * 2
        assert len(store.sizes) == 1
        assert await stores.metadata.log.head() == head
        assert verdicts_of(await submit(streams, view, batch_of(b"c"))) == ["SERVER_FENCED"]


@virtual_time
async def test_a_server_that_is_fenced_during_its_drain_ends_the_drain() -> None:
    async with deployment(SlowStore()) as stores:
        streams = await stores.serve(settings(), metadata=failing(stores, Fenced("old")))
        view = await create(streams)
        waiting = [submit(streams, view, batch_of(b"a" * 100)) for _ in range(3)]

        await streams.drain()

        assert {tuple(verdicts_of(await done)) for done in waiting} == {("SERVER_FENCED",)}
        assert all(done.result()[0][0] == Verdict.SERVER_FENCED for done in waiting)
