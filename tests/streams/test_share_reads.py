"""How much a dispatcher reads for a member of a share group, and how long it waits."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from bearlake.streams.fetched import Fetched, FetchRange
from bearlake.streams.service import Streams
from fixtures.deployment import append, batch_of
from fixtures.share_dispatch import FixedTerms, WatchedRecords, ask_of
from fixtures.subscriptions import lake
from simulator.loop import virtual_time


class Asked(WatchedRecords):
    """Notes the sizes and waits of all reads."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(streams)
        self.sizes: list[int] = []
        self.waits_ms: list[int] = []

    @override
    async def fetch(self, ranges: Sequence[FetchRange], **options: Any) -> list[Fetched]:
        self.sizes += [item.bytes_max for item in ranges]
        self.waits_ms.append(options["wait_ms"])
        return await super().fetch(ranges, **options)


@virtual_time
async def test_a_read_is_as_large_as_those_of_subscriptions_whatever_the_client_allows() -> None:
    made: list[Asked] = []

    def records_of(streams: Streams) -> Asked:
        made.append(Asked(streams))
        return made[-1]

    async with lake(read_bytes_max=5_000) as scene:
        streams, service = await scene.serve(share_terms=FixedTerms(), records_of=records_of)
        await append(streams, scene.view, batch_of(b"a"))

        await service.shares.acquire(ask_of(scene.partition, bytes_max=50 << 20))
        await service.shares.acquire(ask_of(scene.partition, bytes_max=10))

    assert made[0].sizes == [5_000, 10]


@virtual_time
async def test_a_wait_of_a_part_of_a_millisecond_is_rounded_up() -> None:
    made: list[Asked] = []

    def records_of(streams: Streams) -> Asked:
        made.append(Asked(streams))
        return made[-1]

    async with lake() as scene:
        _, service = await scene.serve(share_terms=FixedTerms(), records_of=records_of)

        (answer,) = await service.shares.acquire(ask_of(scene.partition, wait_ms=3))

    assert not answer.acquired
    assert made[0].waits_ms[0] in (3, 4)
    assert made[0].waits_ms[-1] == 0
    assert len(made[0].waits_ms) <= 3
