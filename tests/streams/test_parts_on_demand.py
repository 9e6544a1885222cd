"""Parts of the stream service that are built at their first use: their tasks begin then, and a drained server builds only what refuses."""

import asyncio

from bearlake.late import Late
from bearlake.streams.on_demand import OnDemand


class Calls:
    """A part that notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def run(self) -> None:
        """Run until cancelled."""
        self.calls.append("run")
        await asyncio.Event().wait()

    def refuse(self) -> None:
        """Take no more work."""
        self.calls.append("refuse")

    async def drain(self) -> None:
        """Release everything."""
        self.calls.append("drain")

    async def close(self) -> None:
        """Stop."""
        self.calls.append("close")


def part() -> OnDemand[type[Calls], Calls]:
    """A part that was not built."""
    return OnDemand(Late(lambda: Calls), lambda made: made())


async def test_the_tasks_of_a_part_begin_when_it_is_built() -> None:
    demanded = part()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(demanded.run())
        await asyncio.sleep(0)
        built = await demanded.load()
        assert built.calls == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert built.calls == ["run"]
        running.cancel()


async def test_a_part_is_built_once() -> None:
    demanded = part()

    assert await demanded.load() is demanded.get() is demanded.get()


async def test_a_part_that_is_built_while_the_server_drains_takes_no_work() -> None:
    demanded = part()
    await demanded.drain()

    assert demanded.get().calls == ["refuse"]


async def test_a_part_that_was_built_is_drained_and_closed() -> None:
    demanded = part()
    built = demanded.get()
    await demanded.drain()
    await demanded.close()

    assert built.calls == ["drain", "close"]


async def test_a_part_that_was_not_built_is_not_built_at_the_end() -> None:
    def build(made: type[Calls]) -> Calls:
        raise AssertionError("built at the end")

    demanded = OnDemand(Late(lambda: Calls), build)
    await demanded.drain()
    await demanded.close()
