"""Which files are cleaned together, and when."""

from collections.abc import Sequence

from bearlake.compaction.key_compaction import CleaningPlan, cut, plan
from bearlake.compaction.settings import KeyCompactionSettings
from bearlake.metadata.model import LocatedSlice, ObjectKind, PartitionBounds, Slice
from bearlake.streams.key_compaction_rules import key_compaction_rules
from fixtures.compaction_items import key_of

FOLDER = "table/streams/orders-00000000/data/"
Piece = tuple[int, int, int]
"""Partition index, start and end of a segment."""


def file(name: str, *pieces: Piece, size: int = 100, timestamp: int = 0) -> list[LocatedSlice]:
    """A data file's segments; a name with `-c` is that of a clean file."""
    key = f"{FOLDER}0000000000000001-1-{name}-00.parquet"
    return [
        LocatedSlice(Slice(key_of(index), start, end - start, 0, 10, timestamp), key, size, ObjectKind.PARQUET)
        for index, start, end in pieces
    ]


def kept(index: int, start: int, end: int) -> list[LocatedSlice]:
    """A kept object."""
    return [LocatedSlice(Slice(key_of(index), start, end - start, 0, 10, 0), f"kept/{start}", 10)]


def planned(
    *files: Sequence[LocatedSlice], now_ms: int = 1_000, taken: str = "", last_stable: int = 1_000, **given: object
) -> CleaningPlan:
    """The plan of these files; configs with __ for the dots, settings by their names."""
    configs = {name.replace("__", "."): str(value) for name, value in given.items() if "__" in name}
    settings = {name: value for name, value in given.items() if "__" not in name}
    rules = key_compaction_rules({"cleanup.policy": "compact", **configs})
    assert rules is not None
    located = sorted((found for pieces in files for found in pieces), key=lambda found: found.slice[:2])
    return plan(
        located,
        {found.slice.partition: PartitionBounds(0, 1_000, last_stable) for found in located},
        rules,
        KeyCompactionSettings(**settings),  # type: ignore[arg-type]
        now_ms=now_ms,
        may_take=lambda key: not taken or taken not in key,
    )


def names(found: CleaningPlan) -> list[str]:
    return sorted(reference.key.split("-1-")[1].removesuffix("-00.parquet") for reference in found.inputs)


def is_due(found: CleaningPlan, now_ms: int = 1_000, **configs: object) -> bool:
    given = {name.replace("__", "."): str(value) for name, value in configs.items()}
    rules = key_compaction_rules({"cleanup.policy": "compact", **given})
    assert rules is not None
    return found.is_due(rules, now_ms)


def test_all_files_are_cleaned_together() -> None:
    found = planned(file("a", (0, 0, 10), (1, 0, 5)), file("b", (0, 10, 20)))

    assert names(found) == ["a", "b"]
    assert found.bounds == {key_of(0): 20, key_of(1): 5}


def test_a_file_of_another_task_bounds_its_partitions_and_what_lies_above() -> None:
    found = planned(
        file("a", (0, 0, 10), (1, 0, 5)), file("b", (0, 10, 20)), file("d", (0, 20, 30), (1, 5, 9)), taken="-1-b-"
    )

    assert names(found) == ["a"]
    assert found.bounds == {key_of(0): 10, key_of(1): 5}


def test_a_young_record_bounds_its_partition_but_not_others() -> None:
    files = file("a", (0, 0, 10)), file("b", (0, 10, 20), timestamp=950), file("d", (1, 0, 5))

    assert names(planned(*files, min__compaction__lag__ms=100)) == ["a", "d"]
    assert names(planned(*files, min__compaction__lag__ms=50)) == ["a", "b", "d"]


def test_a_record_whose_clock_is_ahead_is_not_too_young_if_there_is_no_lag() -> None:
    """Kafka compares times only if `min.compaction.lag.ms` is above 0 (`LogCleanerManager.cleanableOffsets`)."""
    files = file("a", (0, 0, 10)), file("b", (0, 10, 20), timestamp=2**62)

    assert names(planned(*files)) == ["a", "b"]
    assert names(planned(*files, min__compaction__lag__ms=1)) == ["a"]


def test_a_clean_file_is_never_too_young() -> None:
    found = planned(file("c0", (0, 0, 10), timestamp=990), file("b", (0, 10, 20)), min__compaction__lag__ms=100)

    assert names(found) == ["b", "c0"]


def test_nothing_above_the_last_stable_offset_is_cleaned() -> None:
    assert names(planned(file("a", (0, 0, 10)), file("b", (0, 10, 20)), last_stable=19)) == ["a"]


def test_kept_objects_bound_nothing() -> None:
    found = planned(file("a", (0, 0, 10)), kept(0, 10, 11), file("b", (0, 11, 20)))

    assert names(found) == ["a", "b"]
    assert [located.object_key for located in found.kept] == ["kept/10"]


def test_only_dirty_files_and_what_lies_above_them_are_compared_with_others() -> None:
    found = planned(file("c0", (0, 0, 10)), file("b", (0, 10, 20)), file("c1", (0, 20, 30)))

    assert [reference.key.split("-1-")[1][:2] for reference in found.dirty] == ["b-", "c1"]


def test_a_stream_is_due_by_its_dirty_ratio() -> None:
    clean, dirty = file("c0", (0, 0, 10), size=300), file("b", (0, 10, 20), size=100)

    assert not is_due(planned(clean, dirty))
    assert is_due(planned(clean, dirty), min__cleanable__dirty__ratio=0.2)
    assert is_due(planned(clean, dirty, file("d", (0, 20, 30), size=201)))
    assert not is_due(planned(clean), min__cleanable__dirty__ratio=0)


def test_a_stream_is_due_by_the_age_of_its_oldest_dirty_record() -> None:
    files = file("c0", (0, 0, 10), size=300), file("b", (0, 10, 20), timestamp=500)

    assert not is_due(planned(*files), max__compaction__lag__ms=501)
    assert is_due(planned(*files), max__compaction__lag__ms=500)


def test_a_plan_within_the_limits_takes_clean_files_before_the_oldest_dirty_ones() -> None:
    files = [file("c0", (0, 0, 10)), *(file(f"d{at}", (0, 10 * at, 10 * at + 10)) for at in range(1, 5))]

    assert names(planned(*files, input_count_max=3)) == ["c0", "d1", "d2"]
    assert names(planned(*files, input_bytes_max=250)) == ["c0", "d1"]
    assert planned(*files, input_bytes_max=250).is_too_large
    assert not planned(*files).is_too_large


def test_items_have_at_least_one_file_and_at_most_their_bytes() -> None:
    found = planned(*(file(f"d{at}", (0, 10 * at, 10 * at + 10)) for at in range(5)))

    assert [len(group) for group in cut(found, 250)] == [2, 2, 1]
    assert [len(group) for group in cut(found, 1)] == [1] * 5
