"""What a cleaning leaves of a log: compared with an oracle that knows every record and Kafka's rules."""

import random

import pytest

from bearlake.compaction.cleaned_files import is_cleaned
from fixtures.cleaned_log import TIME_MS, CleanedLog, Sent, some_batches


@pytest.mark.parametrize("seed", range(12))
async def test_a_cleaned_log_has_the_newest_record_of_each_key_at_its_offset(seed: int) -> None:
    randomness = random.Random(seed)
    log = CleanedLog(
        configs={"delete.retention.ms": str(randomness.choice([0, 50, 1_000]))},
        file_bytes_max=randomness.choice([2_000, 60_000]),
        limits={"key_bytes": randomness.choice([1, 3_000, 1 << 20]), "merge_bytes": randomness.choice([1, 20_000])},
    )
    partition_count, key_count = randomness.choice([1, 3, 20]), randomness.choice([1, 5, 300])
    now_ms = TIME_MS
    for _ in range(6):
        for _ in range(randomness.randrange(1, 4)):
            now_ms += 10
            batches = {index: some_batches(randomness, key_count, now_ms) for index in range(partition_count)}
            if any(batches.values()):
                await log.produce({index: groups for index, groups in batches.items() if groups})
        now_ms += 40

        await log.clean(now_ms, randomness.choice([1, 4_000, 1 << 30]))

        assert await log.served() == log.sent


async def test_a_tombstone_stays_for_delete_retention_after_its_first_cleaning() -> None:
    log = CleanedLog(configs={"delete.retention.ms": "1600"})
    await log.produce({0: [[Sent(b"a", b"1", TIME_MS), Sent(b"a", None, TIME_MS), Sent(b"b", b"2", TIME_MS)]]})

    await log.clean(TIME_MS + 1_000)
    assert sorted(await log.served()) == [(0, 1), (0, 2)]
    await log.produce({0: [[Sent(b"b", b"3", TIME_MS)]]})
    await log.clean(TIME_MS + 2_500)
    assert sorted(await log.served()) == [(0, 1), (0, 3)]
    await log.produce({0: [[Sent(b"b", b"4", TIME_MS)]]})
    await log.clean(TIME_MS + 2_600)

    assert sorted(await log.served()) == [(0, 4)]


async def test_offsets_above_the_last_stable_offset_are_neither_removed_nor_supersede() -> None:
    log = CleanedLog()
    await log.produce({0: [[Sent(b"a", b"1", TIME_MS)], [Sent(b"b", b"1", TIME_MS), Sent(b"b", b"2", TIME_MS)]]})
    await log.produce({0: [[Sent(b"a", b"2", TIME_MS), Sent(b"b", b"3", TIME_MS)]]})
    log.last_stable[0] = 4

    found = await log.clean(TIME_MS)

    assert sorted(await log.served()) == [(0, 0), (0, 2), (0, 3), (0, 4)]
    assert list(found.bounds.values()) == [3]


async def test_records_younger_than_the_lag_are_neither_removed_nor_supersede() -> None:
    log = CleanedLog(configs={"min.compaction.lag.ms": "1000"})
    await log.produce({0: [[Sent(b"a", b"1", TIME_MS), Sent(b"a", b"2", TIME_MS)]]})
    await log.produce({0: [[Sent(b"a", b"3", TIME_MS + 500), Sent(b"a", b"4", TIME_MS + 500)]]})

    await log.clean(TIME_MS + 999)
    assert len(await log.served()) == 4
    await log.clean(TIME_MS + 1_000)
    assert sorted(await log.served()) == [(0, 1), (0, 2), (0, 3)]
    await log.clean(TIME_MS + 1_500)

    assert sorted(await log.served()) == [(0, 3)]


async def test_a_record_without_a_key_goes() -> None:
    log = CleanedLog()
    await log.produce({0: [[Sent(None, b"1", TIME_MS), Sent(b"a", b"2", TIME_MS), Sent(None, None, TIME_MS)]]})

    await log.clean(TIME_MS)

    assert sorted(await log.served()) == [(0, 1)]


async def test_equal_keys_of_different_partitions_do_not_supersede_each_other() -> None:
    log = CleanedLog()
    await log.produce({0: [[Sent(b"a", b"1", TIME_MS)]], 1: [[Sent(b"a", b"2", TIME_MS)]]})

    await log.clean(TIME_MS)

    assert sorted(await log.served()) == [(0, 0), (1, 0)]


async def test_a_large_clean_file_without_superseded_records_stays_as_it_is() -> None:
    log = CleanedLog(file_bytes_max=2_000)
    randomness = random.Random(1)
    await log.produce({0: [[Sent(b"k%d" % at, randomness.randbytes(100), TIME_MS) for at in range(15)]]})
    await log.clean(TIME_MS)
    (before,) = {located.object_key for located in log.index}
    await log.produce({0: [[Sent(b"new", b"1", TIME_MS)]]})

    await log.clean(TIME_MS)

    assert before in {located.object_key for located in log.index}
    assert all(is_cleaned(located.object_key) for located in log.index)
    assert await log.served() == log.sent


async def test_a_partition_of_which_nothing_is_left_keeps_its_offsets() -> None:
    log = CleanedLog(configs={"delete.retention.ms": "0"})
    await log.produce({0: [[Sent(b"a", None, TIME_MS)]], 1: [[Sent(b"b", b"1", TIME_MS)]]})
    await log.clean(TIME_MS)
    await log.produce({1: [[Sent(b"c", b"2", TIME_MS)]]})

    await log.clean(TIME_MS + 1)

    assert sorted(await log.served()) == [(1, 0), (1, 1)]
    assert [located.slice.position for located in log.index] == [-1, 0]
