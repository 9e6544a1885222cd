"""The archive of Spark's classes for tests: recorded once, waited for by nobody, and not needed."""

import fcntl
from pathlib import Path

import pytest

from fixtures import spark_classes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive is."""
    found = tmp_path / "java-and-spark"
    monkeypatch.setattr(spark_classes, "_folder", lambda: found)
    return found


def test_an_archive_is_recorded_once_and_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Path] = []

    def record(place: Path) -> None:
        recorded.append(place)
        (place / spark_classes.ARCHIVE).touch()

    monkeypatch.setattr(spark_classes, "_record", record)

    options = [spark_classes.java_options() for _ in range(2)]

    assert recorded == [folder]
    assert all(f"-XX:SharedArchiveFile={folder / spark_classes.ARCHIVE}" in line for line in options)


def test_what_java_cannot_record_is_not_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Path] = []
    monkeypatch.setattr(spark_classes, "_record", tries.append)

    assert {spark_classes.java_options() for _ in range(2)} == {spark_classes.SHORT_LIVED}
    assert tries == [folder]


def test_nobody_waits_for_a_process_that_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_classes, "_record", lambda place: (place / spark_classes.ARCHIVE).touch())
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        meanwhile = spark_classes.java_options()

    assert meanwhile == spark_classes.SHORT_LIVED
    assert "SharedArchiveFile" in spark_classes.java_options()


def test_without_java_or_spark_there_is_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_classes, "_folder", lambda: None)

    assert spark_classes.java_options() == spark_classes.SHORT_LIVED
