"""Where Java is missing, `bearlake up` starts no compaction worker, says so once, and looks again for an hour; the doctor says it, too."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bearlake.app import worker
from bearlake.app.compaction_needs import lacking
from bearlake.app.doctor import machine
from bearlake.app.options import UpOptions
from bearlake.app.worker import WorkerProcess
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.metadata.inspection import Verdict
from bearlake.settings.document import Settings, load_document
from fixtures.server_process import finished


def options_for(folder: Path) -> UpOptions:
    return UpOptions(
        data_dir=folder,
        config=None,
        options={},
        ready_file=None,
        process_count=1,
        has_compactor=True,
        has_tour=False,
        exits_after_tour=False,
    )


def settings_of(url: str) -> Settings:
    return load_document(None, {}, {"metadata.url": (url, "test")}).settings


def java_saying(folder: Path, script: str) -> SparkSettings:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return SparkSettings(java_home=str(folder))


class Machine:
    """A machine on which Java appears after some looks; it remembers the pauses between them."""

    def __init__(self, missing: Sequence[str | None]) -> None:
        self._missing = list(missing)
        self.pauses_s: list[float] = []

    def look(self, settings: SparkSettings) -> str | None:
        return self._missing.pop(0) if len(self._missing) > 1 else self._missing[0]

    async def pause(self, seconds: float) -> None:
        self.pauses_s.append(seconds)


async def reached(is_there: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_there():  # noqa: ASYNC110 (the log tells no event)
            await asyncio.sleep(0)


async def test_a_worker_without_java_is_not_started_and_the_log_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def spawn(*_: object) -> None:
        raise AssertionError("a worker that cannot start is started")

    monkeypatch.setattr(worker, "spawn", spawn)
    without = Machine(["no Java"])
    own = WorkerProcess(settings_of("memory:///"), options_for(tmp_path), look=without.look, pause=without.pause)

    with caplog.at_level(logging.INFO, logger=worker.__name__):
        async with own:
            assert not await own.can_start()
            await reached(lambda: len(caplog.records) == 2)

    first, last = caplog.records
    assert (first.levelname, first.getMessage()) == (
        "ERROR",
        "compaction cannot start: streams work, but no table gets its files",
    )
    assert first.__dict__["missing"] == "no Java"
    assert last.getMessage() == "compaction stays off until the next start"
    assert without.pauses_s[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert len(without.pauses_s) == worker.LOOK_COUNT_MAX


async def test_a_worker_starts_when_java_has_been_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    forever = asyncio.Event()

    async def spawn(arguments: list[str], *_: object) -> None:
        started.append(arguments)
        await forever.wait()

    monkeypatch.setattr(worker, "spawn", spawn)
    later = Machine(["no Java", "no Java", None])
    own = WorkerProcess(settings_of("memory:///"), options_for(tmp_path), look=later.look, pause=later.pause)

    async with own:
        await reached(lambda: bool(started))

    assert started[0][:2] == ["serve", "compactor"]
    assert later.pauses_s == [1, 2]


def test_a_java_that_is_missing_does_not_run_or_is_too_old_is_named_with_a_cure(tmp_path: Path) -> None:
    absent = lacking(SparkSettings(java_home=str(tmp_path / "absent")))
    (tmp_path / "broken").mkdir()
    broken = lacking(java_saying(tmp_path / "broken", "exit 7"))
    (tmp_path / "old").mkdir()
    old = lacking(java_saying(tmp_path / "old", "echo 'openjdk version \"11.0.2\"' >&2"))
    (tmp_path / "silent").mkdir()
    silent = lacking(java_saying(tmp_path / "silent", "true"))

    assert absent is not None
    assert absent.startswith(
        f"there is no Java at {tmp_path}/absent/bin/java (No such file or directory): let JAVA_HOME"
    )
    assert broken is not None
    assert "does not run" in broken
    assert old is not None
    assert 'is openjdk version "11.0.2", and Spark 4.1 runs on Java 17 or 21' in old
    assert silent is not None
    assert "is of an unknown version" in silent


@pytest.mark.parametrize(
    ("url", "verdict"),
    [("sqlite:///absent/metadata.db", Verdict.WARNING), ("postgresql://db/lake", Verdict.SKIPPED)],
)
def test_the_doctor_says_that_a_machine_has_no_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, verdict: Verdict
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    (found,) = (finding for finding in machine.examine(settings_of(url)) if finding.subject == "compaction")

    assert found.verdict is verdict
    assert "there is no Java at" in found.detail + found.advice


@pytest.mark.integration
def test_the_tour_of_a_machine_without_java_leaves_compaction_out(tmp_path: Path) -> None:
    words = ("--kafka-port", "0", "--admin-port", "0", "--compaction", "--exit-after-tour")

    result = finished("up", "--data-dir", tmp_path / "data", *words, environ={"JAVA_HOME": str(tmp_path)})

    said = result.stderr.decode()
    assert result.returncode == 0, said
    assert "10,000 records" in result.stdout.decode()
    assert said.count("compaction cannot start: streams work, but no table gets its files") == 1
    assert "restarting" not in said
