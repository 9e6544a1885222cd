"""Which small files are merged: tiers, and the files of a table after a day."""

import random

from bearlake.compaction.merging import SmallFile, choose
from bearlake.compaction.settings import MIB, MergeSettings

SETTINGS = MergeSettings()


def files(*sizes: int) -> list[SmallFile]:
    return [SmallFile(f"file-{at:06}", size, at, 1) for at, size in enumerate(sizes)]


def test_a_few_small_files_wait_for_more() -> None:
    assert choose(files(*[2 * MIB] * 7), SETTINGS) == []


def test_as_many_files_as_the_fan_in_are_merged_oldest_first() -> None:
    found = choose(files(*[2 * MIB] * 9), SETTINGS)

    assert [file.position for file in found] == list(range(9))


def test_large_files_are_left_alone() -> None:
    assert choose(files(*[70 * MIB] * 50), SETTINGS) == []


def test_a_merge_is_no_larger_than_the_target() -> None:
    found = choose(files(*[40 * MIB] * 8), SETTINGS)

    assert len(found) == 3
    assert sum(file.size for file in found) <= SETTINGS.file_bytes


def test_a_merge_includes_smaller_files() -> None:
    found = choose(files(3, *[16 * MIB] * 7, 200_000, 16 * MIB), SETTINGS)

    assert {file.size for file in found} >= {3, 200_000}


def a_day(bytes_per_s: float, task_s: float) -> tuple[list[int], float]:
    """Sizes of the files that a stream's table has after a day, and how often a byte was written again."""
    randomness = random.Random(1)
    table: dict[str, SmallFile] = {}
    written = rewritten = 0
    for number in range(int(86_400 / task_s)):
        size = int(bytes_per_s * task_s * randomness.uniform(0.5, 1.5))
        table[f"{number}"] = SmallFile(f"{number}", size, number, 1)
        written += size
        while inputs := choose(table.values(), SETTINGS):
            merged = sum(file.size for file in inputs)
            rewritten += merged
            for file in inputs:
                del table[file.key]
            table[f"m{inputs[0].key}"] = SmallFile(f"m{inputs[0].key}", merged, number, 1)
    return [file.size for file in table.values()], rewritten / written


def test_a_stream_at_a_megabyte_per_second_has_a_healthy_table_after_a_day() -> None:
    sizes, ratio = a_day(500_000, 3.5)  # half a megabyte of Parquet per second, a task when 3 of 10 s have passed

    assert 43e9 * 0.95 < sum(sizes) < 43e9 * 1.05
    assert len(sizes) < 1.5 * sum(sizes) / (SETTINGS.file_bytes / 2)
    assert len([size for size in sizes if size * 2 < SETTINGS.file_bytes]) < 3 * SETTINGS.fan_in
    assert ratio < 2.5


def test_a_slow_stream_has_a_few_dozen_files_after_a_day() -> None:
    sizes, ratio = a_day(500, 3.5)

    assert len(sizes) < 60
    assert ratio < 6
