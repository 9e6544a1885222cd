"""Records of every protocol are in the table, from which SQL and every protocol read them: the same keys, values, headers
and timestamps at the same offsets.
A `bearlake up` takes the records and compacts all of them; one that is started after it, with nothing in its memory, serves them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bearlake.cli.sql import plain
from faults.waiting import until
from fixtures.protocol_clients import Addresses, Item, Reader, Writer
from fixtures.protocol_items import READERS, WRITERS, write_all
from fixtures.pulsar_protocol_client import without_reserved
from fixtures.server_process import ServerProcess, finished, started

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TIMEOUT_S = 120.0


def addresses(server: ServerProcess) -> Addresses:
    return Addresses(
        kafka=server.kafka,
        rest=str(server.ready["rest"]).removeprefix("http://"),
        grpc=str(server.ready["grpc"]),
        pulsar=str(server.ready["pulsar"]),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("table")


@pytest.fixture(scope="module")
def written(folder: Path) -> Mapping[str, list[Item]]:
    """The records of each writer's stream `by-NAME`, all of which are in its table."""
    words = ("up", "--compaction", "--data-dir", folder / "data", "--no-tour")
    with started(*words, ready_file=folder / "writing.json") as server:
        freshness = {"table.freshness_ms": "1000"}
        stored = {
            writer.name: write_all(addresses(server), writer, f"by-{writer.name}", **freshness) for writer in WRITERS
        }

        def is_compacted() -> bool:
            found = json.loads(finished("compaction", "backlog", "--admin", server.admin, "--json").stdout)
            return bool(found["record_count"] == 0)

        until(is_compacted, TIMEOUT_S, "the records are in the tables")
        assert server.stop() == 0
    return stored


@pytest.fixture(scope="module")
def at(folder: Path, written: Mapping[str, list[Item]]) -> Iterator[Addresses]:
    words = ("up", "--data-dir", folder / "data", "--no-tour")
    with started(*words, ready_file=folder / "reading.json") as server:
        yield addresses(server)


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: f"written-by-{writer.name}")
def test_sql_reads_what_a_protocol_wrote(folder: Path, written: Mapping[str, list[Item]], writer: Writer) -> None:
    statement = f'select _offset, _key, _value, _headers, _timestamp from "by-{writer.name}" where _partition_id = 0 order by _offset'
    asked = finished("sql", statement, "--json", "--data-dir", folder / "data")
    assert asked.returncode == 0, asked.stderr
    rows = json.loads(asked.stdout)

    expected = [_row(item) for item in written[writer.name]]
    found = [
        {**row, "_headers": [header for header in row["_headers"] or [] if not header["key"].startswith("__pulsar.")]}
        for row in rows
    ]
    assert len(found) == len(expected) >= 11
    for read_row, wanted in zip(found, expected, strict=True):
        read_row["_timestamp"] = round(datetime.fromisoformat(read_row["_timestamp"]).timestamp() * 1000)
        assert read_row == wanted


def _row(item: Item) -> Mapping[str, Any]:
    headers = [{"key": name, "value": plain(content)} for name, content in item.headers]
    return {
        "_offset": item.offset,
        "_key": plain(item.key),
        "_value": plain(item.value),
        "_headers": headers,
        "_timestamp": item.timestamp_ms,
    }


@pytest.mark.timeout(180)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: f"read-by-{reader.name}")
@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: f"written-by-{writer.name}")
def test_a_protocol_reads_from_the_table_what_another_wrote(
    at: Addresses, written: Mapping[str, list[Item]], writer: Writer, reader: Reader
) -> None:
    stored = written[writer.name]
    found = reader.read(at, f"by-{writer.name}", len(stored))

    for row, item in zip(found, stored, strict=True):
        assert without_reserved(row) == replace(reader.shown(item), offset=item.offset)
