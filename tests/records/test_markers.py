"""Transaction markers: golden bytes, keys, and an object store that has them without storing them (decision 130)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake import kernel
from bearlake.errors import Invalid, NotFound, OutOfRange
from bearlake.objects import ByteRange
from bearlake.objects.markers import MarkerObjectStore
from bearlake.objects.memory import MemoryObjectStore
from bearlake.records.batch import is_control, is_transactional
from bearlake.records.markers import MARKER_BYTES, Markers, parse

FOUND = Markers(5, 3, 9, True, 1_700_000_000_000, 4)
KEY = "markers/5-3-9-commit-1700000000000-4"

BODY = "0030000000000000018bcfe568000000018bcfe5680000000000000000050003ffffffff00000001"
"""Attributes to record count of a marker, as org.apache.kafka.common.record.MemoryRecords.withEndTransactionMarker writes them."""


def test_a_marker_is_a_control_batch_with_one_record() -> None:
    batch = FOUND.batch()
    ((position, base, header),) = kernel.batches(batch, 0, len(batch))

    assert (position, base, header.length) == (0, 0, MARKER_BYTES)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, -1)
    assert is_control(header.attributes)
    assert is_transactional(header.attributes)
    assert batch[21:61].hex() == BODY
    assert (
        batch[61:].hex() == "2000000008000000010c00000000000000"
    )  # key: version 0, type 1 (commit); value: version 0, epoch 0
    assert Markers(*FOUND[:3], False, *FOUND[4:]).batch()[61:].hex() == "2000000008000000000c00000000000000"


@given(
    st.integers(0, 2**63 - 1), st.integers(0, 32_767), st.integers(1, 2**40), st.booleans(), st.integers(0, 2**50),
    st.integers(1, 10_000),
)  # fmt: skip
def test_a_key_says_everything(
    producer_id: int, epoch: int, number: int, is_commit: bool, time_ms: int, count: int
) -> None:
    found = Markers(producer_id, epoch, number, is_commit, time_ms, count)

    assert parse(found.key()) == found


@pytest.mark.parametrize("key", ["markers/", "markers/1-2-3-commit-4", f"{KEY}x", f"x{KEY}", "wal/2023"])
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(Invalid):
        parse(key)


async def test_an_object_of_markers_is_read_without_being_stored() -> None:
    store = MarkerObjectStore(MemoryObjectStore())
    whole = FOUND.batch() * 4
    ranges = [(0, len(whole)), (78, 156), (100, 200), (312, 312), (0, 1)]
    views = await store.read(KEY, [ByteRange(*item) for item in ranges])
    await store.delete([KEY])

    assert [bytes(view) for view in views] == [whole[start:end] for start, end in ranges]
    assert not any(view.readonly for view in views)
    assert await store.size(KEY) == len(whole) == FOUND.size
    assert [info async for info in store.list("")] == []


async def test_reads_outside_of_markers_fail_as_those_of_other_objects() -> None:
    store = MarkerObjectStore(MemoryObjectStore())
    with pytest.raises(OutOfRange):
        await store.read(KEY, [ByteRange(0, FOUND.size + 1)])
    with pytest.raises(NotFound):
        await store.read("markers/x", [ByteRange(0, 1)])
    with pytest.raises(Invalid):
        await store.put(KEY, [b""])
