"""Real stores, real servers and real clients for the tests of faults, and what those tests counted at the end of the run.

`BEARLAKE_TEST_FAULTS_SECONDS` is how long load runs between two faults (3 in the continuous integration; 60 for a soak).
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.cluster import Stores
from fixtures import s3 as s3_fixture
from fixtures.postgresql import ABSENT, PostgresqlServer, execute, in_thread

COUNTS = "counts of faults"


@pytest.fixture(scope="session")
def load_s() -> float:
    """Seconds of load between two faults."""
    return float(os.environ.get("BEARLAKE_TEST_FAULTS_SECONDS", "3"))


@pytest.fixture(scope="session")
def _postgresql() -> Iterator[PostgresqlServer]:
    try:
        server = PostgresqlServer(fsync=True)
    except FileNotFoundError:
        pytest.skip(ABSENT)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgresql(_postgresql: PostgresqlServer) -> PostgresqlServer:
    """A running PostgreSQL with fsync on, for this folder's tests to stop and start."""
    if _postgresql.pid is None:
        _postgresql.start()
    return _postgresql


@pytest.fixture
def stores(postgresql: PostgresqlServer, s3_server: s3_fixture.S3Server, s3_bucket: str) -> Stores:
    """A fresh database and a fresh bucket."""
    database = s3_bucket.replace("-", "_")
    in_thread(execute(postgresql.url(), f"create database {database}"))
    return Stores(
        metadata_url=postgresql.url(database),
        object_store_url=f"s3://{s3_bucket}/bearlake",
        environment=s3_server.environment,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test's servers and clients keep settings and logs."""
    return tmp_path


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Report counts: printed at once and again at the end of the run."""

    def say(text: object) -> None:
        print(text)
        record_property(COUNTS, str(text))

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The counts of all tests, including passed ones."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    for report in reports:
        said = [value for name, value in getattr(report, "user_properties", []) if name == COUNTS]
        if said:
            terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}")
            for text in said:
                terminalreporter.write_line(f"    {text}")
