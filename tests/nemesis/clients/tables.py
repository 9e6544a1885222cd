"""Readers of tables: `bearlake sql`, one process per query, and PyIceberg directly on the catalog.

Rows of the transactional topic are recorded as scans of committed records, so the promises of transactions hold for tables too.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml
from pyiceberg.catalog import load_catalog

from fixtures.server_process import PROGRAM, clean_environment
from nemesis.recording import digest, now
from nemesis.script import STREAM, TRANSACTIONAL_TOPIC, Script

PAUSE_S = 12.0
TIMEOUT_S = 60.0
WINDOW = 500
COVER = f"select _partition_id as p, count(*) as n, min(_offset) as s, max(_offset) + 1 as e from {STREAM} group by 1 order by 1"


def query(script: Script) -> None:
    """Query the covered ranges; later check that they are still covered, with the rows of a window."""
    covered: dict[int, int] = {}
    while script.is_running:
        for partition, end in sorted(covered.items()):
            if script.random.random() < 0.4:
                _window(script, partition, end)
                break
        _cover(script, covered)
        _committed(script)
        script.pause(PAUSE_S)


def scan(script: Script) -> None:
    """Read rows with PyIceberg, independent of this product: each offset once, with the same bytes."""
    settings = yaml.safe_load(Path(script.sql_config).read_text(encoding="utf-8"))["tables"]
    covered: dict[int, int] = {}
    while script.is_running:
        partition = script.random.randrange(script.partition_count)
        try:
            if script.random.random() < 0.3:
                _scan_committed(script, settings["catalog_url"], partition)
            else:
                _scan(script, settings["catalog_url"], partition, covered)
        except Exception as error:  # noqa: BLE001 - of whatever library is below; stores are broken on purpose
            script.history.note(f"pyiceberg {type(error).__name__}")
        script.pause(PAUSE_S)


def _load(url: str, topic: str) -> Any:
    """Load the table of a topic."""
    catalog = load_catalog(
        "bearlake",
        **{
            "type": "sql",
            "uri": url.replace("postgresql://", "postgresql+pg8000://"),
            "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
            "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
            "s3.region": os.environ["AWS_REGION"],
        },
    )
    return catalog.load_table(f"streams.{topic}")


def _scan(script: Script, url: str, partition: int, covered: dict[int, int]) -> None:
    """Record rows of one partition of the stream: the newest ones and those that no reader has seen."""
    before = covered.get(partition, 0)
    start = max(0, before - script.random.choice((10, WINDOW, 4 * WINDOW)))
    asked = now()
    table = _load(url, STREAM)
    condition = f"_partition_id = {partition} and _offset >= {start}"
    rows = table.scan(row_filter=condition, selected_fields=("_offset", "_key", "_value", "_timestamp")).to_arrow()
    records = sorted(
        (row["_offset"], row["_value"].decode(), digest(row["_key"], row["_value"], (), _ms(row["_timestamp"])))
        for row in rows.to_pylist()
    )
    # This reader claims no bounds: it does not know which rows other readers have seen.
    operation = script.history.invoke("rows", at=asked, log=(STREAM, partition), engine="pyiceberg")
    script.history.ok(operation, records=records)
    if records:
        covered[partition] = max(before, records[-1][0] + 1)


def _scan_committed(script: Script, url: str, partition: int) -> None:
    """Record all rows of one partition of the transactional topic."""
    asked = now()
    rows = (
        _load(url, TRANSACTIONAL_TOPIC)
        .scan(row_filter=f"_partition_id = {partition}", selected_fields=("_offset", "_value"))
        .to_arrow()
    )
    _record_committed(script, asked, partition, [(row["_offset"], row["_value"].decode()) for row in rows.to_pylist()])


def _committed(script: Script) -> None:
    """Record all rows of one partition of the transactional topic."""
    asked, partition = now(), script.random.randrange(script.partition_count)
    text = f"select _offset as o, decode(_value) as v from {TRANSACTIONAL_TOPIC} where _partition_id = {partition}"
    rows = _sql(script, text)
    if rows is not None:
        _record_committed(script, asked, partition, [(row["o"], row["v"]) for row in rows])


def _record_committed(script: Script, asked: int, partition: int, rows: list[tuple[int, str]]) -> None:
    operation = script.history.invoke("scan", at=asked, topic=TRANSACTIONAL_TOPIC, partition=partition)
    script.history.ok(operation, records=[(offset, name, "") for offset, name in sorted(rows)])


def _ms(timestamp: Any) -> int:
    return round(timestamp.timestamp() * 1000)


def _cover(script: Script, covered: dict[int, int]) -> None:
    """Record that every offset below an end that was seen stays in the table, exactly once."""
    operations = {
        partition: script.history.invoke("count", log=(STREAM, partition), start=0, end=end, engine="duckdb")
        for partition, end in covered.items()
    }
    conditions = " or ".join(f"(_partition_id = {at} and _offset < {end})" for at, end in covered.items())
    counts = (
        _sql(script, f"select _partition_id as p, count(*) as n from {STREAM} where {conditions} group by 1")
        if covered
        else []
    )
    found = _sql(script, COVER) if counts is not None else None
    if counts is None or found is None:
        for operation in operations.values():
            script.history.unknown(operation, "the query failed")
        return
    by_partition = {row["p"]: row["n"] for row in counts}
    for partition, operation in operations.items():
        script.history.ok(operation, count=by_partition.get(partition, 0))
    for row in found:
        if row["s"] == 0:
            covered[row["p"]] = max(row["e"], covered.get(row["p"], 0))


def _window(script: Script, partition: int, end: int) -> None:
    """Draw the window: the last rows that are covered, and at first all of them."""
    start = max(0, end - script.random.choice((10, WINDOW, 4 * WINDOW)))
    operation = script.history.invoke("rows", log=(STREAM, partition), start=start, end=end, engine="duckdb")
    rows = _sql(
        script,
        f"select _offset as o, decode(_value) as v, decode(_key) as k, epoch_ms(_timestamp) as t from {STREAM}"
        f" where _partition_id = {partition} and _offset >= {start} and _offset < {end}",
    )
    if rows is None:
        script.history.unknown(operation, "the query failed")
        return
    script.history.ok(operation, records=[(row["o"], row["v"], _digest(row)) for row in rows])


def _digest(row: dict[str, Any]) -> str:
    key = None if row["k"] is None else row["k"].encode()
    return digest(key, row["v"].encode(), (), row["t"])


def _sql(script: Script, text: str) -> list[dict[str, Any]] | None:
    try:
        done = subprocess.run(
            [*PROGRAM, "sql", text, "--json", "--config", script.sql_config],
            capture_output=True, env=clean_environment(), timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        script.history.note("sql timeout")
        return None
    if done.returncode != 0:
        script.history.note(f"sql {done.stderr.decode(errors='replace').strip()[-150:]}")
        return None
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found
