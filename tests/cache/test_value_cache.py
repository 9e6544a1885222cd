"""The cache of decoded values: one load per value at a time, a bound, and no cached failures."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from bearlake.cache.values import ValueCache
from bearlake.errors import Unavailable
from simulator.loop import virtual_time


class Loads:
    """Makes loads that take a second, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.under_way = 0
        self.most_under_way = 0
        self.is_broken = False

    def of(self, value: str) -> Callable[[], Coroutine[None, None, str]]:
        async def load() -> str:
            self.count += 1
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            try:
                await asyncio.sleep(1)
            finally:
                self.under_way -= 1
            if self.is_broken:
                raise Unavailable("broken")
            return value

        return load


def cache(
    bytes_max: int = 10, loading_bytes_max: int = 100, ahead_bytes_max: int | None = None
) -> ValueCache[str, str]:
    return ValueCache(
        bytes_max=bytes_max, loading_bytes_max=loading_bytes_max, ahead_bytes_max=ahead_bytes_max, size_of=len
    )


@virtual_time
async def test_many_readers_of_one_value_wait_for_one_load() -> None:
    values, loads = cache(), Loads()

    found = await asyncio.gather(*(values.get("a", 1, loads.of("aaa")) for _ in range(20)))

    assert found == ["aaa"] * 20
    assert (loads.count, values.peek("a"), values.size_bytes) == (1, "aaa", 3)


@virtual_time
async def test_values_used_least_recently_go_first_and_the_bound_holds() -> None:
    values, loads = cache(), Loads()
    for name in "abc":
        await values.get(name, 1, loads.of(name * 3))
    values.peek("a")

    await values.get("d", 1, loads.of("dddd"))

    assert [name for name in "abcd" if values.knows(name)] == ["a", "c", "d"]
    assert values.size_bytes == 10


@virtual_time
async def test_a_value_larger_than_the_bound_is_kept_alone() -> None:
    values, loads = cache(), Loads()
    await values.get("a", 1, loads.of("a"))

    await values.get("b", 1, loads.of("b" * 50))

    assert (values.knows("a"), values.peek("b"), values.size_bytes) == (False, "b" * 50, 50)


@virtual_time
async def test_loads_wait_for_room() -> None:
    values, loads = cache(bytes_max=1_000, loading_bytes_max=100), Loads()

    await asyncio.gather(*(values.get(str(number), 40, loads.of("x")) for number in range(10)))

    assert loads.most_under_way == 2
    assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.1)


@virtual_time
async def test_a_failure_reaches_all_waiting_readers_and_is_not_cached() -> None:
    values, loads = cache(), Loads()
    loads.is_broken = True
    failed = await asyncio.gather(*(values.get("a", 1, loads.of("a")) for _ in range(3)), return_exceptions=True)
    loads.is_broken = False

    assert [type(error) for error in failed] == [Unavailable] * 3
    assert await values.get("a", 1, loads.of("a")) == "a"


@virtual_time
async def test_a_reader_that_gives_up_does_not_stop_the_load() -> None:
    values, loads = cache(), Loads()
    reader = asyncio.create_task(values.get("a", 1, loads.of("a")))
    await asyncio.sleep(0.5)
    reader.cancel()
    await asyncio.sleep(1)

    assert values.peek("a") == "a"


@virtual_time
async def test_reading_ahead_loads_once_and_yields_to_waiting_readers() -> None:
    values, loads = cache(loading_bytes_max=10), Loads()
    values.read_ahead("a", 10, loads.of("a"))
    values.read_ahead("a", 10, loads.of("a"))
    waiting = asyncio.create_task(values.get("b", 10, loads.of("b")))
    await asyncio.sleep(0.1)
    values.read_ahead("c", 10, loads.of("c"))
    await waiting

    assert (loads.count, values.knows("a"), values.knows("c")) == (2, True, False)


@virtual_time
async def test_what_is_read_ahead_is_bounded_until_readers_use_it() -> None:
    values, loads = cache(bytes_max=100, ahead_bytes_max=10), Loads()
    for name in "abc":
        values.read_ahead(name, 1, loads.of(name * 5), size_bytes=5)
    assert ([name for name in "abc" if values.knows(name)], values.ahead_bytes) == (["a", "b"], 10)
    await asyncio.sleep(2)

    values.read_ahead("c", 1, loads.of("c" * 5), size_bytes=5)
    assert not values.knows("c")
    values.peek("a")
    values.read_ahead("c", 1, loads.of("c" * 5), size_bytes=5)
    assert (values.knows("c"), values.ahead_bytes) == (True, 10)
    await values.get("c", 1, loads.of("unused"))
    await values.get("b", 1, loads.of("unused"))

    assert (values.ahead_bytes, loads.count) == (0, 3)


@virtual_time
async def test_one_value_larger_than_the_bound_may_be_read_ahead() -> None:
    values, loads = cache(bytes_max=100, ahead_bytes_max=10), Loads()

    values.read_ahead("a", 1, loads.of("a" * 50), size_bytes=50)
    values.read_ahead("b", 1, loads.of("b"), size_bytes=1)

    assert [name for name in "ab" if values.knows(name)] == ["a"]


@virtual_time
async def test_values_that_were_read_ahead_stop_to_count_when_they_are_evicted_or_their_load_fails() -> None:
    values, loads = cache(bytes_max=10, ahead_bytes_max=10), Loads()
    values.read_ahead("a", 1, loads.of("a" * 5), size_bytes=5)
    await asyncio.sleep(2)
    await values.get("big", 1, loads.of("b" * 10))
    assert (values.knows("a"), values.ahead_bytes) == (False, 0)

    loads.is_broken = True
    values.read_ahead("c", 1, loads.of("c" * 5), size_bytes=5)
    assert values.ahead_bytes == 5
    await asyncio.sleep(2)

    assert values.ahead_bytes == 0


@virtual_time
async def test_closing_cancels_loads_and_drops_values() -> None:
    values, loads = cache(), Loads()
    await values.get("a", 1, loads.of("a"))
    waiting = asyncio.create_task(values.get("b", 1, loads.of("b")))
    await asyncio.sleep(0.1)

    await values.close()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (values.size_bytes, values.knows("a"), values.knows("b")) == (0, False, False)


@virtual_time
async def test_a_value_that_was_read_to_its_end_is_evicted_before_values_that_wait_to_be_read() -> None:
    values, loads = cache(), Loads()
    for name in "abc":
        await values.get(name, 1, loads.of(name * 3))

    values.done_with("c")
    values.done_with("absent")
    await values.get("d", 1, loads.of("ddd"))

    assert [values.knows(name) for name in "abcd"] == [True, True, False, True]


@virtual_time
async def test_reading_ahead_begins_no_load_that_would_wait_for_room() -> None:
    values, loads = cache(loading_bytes_max=10), Loads()

    begun = [values.read_ahead(name, 4, loads.of(name)) for name in "abcc"]
    await values.get("d", 2, loads.of("d"))

    assert begun == [True, True, False, False]
    assert (loads.count, loads.most_under_way) == (3, 3)


@virtual_time
async def test_a_load_that_is_given_up_is_cancelled_unless_a_reader_waits_for_it() -> None:
    values, loads = cache(), Loads()
    for name in "ab":
        values.read_ahead(name, 1, loads.of(name), size_bytes=1)
    waiting = asyncio.create_task(values.get("a", 1, loads.of("unused")))
    await asyncio.sleep(0.1)

    for name in "abc":
        values.forget_ahead(name)
    again = asyncio.create_task(values.get("b", 1, loads.of("new")))
    await asyncio.sleep(0.1)

    assert (await waiting, await again) == ("a", "new")
    assert (values.ahead_bytes, loads.count, loads.under_way) == (0, 3, 0)


@virtual_time
async def test_a_value_that_is_given_up_is_the_next_to_evict() -> None:
    values, loads = cache(), Loads()
    await values.get("a", 1, loads.of("aaa"))
    values.read_ahead("b", 1, loads.of("bbb"), size_bytes=3)
    await asyncio.sleep(2)

    values.forget_ahead("b")
    await values.get("c", 1, loads.of("cccccc"))

    assert [values.knows(name) for name in "abc"] == [True, False, True]
    assert values.ahead_bytes == 0


@virtual_time
async def test_closing_waits_for_loads_that_were_given_up() -> None:
    values, loads = cache(), Loads()
    values.read_ahead("a", 1, loads.of("a"))
    await asyncio.sleep(0.1)
    values.forget_ahead("a")

    await values.close()

    assert loads.under_way == 0


@virtual_time
async def test_closing_lets_a_load_that_was_given_up_end_in_its_own_time() -> None:
    values, ended = cache(), asyncio.Event()

    async def load() -> str:
        try:
            await asyncio.sleep(1)
        finally:
            await asyncio.sleep(1)  # as long as a thread decodes
            ended.set()
        return "a"

    values.read_ahead("a", 1, load)
    await asyncio.sleep(0.1)
    values.forget_ahead("a")
    await asyncio.sleep(0.1)

    await values.close()

    assert ended.is_set()
