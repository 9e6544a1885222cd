"""Many waiters of many partitions are called in turns of the event loop."""

import asyncio
from functools import partial
from itertools import pairwise

from bearlake.index.tail import UNKNOWN_BYTES, TailIndex
from bearlake.index.wakes import CALLS_AT_ONCE
from bearlake.metadata.model import Entry, EntryKind, PartitionBounds, PartitionKey, Slice

_PARTITIONS = [PartitionKey((1 << 20) + number) for number in range(10)]


def _commit(index: TailIndex, position: int, base: int) -> None:
    slices = [Slice(partition, base, 2, 0, 100, 0) for partition in _PARTITIONS]
    index.apply(Entry(position=position, kind=EntryKind.COMMIT, object_key="k", slices=slices))


class _Waiters:
    """`count` waiters in each partition."""

    def __init__(self, index: TailIndex, count: int) -> None:
        self.told: list[int] = []
        for partition in _PARTITIONS:
            tail = index.learn(partition, PartitionBounds(0, 0, 0), index.generation)
            assert tail is not None
            for _ in range(count):
                tail.waiters[partial(self.told.append)] = None


async def test_one_entry_calls_a_bounded_number_of_waiters_in_each_turn() -> None:
    index = TailIndex(1_000, lambda _: None)
    waiters = _Waiters(index, CALLS_AT_ONCE // 2)

    counts: list[int] = []
    _commit(index, 1, 0)
    _commit(index, 2, 2)
    while not counts or len(waiters.told) > counts[-1]:
        counts.append(len(waiters.told))
        await asyncio.sleep(0)

    assert counts[0] == CALLS_AT_ONCE
    assert max(after - before for before, after in pairwise(counts)) == CALLS_AT_ONCE
    assert waiters.told == [100] * (2 * len(_PARTITIONS) * (CALLS_AT_ONCE // 2))


async def test_a_reset_calls_a_bounded_number_of_waiters_in_each_turn() -> None:
    index = TailIndex(1_000, lambda _: None)
    waiters = _Waiters(index, CALLS_AT_ONCE // 2)

    index.reset(7)

    assert waiters.told == [UNKNOWN_BYTES] * CALLS_AT_ONCE
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(waiters.told) == len(_PARTITIONS) * (CALLS_AT_ONCE // 2)


async def test_few_waiters_are_called_at_once() -> None:
    index = TailIndex(1_000, lambda _: None)
    waiters = _Waiters(index, 3)

    _commit(index, 1, 0)

    assert waiters.told == [100] * 30
