"""Admission of batches, native and in Python: same values, same errors."""

from types import ModuleType
from typing import Any

import pytest

from bearlake.metadata.model import PartitionKey
from bearlake.streams.append import Append

STREAM = bytes(range(16))
RULES = (STREAM, 7 << 20, 4, 100, 1_000, 2_000, 0)


def entry(index: int = 0, **changes: Any) -> tuple[Any, ...]:
    fields = {
        "topic": "t", "index": index, "start": 10, "end": 20, "status": 0, "attributes": 4, "count": 3, "base": 1_000,
        "newest": 2_000, "producer_id": 5, "epoch": 1, "sequence": 9,
    }  # fmt: skip
    return tuple((fields | changes).values())


# -- admission -------------------------------------------------------------------------------------------------------


def test_plain_batches_become_appends(kernel: ModuleType) -> None:
    frame, hold, appends = memoryview(bytes(range(40))), object(), []

    at = kernel.admit_plain([entry(0), entry(3, start=20, end=25)], 0, frame, hold, RULES, appends)

    assert at == 2
    assert appends == [
        Append(PartitionKey(7 << 20), STREAM, frame[10:20], hold, 3, 2_000, 5, 1, 9, 0, -1, -1),
        Append(PartitionKey(7 << 20 | 3), STREAM, frame[20:25], hold, 3, 2_000, 5, 1, 9, 0, -1, -1),
    ]
    assert all(type(item) is Append and item.batch.obj is frame.obj for item in appends)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "other"}, {"topic": STREAM}, {"index": -1}, {"index": 4}, {"end": 111}, {"status": -6}, {"attributes": 8},
        {"attributes": 16}, {"attributes": -8}, {"base": 999}, {"newest": 2_001},
    ],
)  # fmt: skip
def test_the_first_batch_that_is_not_plain_ends_the_run(kernel: ModuleType, changes: dict[str, Any]) -> None:
    appends: list[Append] = []
    entries = [entry(0), entry(1), entry(**{"index": 2} | changes), entry(3)]

    at = kernel.admit_plain(entries, 1, memoryview(bytes(200)), None, RULES, appends)

    assert at == 2
    assert [item.partition & 0xFF for item in appends] == [1]


@pytest.mark.parametrize(("entries", "start"), [([], 0), ([entry()], 1), ([entry()], -1)])
def test_a_place_outside_of_the_entries_is_refused(kernel: ModuleType, entries: list[Any], start: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        kernel.admit_plain(entries, start, memoryview(bytes(40)), None, RULES, [])
