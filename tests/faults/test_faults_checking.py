"""The checker of the fault tests finds each kind of fault."""

from pathlib import Path

import pytest

from faults.checking import Acknowledged, Counts, Name, Read, check, name_of
from faults.histories import KEEP


def read(offset: int, number: int, producer: str = "p", partition: int = 0, at_s: float = 0.0) -> Read:
    return Read(partition, offset, Name(producer, number), at_s)


def acknowledged(offset: int, number: int) -> Acknowledged:
    return Acknowledged(0, offset, Name("p", number), 0.0, 0.0)


def found(counts: Counts) -> tuple[int, int, int]:
    return counts.lost, counts.duplicated, counts.reordered


LOG = {0: [read(0, 0), read(1, 1), read(2, 0, "q"), read(3, 3)]}


def test_a_name_is_read_from_the_value_of_either_kind_of_producer() -> None:
    assert name_of(b"p1.17.3") == Name("p1", 17)
    assert name_of(b"1.17") == Name("1", 17)


def test_acknowledged_records_must_be_at_their_offset_and_unknown_ones_may_be_missing() -> None:
    counts = check([acknowledged(0, 0), acknowledged(1, 1)], [Name("p", 2), Name("p", 3)], LOG, {"r": LOG[0]})

    counts.assert_exact()
    assert (counts.stored, counts.unknown, counts.unknown_stored, counts.read) == (4, 2, 1, {"r": 4})


def test_an_acknowledged_record_that_is_elsewhere_or_nowhere_is_lost() -> None:
    counts = check([acknowledged(0, 1), acknowledged(9, 9)], [], LOG, {})

    assert found(counts) == (2, 0, 0)
    with pytest.raises(AssertionError, match="not where it was acknowledged"):
        counts.assert_exact()


def test_a_gap_in_the_offsets_is_a_loss() -> None:
    assert found(check([], [], {0: [read(0, 0), read(2, 1)]}, {})) == (1, 0, 0)


def test_a_record_at_two_offsets_is_duplicated_also_in_two_partitions() -> None:
    assert found(check([], [], {0: [read(0, 0), read(1, 0)]}, {})) == (0, 1, 0)
    assert found(check([], [], {0: [read(0, 0)], 1: [read(0, 0, partition=1)]}, {})) == (0, 1, 0)


def test_a_record_after_a_later_one_of_its_producer_is_reordered() -> None:
    assert found(check([], [], {0: [read(0, 1), read(1, 5, "q"), read(2, 0)]}, {})) == (0, 0, 1)


def test_a_reader_that_gets_a_record_twice_or_misses_one_is_noticed() -> None:
    twice = [read(0, 0), read(0, 0)]
    missed = [read(0, 0), read(2, 0, "q")]
    beyond = [*LOG[0], read(4, 4)]

    assert found(check([], [], LOG, {"r": twice})) == (0, 1, 0)
    assert found(check([], [], LOG, {"r": missed})) == (1, 0, 0)
    assert found(check([], [], LOG, {"r": beyond})) == (1, 0, 0)


def promises(counts: Counts) -> list[str]:
    """Which promises the history breaks."""
    return sorted({text.partition(" ")[0] for text in counts.broken})


def test_the_clients_observations_are_also_checked_as_a_history() -> None:
    good = check([acknowledged(0, 0), acknowledged(1, 1)], [Name("p", 3)], LOG, {"r": LOG[0]}, {"m": LOG[0][1:3]})

    assert good.broken == []
    assert promises(check([acknowledged(0, 1)], [], LOG, {})) == ["ONCE", "SENT", "STORED"]
    assert promises(check([], [], {0: [read(0, 0), read(1, 0)]}, {})) == ["ONCE"]
    assert promises(check([], [], LOG, {"r": [read(0, 0), read(2, 0, "q")]})) == ["DENSE"]
    assert promises(check([], [], LOG, {}, {"m": [read(3, 9)]})) == ["SAME"]


def test_a_record_that_is_stored_before_one_acknowledged_earlier_breaks_real_time_order_which_no_offset_shows() -> None:
    first = Acknowledged(0, 1, Name("p", 0), 1.0, 2.0)
    second = Acknowledged(0, 0, Name("q", 0), 3.0, 4.0)
    log = {0: [read(0, 0, "q", at_s=5.0), read(1, 0, at_s=5.0)]}
    counts = check([first, second], [], log, {})

    assert found(counts) == (0, 0, 0)
    assert promises(counts) == ["REAL_TIME"]
    with pytest.raises(AssertionError, match="REAL_TIME"):
        counts.assert_exact()
    guessed = check([first, second._replace(is_sent_told=False)], [], log, {})
    assert guessed.broken == []  # it may have been sent much earlier


def test_a_record_that_readers_got_and_the_log_has_lost_breaks_a_promise() -> None:
    counts = check([Acknowledged(0, 4, Name("p", 4), 0.0, 0.0)], [], LOG, {})

    assert "COMPLETE" in promises(counts)


def test_a_history_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEEP, str(tmp_path))
    check([acknowledged(0, 0)], [], {0: [read(0, 0)]}, {})

    assert [path.suffix for path in tmp_path.iterdir()] == [".jsonl"]
