"""The scale benchmarks, each for a second."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest
from bench.bearlake_server import COMMAND
from bench.errors import BenchError

from bench import metadata_scale, open_transactions, scale_connections, scale_servers, scale_stores
from fixtures.postgresql import ABSENT, find_program

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="the load generator needs gcc")


@needs_gcc
def test_connections_are_measured_busy_idle_and_both(bench_folder: Path) -> None:
    rows = scale_connections.measure(
        bench_folder, command=COMMAND, idle_count=30, busy_counts=[2], requests_per_s=100, seconds=0.5, idle_watch_s=0.1
    )

    assert [(row.idle, row.busy) for row in rows] == [(0, 2), (30, 0), (30, 2)]
    assert all(row.run is None or row.run.requests > 0 for row in rows)
    assert len(scale_connections.table(rows).splitlines()) == 5


def test_more_connections_than_open_files_are_refused() -> None:
    with pytest.raises(BenchError, match="open files"):
        scale_connections.require_files(1 << 40)


def test_open_transactions_are_opened_and_counted(bench_folder: Path) -> None:
    cost = open_transactions.measure(bench_folder, ids=100)

    assert cost.ids == 100
    assert cost.cpu_us > 0


@needs_gcc
@pytest.mark.skipif(find_program("initdb") is None, reason=ABSENT)
def test_servers_on_one_postgresql_share_the_commits(bench_folder: Path) -> None:
    rows, failure = scale_servers.measure(
        bench_folder,
        command=COMMAND,
        server_counts=[1, 2],
        requests_per_s=20,
        seconds=0.5,
        postgresql_connections=100,
        idle_watch_s=0.1,
    )

    assert failure is None
    assert [row.server_count for row in rows] == [1, 2]
    assert all(row.commits > 0 and row.session_count > 0 for row in rows)
    assert "servers" in scale_servers.sessions_text(rows)


@needs_gcc
@pytest.mark.skipif(find_program("initdb") is None, reason=ABSENT)
def test_servers_that_do_not_start_end_the_measurement_with_the_steps_before(bench_folder: Path) -> None:
    rows, failure = scale_servers.measure(
        bench_folder,
        command=bench_folder / "absent",
        server_counts=[1],
        requests_per_s=20,
        seconds=0.5,
        postgresql_connections=100,
    )

    assert rows == []
    assert failure is not None
    assert "absent" in failure


@needs_gcc
@pytest.mark.skipif(find_program("initdb") is None, reason=ABSENT)
def test_both_metadata_stores_are_measured_in_turn(bench_folder: Path) -> None:
    rows, failure = scale_stores.measure_all(bench_folder, command=COMMAND, server_count=2, seconds=0.5, repetitions=1)

    assert failure is None
    assert [row.store for row in rows] == ["SQLite", "PostgreSQL"]
    assert all(row.servers_cpu_s_per_gb > 0 and row.runs[0].run.commits for row in rows)
    assert all(row.runs[0].share("PostgreSQL") > 0 for row in rows[1:])
    assert "on SQLite: " in scale_stores.table(rows)


def test_stores_of_growing_size_are_measured_step_by_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, failure = asyncio.run(
        metadata_scale.measure_all(str(tmp_path), [100, 200], 1, time.process_time, limit_s=600)
    )

    assert failure is None
    assert list(found) == [100, 200]
    assert {label for label, _, _ in metadata_scale.STEPS} < set(found[100])
    assert "200 partitions" in metadata_scale.table(found)
    assert "100 partitions" in capsys.readouterr().err


def test_a_store_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    found, failure = asyncio.run(metadata_scale.measure_all(str(tmp_path), [100, 200], 1, time.process_time, limit_s=0))

    assert found == {}
    assert failure is not None
    assert failure.startswith("100 partitions: given up")
