"""Retries, metering and fault injection, in virtual time."""

import asyncio
import gc
import random
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import AlreadyExists, Denied, NotFound, OutOfRange, Unavailable
from bearlake.objects import Buffer, ByteRange, ObjectInfo, ObjectStore
from bearlake.objects.fault_settings import InjectedFaults
from bearlake.objects.faulty import FaultSettings, FaultyObjectStore, Latency, faulty
from bearlake.objects.memory import MemoryObjectStore
from bearlake.objects.metered import MeteredObjectStore
from bearlake.objects.retrying import RetryingObjectStore, RetrySettings

RunVirtual = Callable[[Any], Any]


class CountingStore(MemoryObjectStore):
    """Records the times of put attempts, in seconds of the event loop."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.tried_s: list[float] = []

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        self.tried_s.append(asyncio.get_running_loop().time())
        await super().put(key, parts)


class Observations:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, float, int]] = []

    def observe(self, operation: str, outcome: str, seconds: float, size_bytes: int) -> None:
        self.seen.append((operation, outcome, round(seconds, 6), size_bytes))


def retrying(inner: ObjectStore, **settings: int) -> RetryingObjectStore:
    return RetryingObjectStore(inner, RetrySettings(**settings), random.Random(3))


async def test_a_lost_reply_then_a_retry_is_one_success(run_virtual: RunVirtual) -> None:
    inner = MemoryObjectStore()

    class LosesFirstReply(FaultyObjectStore):
        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            await self._inner.put(key, parts)
            raise Unavailable("lost")

    store = retrying(LosesFirstReply(inner, FaultSettings(), random.Random(1)), pause_first_ms=0)
    await store.put("wal/one", [b"content"])

    assert [found.key async for found in inner.list("")] == ["wal/one"]


class Claims(MemoryObjectStore):
    """Fails the first put, and then claims `claim_count` times that the object exists, as a gateway whose disk was full."""

    def __init__(self, claim_count: int, content: bytes | None = None) -> None:
        super().__init__()
        self._answers: list[Exception] = [Unavailable("no space"), *[AlreadyExists("claimed")] * claim_count]
        self._torn = content

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self._torn is not None:
            content, self._torn = self._torn, None
            await super().put(key, [content])
        if self._answers:
            raise self._answers.pop(0)
        await super().put(key, parts)


async def test_an_object_that_the_store_only_claims_to_have_is_not_stored() -> None:
    inner = Claims(claim_count=100)
    with pytest.raises(Unavailable, match="does not have it"):
        await retrying(inner, pause_first_ms=0).put("wal/one", [b"content"])
    assert [found.key async for found in inner.list("")] == []


async def test_a_put_goes_on_until_the_store_has_the_object() -> None:
    inner = Claims(claim_count=2)
    await retrying(inner, pause_first_ms=0).put("wal/one", [b"con", b"tent"])
    assert await inner.size("wal/one") == 7


async def test_an_object_of_another_size_is_not_mistaken_for_the_own_put() -> None:
    with pytest.raises(Unavailable, match="the store has 4 bytes"):
        await retrying(Claims(claim_count=100, content=b"torn"), pause_first_ms=0).put("wal/one", [b"content"])


async def test_a_taken_key_without_an_earlier_failure_stays_an_error() -> None:
    store = retrying(MemoryObjectStore())
    await store.put("wal/one", [b"content"])

    with pytest.raises(AlreadyExists):
        await store.put("wal/one", [b"content"])


@pytest.mark.parametrize("error", [NotFound("x"), Denied("x"), OutOfRange("x", start=0, end=1)])
async def test_only_unavailable_is_retried(error: Exception) -> None:
    class Fails(CountingStore):
        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            self.tried_s.append(0.0)
            raise error

    inner = Fails()
    with pytest.raises(type(error)):
        await retrying(inner).put("wal/one", [b"content"])

    assert len(inner.tried_s) == 1


def broken(inner: ObjectStore) -> FaultyObjectStore:
    return FaultyObjectStore(inner, FaultSettings(lost_reply_rate=1.0, torn_read_rate=1.0), random.Random(1))


def test_retries_are_bounded_and_pauses_grow_with_jitter(run_virtual: RunVirtual) -> None:
    class Fails(CountingStore):
        async def put(self, key: str, parts: Sequence[Buffer]) -> None:
            self.tried_s.append(asyncio.get_running_loop().time())
            raise Unavailable("always")

    inner = Fails()

    async def run() -> None:
        with pytest.raises(Unavailable, match="always"):
            await retrying(inner, attempt_count_max=8, pause_first_ms=100, pause_max_ms=1000).put("wal/one", [b"x"])

    run_virtual(run())
    pauses_ms = [(later - earlier) * 1000 for earlier, later in pairwise(inner.tried_s)]
    assert len(pauses_ms) == 7
    bounds_ms = [100, 200, 400, 800, 1000, 1000, 1000]
    assert all(0 < pause <= bound for pause, bound in zip(pauses_ms, bounds_ms, strict=True))
    assert len({round(pause) for pause in pauses_ms}) > 4


def test_the_total_deadline_ends_an_attempt_that_hangs(run_virtual: RunVirtual) -> None:
    slow = FaultyObjectStore(
        MemoryObjectStore(), FaultSettings(put_latency=Latency(median_ms=3_600_000)), random.Random(1)
    )

    async def run() -> float:
        with pytest.raises(Unavailable, match="2000 ms"):
            await retrying(slow, deadline_ms=2_000).put("wal/one", [b"x"])
        return asyncio.get_running_loop().time()

    assert run_virtual(run()) == pytest.approx(2.0)


def test_reads_sizes_and_deletions_are_retried_too(run_virtual: RunVirtual) -> None:
    inner = MemoryObjectStore()
    settings = FaultSettings(error_rate=0.3, lost_reply_rate=0.3, torn_read_rate=0.3)
    store = retrying(FaultyObjectStore(inner, settings, random.Random(5)), attempt_count_max=40, pause_first_ms=1)

    async def run() -> None:
        for at in range(50):
            await store.put(f"wal/{at:02d}", [b"content"])
            assert [bytes(view) for view in await store.read(f"wal/{at:02d}", [ByteRange(1, 4)])] == [b"ont"]
            assert await store.size(f"wal/{at:02d}") == 7
        assert [found.key async for found in store.list("wal/")] == [f"wal/{at:02d}" for at in range(50)]
        await store.delete([f"wal/{at:02d}" for at in range(50)])
        assert [found async for found in inner.list("")] == []

    run_virtual(run())


async def test_an_interrupted_listing_continues_after_its_last_object() -> None:
    class BreaksOff(MemoryObjectStore):
        asked_after: list[str] = []  # noqa: RUF012

        async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
            self.asked_after.append(after)
            count = 0
            async for found in super().list(prefix, after):
                if count == 2:
                    raise Unavailable("broken off")
                count += 1
                yield found

    inner = BreaksOff()
    for key in "abcde":
        await inner.put(key, [b"x"])
    found = [entry.key async for entry in retrying(inner, pause_first_ms=0, attempt_count_max=2).list("")]

    assert found == list("abcde")
    assert inner.asked_after == ["", "b", "d"]


async def test_every_call_is_observed_with_outcome_time_and_bytes(run_virtual: RunVirtual) -> None:
    observations = Observations()
    store = MeteredObjectStore(MemoryObjectStore(), observations)
    await store.put("wal/one", [b"con", b"tent"])
    with pytest.raises(AlreadyExists):
        await store.put("wal/one", [b"x"])
    await store.read("wal/one", [ByteRange(0, 3), ByteRange(0, 2)])
    with pytest.raises(OutOfRange):
        await store.read("wal/one", [ByteRange(0, 8)])
    await store.size("wal/one")
    _ = [found async for found in store.list("")]
    await store.delete(["wal/one"])
    with pytest.raises(NotFound):
        await store.size("wal/one")

    assert [(operation, outcome, size) for operation, outcome, _, size in observations.seen] == [
        ("put", "ok", 7),
        ("put", "already_exists", 0),
        ("read", "ok", 5),
        ("read", "out_of_range", 0),
        ("size", "ok", 0),
        ("list", "ok", 0),
        ("delete", "ok", 0),
        ("size", "not_found", 0),
    ]


def test_observed_time_is_that_of_the_event_loop_and_cancellation_is_an_outcome(run_virtual: RunVirtual) -> None:
    observations = Observations()
    slow = FaultyObjectStore(MemoryObjectStore(), FaultSettings(put_latency=Latency(median_ms=80)), random.Random(1))
    store = MeteredObjectStore(slow, observations)

    async def run() -> None:
        await store.put("wal/one", [b"x"])
        task = asyncio.create_task(store.put("wal/two", [b"x"]))
        await asyncio.sleep(0.03)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(run())
    assert observations.seen == [("put", "ok", 0.08, 1), ("put", "cancelled", 0.03, 0)]


def test_an_error_before_the_effect_stores_nothing_and_a_lost_reply_stores_all(run_virtual: RunVirtual) -> None:
    async def run(settings: FaultSettings) -> list[str]:
        inner = MemoryObjectStore()
        with pytest.raises(Unavailable):
            await FaultyObjectStore(inner, settings, random.Random(1)).put("wal/one", [b"x"])
        return [found.key async for found in inner.list("")]

    assert run_virtual(run(FaultSettings(error_rate=1.0))) == []
    assert run_virtual(run(FaultSettings(lost_reply_rate=1.0))) == ["wal/one"]


async def test_a_torn_read_is_unavailable() -> None:
    inner = MemoryObjectStore()
    await inner.put("wal/one", [b"content"])

    with pytest.raises(Unavailable):
        await broken(inner).read("wal/one", [ByteRange(0, 7)])


def test_a_stall_holds_calls_until_its_end_or_their_deadline(run_virtual: RunVirtual) -> None:
    store = FaultyObjectStore(MemoryObjectStore(), FaultSettings(stall_deadline_ms=1000), random.Random(1))

    async def run() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        store.stall(700)
        await store.put("wal/one", [b"x"])
        after_short_s = loop.time()
        store.stall(30_000)
        with pytest.raises(Unavailable):
            await store.size("wal/one")
        return after_short_s, loop.time()

    assert run_virtual(run()) == pytest.approx((0.7, 1.7))


async def test_a_retried_put_releases_its_buffers() -> None:
    class Content(bytearray):
        """One that can be watched."""

    attempts = FaultyObjectStore(MemoryObjectStore(), FaultSettings(error_rate=0.5), random.Random(1))
    store = RetryingObjectStore(attempts, RetrySettings(pause_first_ms=0, attempt_count_max=60), random.Random(1))
    alive = []
    gc.disable()
    try:
        for at in range(20):
            content = Content(b"x")
            alive.append(weakref.ref(content))
            await store.put(f"wal/{at}", [content])
            del content

        assert not any(content() for content in alive)
    finally:
        gc.enable()


def test_a_stall_lasts_as_long_as_its_file_exists(run_virtual: RunVirtual, tmp_path: Path) -> None:
    stall = tmp_path / "stall"
    faults = InjectedFaults(stall_file=str(stall), stall_deadline_ms=1000)
    store = faulty(MemoryObjectStore(), faults, random.Random(1))

    async def run() -> tuple[float, float, float]:
        loop = asyncio.get_running_loop()
        await store.put("wal/one", [b"x"])
        before_s = loop.time()
        stall.touch()
        with pytest.raises(Unavailable):
            await store.size("wal/one")
        given_up_s = loop.time()
        loop.call_later(0.5, stall.unlink)
        await store.size("wal/one")
        return before_s, given_up_s, loop.time()

    assert run_virtual(run()) == pytest.approx((0.0, 1.0, 1.5), abs=0.05)


def test_the_same_seed_gives_the_same_faults(run_virtual: RunVirtual) -> None:
    settings = FaultSettings(
        put_latency=Latency(median_ms=80, spread=0.5, max_ms=400), error_rate=0.3, stall_rate=0.05, stall_ms=500
    )

    async def run() -> list[tuple[str, float]]:
        store = FaultyObjectStore(MemoryObjectStore(), settings, random.Random(11))
        seen = []
        for at in range(100):
            try:
                await store.put(f"wal/{at}", [b"x"])
                seen.append(("ok", asyncio.get_running_loop().time()))
            except Unavailable:
                seen.append(("unavailable", asyncio.get_running_loop().time()))
        return seen

    first, second = run_virtual(run()), run_virtual(run())
    assert first == second
    assert {outcome for outcome, _ in first} == {"ok", "unavailable"}


def test_latency_has_the_median_and_the_bound_that_were_asked_for() -> None:
    randomness = random.Random(2)
    drawn_ms = sorted(Latency(median_ms=80, spread=0.5, max_ms=300).draw_s(randomness) * 1000 for _ in range(10_000))

    assert drawn_ms[5000] == pytest.approx(80, rel=0.05)
    assert drawn_ms[-1] == 300
