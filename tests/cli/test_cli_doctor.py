"""`bearlake doctor`: what it finds in good and bad deployments, and that it changes nothing."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bearlake.cli.main import run
from bearlake.metadata.sqlite import migrate
from fixtures.s3 import S3Server
from fixtures.server_process import ServerProcess, finished, started

pytestmark = pytest.mark.integration


class Doctor:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *words: object, code: int) -> str:
        self._capsys.readouterr()
        assert run(["doctor", *map(str, words)]) == code
        return self._capsys.readouterr().out

    def findings(self, *words: object, code: int) -> dict[tuple[str, str], dict[str, Any]]:
        """The findings by area and subject."""
        document = json.loads(self.text(*words, "--json", code=code))
        assert document["is_healthy"] == (code == 0)
        return {
            (area["area"], finding["subject"]): finding for area in document["areas"] for finding in area["findings"]
        }


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(capsys)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    folder = tmp_path_factory.mktemp("doctor")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        yield process, folder / "data"


def test_a_running_deployment_is_healthy(server: tuple[ServerProcess, Path], doctor: Doctor) -> None:
    _, folder = server

    found = doctor.findings("--data-dir", folder, code=0)

    expected = {
        ("this machine", "Bearlake"),
        ("this machine", "disk space"),
        ("metadata store", "layout"),
        ("metadata store", "commit"),
        ("object store", "PUT"),
        ("object store", "GET"),
        ("object store", "conditional PUT"),
        ("object store", "LIST"),
        ("object store", "DELETE"),
        ("servers", "live servers"),
        ("servers", "versions"),
        ("compaction", "quarantined tasks"),
        ("compaction", "backlog"),
        ("compaction", "transactions"),
    }
    assert expected <= set(found)
    assert found["metadata store", "commit"]["figures"]["median_ms"] > 0
    assert [finding for finding in found.values() if finding["verdict"] == "failure"] == []
    assert any(area == "clocks" and subject.startswith("server ") for area, subject in found)


def test_it_leaves_nothing_behind(server: tuple[ServerProcess, Path], doctor: Doctor) -> None:
    _, folder = server

    doctor.text("--data-dir", folder, code=0)

    assert [path for path in (folder / "objects").rglob("*") if path.is_file() and "doctor" in path.parts] == []
    listed = finished("server", "list", "--json", environ={"BEARLAKE_ADMIN": server[0].admin})
    assert len(json.loads(listed.stdout)) == 1


def test_the_text_says_what_to_change(server: tuple[ServerProcess, Path], doctor: Doctor) -> None:
    _, folder = server
    mode = folder.stat().st_mode
    folder.chmod(0o755)
    try:
        shown = doctor.text("--data-dir", folder, "--problems", code=0)
    finally:
        folder.chmod(mode)

    assert "all users of this machine can read" in shown
    assert f"→ chmod o-rwx {folder}" in shown
    assert "warning" in shown.splitlines()[-1]
    assert "\x1b" not in shown


def test_a_folder_without_a_store_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--data-dir", str(tmp_path)]) == 2
    assert "there is no metadata store" in capsys.readouterr().err


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A data folder whose deployment has stopped."""
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        assert server.stop() == 0
    return tmp_path / "data"


def test_a_stopped_deployment_has_no_servers(stopped: Path, doctor: Doctor) -> None:
    found = doctor.findings("--data-dir", stopped, code=0)

    assert found["servers", "live servers"]["verdict"] == "warning"
    assert "bearlake up" in found["servers", "live servers"]["advice"]


def test_an_older_layout_is_reported_and_not_upgraded(stopped: Path, doctor: Doctor) -> None:
    with closing(sqlite3.connect(stopped / "metadata.db")) as connection, connection:
        connection.execute("update migrations set version = ?", (migrate.VERSION - 1,))

    found = doctor.findings("--data-dir", stopped, code=0)

    assert found["metadata store", "layout"]["verdict"] == "warning"
    assert found["metadata store", "commit"]["verdict"] == "skipped"
    with closing(sqlite3.connect(stopped / "metadata.db")) as connection:
        assert connection.execute("select max(version) from migrations").fetchone() == (migrate.VERSION - 1,)


def test_a_newer_layout_is_a_failure(stopped: Path, doctor: Doctor) -> None:
    with closing(sqlite3.connect(stopped / "metadata.db")) as connection, connection:
        connection.execute("update migrations set version = ?", (migrate.VERSION + 1,))

    found = doctor.findings("--data-dir", stopped, code=1)

    assert found["metadata store", "layout"]["verdict"] == "failure"


def test_a_damaged_store_is_a_failure_and_the_object_store_is_still_examined(stopped: Path, doctor: Doctor) -> None:
    (stopped / "metadata.db").write_bytes(b"no database" * 1_000)
    for suffix in ("-wal", "-shm"):
        (stopped / f"metadata.db{suffix}").unlink(missing_ok=True)

    found = doctor.findings("--data-dir", stopped, code=1)

    assert found["metadata store", "content"]["verdict"] == "failure"
    assert found["object store", "PUT"]["verdict"] == "ok"


def test_stores_that_do_not_answer_are_failures_with_advice(tmp_path: Path, doctor: Doctor) -> None:
    words = ["--metadata-url", "postgresql://u:secret@127.0.0.1:1/none", "--object-store-url", f"file://{tmp_path}"]

    shown = doctor.text(*words, code=1)
    found = doctor.findings(*words, code=1)

    assert "secret" not in shown
    assert found["metadata store", "answer"]["verdict"] == "failure"
    assert found["servers", "servers"]["verdict"] == "skipped"


def test_postgresql_is_examined_by_its_settings(postgresql_url: str, tmp_path: Path, doctor: Doctor) -> None:
    words = ["--metadata-url", postgresql_url, "--object-store-url", f"file://{tmp_path}"]

    empty = doctor.findings(*words, code=1)  # the test's server has fsync off
    assert empty["metadata store", "layout"]["verdict"] == "warning"
    assert empty["metadata store", "commit"]["verdict"] == "skipped"
    assert empty["metadata store", "fsync"]["verdict"] == "failure"
    assert empty["metadata store", "rights"]["verdict"] == "ok"
    assert run(["user", "list", *words]) == 0  # makes the tables
    full = doctor.findings(*words, code=1)

    assert full["metadata store", "layout"]["verdict"] == "ok"
    assert full["metadata store", "commit"]["figures"]["median_ms"] > 0
    assert full["metadata store", "synchronous standby"]["verdict"] == "warning"
    assert full["metadata store", "connections"]["figures"]["limit_count"] > 0
    assert abs(full["clocks", "metadata store"]["figures"]["difference_ms"]) < 60_000


def test_a_level_of_synchronous_commit_that_loses_records_is_a_failure(
    postgresql_url: str, tmp_path: Path, doctor: Doctor
) -> None:
    url = f"{postgresql_url}{'&' if '?' in postgresql_url else '?'}synchronous_commit=off"

    found = doctor.findings("--metadata-url", url, "--object-store-url", f"file://{tmp_path}", code=1)

    level = found["metadata store", "synchronous_commit"]
    assert (level["verdict"], "synchronous_commit = on" in level["advice"]) == ("failure", True)


def test_s3_is_examined(s3_server: S3Server, stopped: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = s3_server.make_bucket()

    found = doctor.findings("--data-dir", stopped, "--object-store-url", f"s3://{bucket}/prefix", code=0)

    assert found["object store", "conditional PUT"]["verdict"] in ("ok", "warning")  # a warning: it is slow
    assert ("clocks", "object store") in found


def test_a_missing_bucket_is_a_failure(
    s3_server: S3Server, stopped: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)

    found = doctor.findings("--data-dir", stopped, "--object-store-url", "s3://absent-bucket", code=1)

    assert found["object store", "answer"]["verdict"] == "failure"
    assert found["object store", "answer"]["advice"]
