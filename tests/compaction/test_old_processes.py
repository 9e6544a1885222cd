"""Values are not left out while a live process cannot read such files."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bearlake.app.doctor.clocks import Clocks
from bearlake.app.doctor.deployment import examine_servers
from bearlake.metadata import registering
from bearlake.metadata.formats import FORMAT, format_of, registered_version
from bearlake.telemetry import metrics
from fixtures.avro_cases import record, text
from fixtures.typed_lake import TypedLake, typed_lake
from fixtures.typed_values import framed


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("version", "format_"),
    [("", 1), ("0.1.0", 1), ("0.1.0+format.2", 2), ("0.2.0rc1+format.17", 17), ("0.1.0+format.x", 1), ("format.2", 1)],
)
def test_a_registered_version_says_which_formats_the_process_reads(version: str, format_: int) -> None:
    assert format_of(version) == format_


def test_this_program_registers_with_its_newest_format() -> None:
    assert registered_version("1.2") == f"1.2+format.{FORMAT}"
    assert format_of(registered_version("1.2")) == FORMAT


async def test_values_are_kept_while_an_older_process_is_live_and_left_out_afterwards(
    lake: TypedLake, caplog: pytest.LogCaptureFixture
) -> None:
    stream = await lake.create()
    schema_id = await lake.register(record("string"))
    servers = lake.stores.metadata.servers
    old = await registering.register(servers, "old", zone=None, endpoints={}, version="0.1.0", timeout_ms=600_000)
    await lake.produce(stream, framed(schema_id, text("a")))
    before = await lake.read(stream)

    with caplog.at_level(logging.WARNING):
        await lake.compact(stream)
    kept = await lake.rows(stream, "_value", "f0")
    count = metrics.COMPACTION_TOO_OLD.value
    await servers.leave(old.server)
    await lake.produce(stream, framed(schema_id, text("b")))
    await lake.compact(stream)

    assert [(row["f0"], row["_value"]) for row in kept] == [("a", before[0][2])]
    assert count == 1
    assert [entry.servers for entry in caplog.records if "too old" in entry.message] == [["old"]]  # type: ignore[attr-defined]
    rows = await lake.rows(stream, "_offset", "_value", "f0")
    assert [(row["f0"], row["_value"] is None) for row in rows] == [("a", False), ("b", True)]
    assert metrics.COMPACTION_TOO_OLD.value == 0
    assert (await lake.read(stream))[0] == before[0]


async def test_the_doctor_names_the_processes_for_which_values_are_kept(lake: TypedLake) -> None:
    servers = lake.stores.metadata.servers
    await registering.register(servers, "old", zone=None, endpoints={}, version="0.1.0", timeout_ms=600_000)

    findings = await examine_servers(lake.stores.metadata, Clocks(), 1.0, None)

    (found,) = [finding for finding in findings if finding.subject == "left out values"]
    assert "old cannot read" in str(found)
