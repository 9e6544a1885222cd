"""Memory of lagging readers: reads of the object store are bounded, and small slices do not keep large objects in memory."""

import asyncio
from collections.abc import Sequence

from bearlake.cache.gate import ByteGate
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.streams.fetch import ReaderSettings
from bearlake.streams.fetched import FetchRange
from bearlake.streams.service import StreamsSettings
from fixtures.deployment import append, append_of, batch_of, create, deployment, values_of
from simulator.loop import virtual_time

OBJECT_COUNT = 20
PADDING = b"x" * 10_000


class WatchedStore(MemoryObjectStore):
    """Records the bytes that each read requested."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes: list[int] = []

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        self.read_bytes.append(sum(range_.end - range_.start for range_ in ranges))
        return await super().read(key, ranges)


@virtual_time
async def test_a_lagging_reader_gets_one_bounded_read_at_a_time() -> None:
    store = WatchedStore()
    async with deployment(store) as stores:
        writer = await stores.serve()
        view = await create(writer, partition_count=2)
        reader = await stores.serve(StreamsSettings(reader=ReaderSettings(load_bytes_max=30_000)))
        for at in range(OBJECT_COUNT):  # each object: a large slice of partition 0, a small one of partition 1
            await writer.append([append_of(view, batch_of(PADDING), 0), append_of(view, batch_of(b"%d" % at), 1)], 0)
        await reader.catalog.catch_up()
        offset, rounds, found = 0, 0, []
        while offset < OBJECT_COUNT:
            ranges = [FetchRange(view.partition(1), offset, 1 << 20)]
            (fetched,) = await reader.fetch(ranges, bytes_min=1 << 20, bytes_max=1 << 20, wait_ms=60_000)
            found += [value for _, value in values_of(fetched)]
            assert sum(store.read_bytes) <= 30_000
            assert all(view.nbytes < 1_000 and len(view.obj) < 1_000 for view in fetched.views)
            store.read_bytes.clear()
            offset, rounds = len(found), rounds + 1

        assert found == [b"%d" % at for at in range(OBJECT_COUNT)]
        assert rounds == OBJECT_COUNT / 2
        assert 60 <= asyncio.get_running_loop().time() < 61  # only the last fetch waited, since the log ends there


@virtual_time
async def test_an_object_larger_than_the_bound_is_read_anyway() -> None:
    async with deployment() as stores:
        writer = await stores.serve()
        view = await create(writer)
        reader = await stores.serve(StreamsSettings(reader=ReaderSettings(load_bytes_max=1)))
        await append(writer, view, batch_of(PADDING))

        ranges = [FetchRange(view.partition(0), 0, 1 << 20)]
        (fetched,) = await reader.fetch(ranges, bytes_min=1, bytes_max=1 << 20, wait_ms=0)

        assert values_of(fetched) == [(0, PADDING)]


async def test_a_gate_admits_bytes_up_to_its_bound_in_order_of_arrival() -> None:
    gate = ByteGate(10)
    seen: list[str] = []
    ends = {name: asyncio.Event() for name in ("six", "five", "one", "twenty")}

    async def hold(name: str, size: int) -> None:
        async with gate.hold(size):
            seen.append(name)
            await ends[name].wait()

    tasks = []
    for name, size in (("six", 6), ("five", 5), ("one", 1), ("twenty", 20)):
        tasks.append(asyncio.create_task(hold(name, size)))
        await asyncio.sleep(0)
    assert seen == ["six"]  # `one` would fit, but `five` was first

    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    await asyncio.sleep(0)
    assert seen == ["six", "one"]

    ends["six"].set()
    ends["one"].set()
    await asyncio.gather(tasks[0], tasks[2])
    await asyncio.sleep(0)
    assert seen == ["six", "one", "twenty"]
    assert gate.held_bytes == 20

    ends["twenty"].set()
    await tasks[3]
    assert gate.held_bytes == 0
