"""Lines about faults that repeat: one per subject and interval."""

import logging

import pytest

from bearlake.telemetry import repeated
from bearlake.telemetry.repeated import RepeatedError

log = logging.getLogger("tests.repeated")


def test_a_subject_has_one_line_per_interval_with_the_number_of_those_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = iter([0.0, 1.0, 2.0, 59.0, 60.0, 61.0, 200.0])
    damage = RepeatedError(log, "damaged", lambda: next(times))
    for offset in range(7):
        damage.log("other" if offset == 2 else "file", offset=offset)

    found = [(line.offset, line.left_out_count, line.levelname) for line in caplog.records]  # type: ignore[attr-defined]
    assert found == [(0, 0, "ERROR"), (2, 0, "ERROR"), (4, 2, "ERROR"), (6, 1, "ERROR")]


def test_the_number_of_remembered_subjects_has_a_limit(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated, "SUBJECT_COUNT_MAX", 2)
    damage = RepeatedError(log, "damaged", lambda: 0.0)
    for subject in ("a", "b", "c", "c", "a"):
        damage.log(subject)

    assert len(caplog.records) == 4
