"""Engines that write on purpose what would harm compaction or other readers are refused in Iceberg's words; compaction continues."""

import gzip
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.types import StringType

from bearlake.table.column_book import decode_book, new_book, with_schema
from bearlake.table.column_tree import Column
from bearlake.table.metadata_text import SUMMARY_COUNT_MAX
from bearlake.table.warehouse.model import FIELD_ID_MAX
from bearlake.table.warehouse.settings import WarehouseSettings
from fixtures.catalog_server import catalog_server
from fixtures.guarded_table import TABLE, Scene, Snapshots, scene
from fixtures.tables import commit_of

__all__ = ["scene"]

DAY_MS = 86_400_000


async def refused(scene: Scene, *updates: Any) -> str:
    """Send updates that must be refused with 403, without a change; returns the message."""
    before = await scene.state()
    answer = await scene.server.ask("POST", TABLE, {"requirements": [], "updates": list(updates)})
    assert (answer.status, answer.error, answer.body["error"]["code"]) == (403, "ForbiddenException", 403), answer
    assert await scene.state() == before
    return str(answer.body["error"]["message"])


# Snapshots.


async def test_a_snapshot_with_the_manifests_of_the_table_is_allowed(scene: Scene) -> None:
    assert await Snapshots(scene).add(moves_main=True) == (200, "")
    await scene.compact(3, 10, 12)

    assert await scene.offsets() == list(range(12))


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"sequence-number": 1 << 62}, "sequence number"),
        ({"sequence-number": 1, "parent-snapshot-id": None}, "sequence number"),
        ({"sequence-number": None}, "sequence number"),
        ({"snapshot-id": -1}, "must be positive"),
        ({"snapshot-id": 0}, "must be positive"),
        ({"timestamp-ms": 0}, "the engine's clock"),
        ({"timestamp-ms": time.time_ns() // 1_000_000 + DAY_MS}, "the engine's clock"),
        ({"manifest-list": "file:///etc/passwd"}, "does not lie in the folder"),
    ],
)
async def test_numbers_and_times_that_would_stop_others_are_refused(
    scene: Scene, claims: dict[str, Any], why: str
) -> None:
    """A later commit would overflow, or Java would not load the table, whose history goes back in time, or would take it to be empty."""
    status, message = await Snapshots(scene).add(**claims)

    assert status == 403, message
    assert why in message
    await scene.compact(3, 10, 12)


def twice(manifests: list[ManifestFile]) -> list[ManifestFile]:
    return [*manifests, manifests[0]]


def renumbered(manifests: list[ManifestFile]) -> list[ManifestFile]:
    """The first manifest seems to be from an earlier commit: deletes that came before it would apply to it."""
    manifests[0][4] = 0
    return manifests


def as_deletes(manifests: list[ManifestFile]) -> list[ManifestFile]:
    manifests[0][3] = ManifestContent.DELETES
    return manifests


@pytest.mark.parametrize(
    ("listed", "copies", "why"),
    [
        (twice, [], "lists a manifest twice"),
        (renumbered, [], "otherwise than the table does"),
        (as_deletes, [], "otherwise than the table does"),
        (as_deletes, ["{table}/metadata/a.avro"], "listed as one of deletes"),
        (renumbered, ["{table}/metadata/a.avro"], "otherwise than the table does"),
    ],
)
async def test_a_list_that_makes_readers_see_other_rows_is_refused(
    scene: Scene, listed: Any, copies: list[str], why: str
) -> None:
    status, message = await Snapshots(scene).add(copies, listed=listed)

    assert (status, why in message) == (403, True), message


async def test_a_manifest_that_is_no_avro_file_is_refused(scene: Scene) -> None:
    state = await scene.state()
    path = f"{scene.server.store_url}/{state.location_key}/metadata/evil.avro"
    await scene.server.store.put(f"{state.location_key}/metadata/evil.avro", [b"Obj\x01" + b"\xff" * 64])

    def evil(manifests: list[ManifestFile]) -> list[ManifestFile]:
        manifests[0][0] = path
        return manifests

    as_manifest = await Snapshots(scene).add(listed=evil)
    as_list = await scene.update(
        {
            "action": "add-snapshot",
            "snapshot": {
                "snapshot-id": 8,
                "sequence-number": 3,
                "timestamp-ms": time.time_ns() // 1_000_000,
                "manifest-list": path,
                "summary": {"operation": "append"},
                "schema-id": 0,
            },
        }
    )

    assert (as_manifest[0], "not a valid Avro file" in as_manifest[1]) == (403, True), as_manifest
    assert (as_list[0], "not a valid Avro file" in as_list[1]) == (403, True), as_list


async def test_main_stays_a_branch(scene: Scene) -> None:
    snapshot = (await scene.state()).snapshot_id

    await refused(scene, {"action": "set-snapshot-ref", "ref-name": "main", "type": "tag", "snapshot-id": snapshot})


async def test_statistics_lie_in_the_folder_of_the_table(scene: Scene) -> None:
    """Upkeep could delete what they name."""
    state = await scene.state()
    place = f"{scene.server.store_url}/{state.location_key}/metadata/a.stats"
    of = {
        "snapshot-id": state.snapshot_id,
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }

    for path in ("file:///etc/passwd", f"{scene.server.store_url}/wal/x", place.replace("/metadata", "/../metadata")):
        update = {"action": "set-statistics", "statistics": {**of, "statistics-path": path}}
        assert "does not lie in the folder" in await refused(scene, update)
    allowed = await scene.update({"action": "set-statistics", "statistics": {**of, "statistics-path": place}})

    assert allowed == (200, "")


async def test_the_table_keeps_its_uuid(scene: Scene) -> None:
    await refused(scene, {"action": "assign-uuid", "uuid": "00000000-0000-0000-0000-000000000001"})


# Properties.


@pytest.mark.parametrize(
    "name",
    [
        *("write.py-location-provider.impl", "write.location-provider.impl", "io-impl", "py-io-impl", "catalog-impl"),
        *("write.metadata.path", "write.data.path", "write.object-storage.path", "write.metadata.compression-codec"),
        *("commit.manifest.min-count-to-merge", "commit.retry.num-retries", "write.metadata.previous-versions-max"),
        *("write.avro.compression-codec", "write.object-storage.enabled", "schema.name-mapping.default"),
    ],
)
async def test_properties_that_name_code_or_steer_compaction_are_refused(scene: Scene, name: str) -> None:
    await refused(scene, {"action": "set-properties", "updates": {name: "x.y.Z"}})
    await refused(scene, {"action": "remove-properties", "removals": [name]})


async def test_other_properties_are_free_and_compaction_continues(scene: Scene) -> None:
    free = {"write.metadata.metrics.default": "none", "write.delete.mode": "merge-on-read", "comment": "x"}

    assert await scene.update({"action": "set-properties", "updates": free}) == (200, "")
    await scene.compact(3, 10, 12)


async def test_a_table_of_another_engine_names_no_code_either(scene: Scene) -> None:
    body = {"name": "mine", "schema": {"type": "struct", "schema-id": 0, "fields": []}}
    code = {"properties": {"write.location-provider.impl": "x.Y"}}
    created = await scene.server.ask("POST", "/v1/namespaces/streams/tables", {**body, **code})
    await scene.server.ask("POST", "/v1/namespaces/streams/tables", body)
    changed = await scene.server.ask(
        "POST",
        "/v1/namespaces/streams/tables/mine",
        {"requirements": [], "updates": [{"action": "set-properties", "updates": code["properties"]}]},
    )

    assert [(answer.status, answer.error) for answer in (created, changed)] == [(403, "ForbiddenException")] * 2


async def test_metadata_that_would_slow_every_commit_down_is_refused(scene: Scene) -> None:
    scene.server.warehouse.settings = WarehouseSettings(metadata_bytes_max=100_000)

    message = await refused(scene, {"action": "set-properties", "updates": {"comment": "x" * 100_000}})

    assert "catalog.warehouse.metadata_bytes_max" in message


# Columns.


def column(number: int, name: str = "note", kind: Any = "string") -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind}


async def with_column(scene: Scene, *added: dict[str, Any], is_current: bool = True) -> list[dict[str, Any]]:
    """Updates that add columns to the table's schema."""
    metadata = (await scene.server.ask("GET", TABLE)).body["metadata"]
    schema = next(found for found in metadata["schemas"] if found["schema-id"] == metadata["current-schema-id"])
    new = {**schema, "schema-id": 99, "fields": [*schema["fields"], *added]}
    current = [{"action": "set-current-schema", "schema-id": -1}] if is_current else []
    return [{"action": "add-schema", "schema": new}, *current]


@pytest.mark.parametrize("is_current", [True, False])
@pytest.mark.parametrize("number", [0, 12, 20_000, FIELD_ID_MAX, FIELD_ID_MAX + 1, (1 << 31) - 1, 1 << 40])
async def test_a_new_column_has_one_of_the_next_field_ids(scene: Scene, number: int, *, is_current: bool) -> None:
    """Others are Iceberg's own, another column's, or leave none for compaction."""
    updates = await with_column(scene, column(number), is_current=is_current)
    status, message = await scene.update(*updates)

    assert status in (400, 403), message
    assert await scene.server.columns.get(scene.stream.number) == ("", 0)


async def test_ids_inside_of_new_columns_are_among_the_next_ones_too(scene: Scene) -> None:
    inner = {"type": "list", "element-id": FIELD_ID_MAX + 9, "element": "string", "element-required": False}

    await refused(scene, *await with_column(scene, column(16, kind=inner)))


@pytest.mark.parametrize("name", ["_file", "_pos", "_OFFSET", "_schema_id"])
async def test_a_new_column_does_not_take_a_name_of_others(scene: Scene, name: str) -> None:
    assert "its name is reserved" in await refused(scene, *await with_column(scene, column(16, name)))


async def test_a_schema_that_is_nested_without_end_is_refused(scene: Scene) -> None:
    kind: Any = "string"
    for number in range(300):
        kind = {"type": "list", "element-id": 17 + number, "element": kind, "element-required": False}
    answers = [
        await scene.update(*await with_column(scene, column(16, kind=kind))),
        await scene.update(*await with_column(scene, *[column(16 + number, f"c{number}") for number in range(10_001)])),
    ]

    assert all(status in (400, 403) for status, _ in answers), answers
    await scene.compact(3, 10, 12)


async def test_typed_columns_get_other_field_ids_than_those_that_an_engine_takes(scene: Scene) -> None:
    """An engine adds a column between the moment when compaction looks at the table and the one when it gives ids."""
    state = await scene.state()
    await scene.on_table(lambda table: table.update_schema().add_column("note", StringType()).commit())
    stored = await scene.server.columns.get(scene.stream.number)
    book = decode_book(stored.text, stored.version)
    fields = [Column(0, "amount", "amount", "int")]
    book = with_schema(book, 0, fields, last_id=state.last_column_id, names=(), column_count_max=100)
    await scene.compact(3, 10, 12, columns=book)

    schema = await scene.on_table(lambda table: table.schema())
    assert schema.find_field("note").field_id == 16
    assert schema.find_field("amount").field_id > 16
    assert await scene.offsets() == list(range(12))


async def test_an_engine_cannot_take_the_field_id_of_a_typed_column_that_the_table_does_not_have_yet(
    scene: Scene,
) -> None:
    fields = [Column(0, "amount", "amount", "int")]
    book = with_schema(new_book(15), 0, fields, last_id=15, names=(), column_count_max=100)
    await scene.server.columns.set(scene.stream.number, book.encoded(), version=0)
    body = {"requirements": [], "updates": await with_column(scene, column(16))}

    early = await scene.server.ask("POST", TABLE, body)
    await scene.compact(3, 10, 12, columns=book)
    await scene.on_table(lambda table: table.update_schema().add_column("note", StringType()).commit())
    await scene.compact(4, 12, 13, columns=book)

    assert (early.status, early.error) == (409, "CommitFailedException")
    assert "compaction is about to add" in early.body["error"]["message"]
    assert await scene.offsets() == list(range(13))


# Limits.


@pytest.fixture
async def limited(tmp_path: Path) -> AsyncIterator[Scene]:
    """The scene, with room for no check of a commit."""
    async with catalog_server(tmp_path, limits={"check_wait_ms": 1}) as server:
        stream, work = await server.stream("orders")
        await server.tables.commit(stream, commit_of(await work.append(1, 0, 10)), closed_tasks=[])
        yield Scene(server, stream, work)


async def test_a_commit_that_finds_no_place_to_be_checked_is_refused_as_not_done(limited: Scene) -> None:
    update = {"action": "set-properties", "updates": {"comment": "x"}}
    body = {"requirements": [], "updates": [update]}
    with limited.server.warehouse.checks:
        busy = await limited.server.ask("POST", TABLE, body)
    done = await limited.server.ask("POST", TABLE, body)

    assert (busy.status, busy.error, done.status) == (503, "ServiceUnavailableException", 200)


@pytest.mark.parametrize("name", ["manifest_expanded_bytes_max", "manifest_value_count_max", "manifest_bytes_max"])
async def test_manifests_beyond_a_limit_are_refused(scene: Scene, name: str) -> None:
    scene.server.warehouse.settings = WarehouseSettings(**{name: 50})

    def delete(table: Table) -> None:
        table.delete("_offset < 2")

    await scene.refused(delete, rf"catalog\.warehouse\.{name}")


async def test_a_metadata_file_that_expands_to_much_is_not_registered(scene: Scene) -> None:
    scene.server.tables.limit_metadata_of_others(10_000, 250_000)
    bomb = gzip.compress(json.dumps({"x": "y" * 1_000_000}).encode())
    await scene.server.store.put("lake/evil/metadata/1.gz.metadata.json", [bomb])
    place = f"{scene.server.store_url}/lake/evil/metadata/1.gz.metadata.json"

    answer = await scene.server.ask(
        "POST", "/v1/namespaces/streams/register", {"name": "evil", "metadata-location": place}
    )

    assert (answer.status, answer.error) == (403, "ForbiddenException")
    assert "metadata_bytes_max" in answer.body["error"]["message"]


async def test_a_metadata_file_of_very_many_values_is_neither_registered_nor_served(scene: Scene) -> None:
    """The file of a table that is no stream's can be replaced at any time."""
    files = [json.dumps({"x": [[]] * 150_000}).encode(), gzip.compress(json.dumps({"x": [1] * 300_000}).encode())]
    keys = [f"lake/evil/metadata/{number}{'.gz' * number}.metadata.json" for number in range(2)]
    answers = []
    for key, content in zip(keys, files, strict=True):
        await scene.server.store.put(key, [content])
        body = {"name": "evil", "metadata-location": f"{scene.server.store_url}/{key}"}
        answers.append(await scene.server.ask("POST", "/v1/namespaces/streams/register", body))

    assert [(answer.status, answer.error) for answer in answers] == [(403, "ForbiddenException")] * 2
    assert all("metadata_value_count_max" in answer.body["error"]["message"] for answer in answers)


async def test_a_commit_that_would_give_a_table_very_many_values_is_refused(scene: Scene) -> None:
    scene.server.warehouse.settings = WarehouseSettings(metadata_value_count_max=400)
    few, many = ({f"k{at}": "v" for at in range(count)} for count in (10, 1_000))

    answers = [
        await scene.server.ask(
            "POST", TABLE, {"requirements": [], "updates": [{"action": "set-properties", "updates": properties}]}
        )
        for properties in (many, few)
    ]

    assert [answer.status for answer in answers] == [403, 200]
    assert "metadata_value_count_max" in answers[0].body["error"]["message"]


async def test_a_commit_of_a_summary_that_no_reader_would_take_is_refused(scene: Scene) -> None:
    snapshot = {"snapshot-id": 1, "sequence-number": 1, "timestamp-ms": 1, "manifest-list": "m", "schema-id": 0}
    answers = [
        await scene.server.ask(
            "POST",
            TABLE,
            {
                "requirements": [],
                "updates": [
                    {
                        "action": "add-snapshot",
                        "snapshot": {**snapshot, "summary": {f"k{at}": "" for at in range(count)}},
                    }
                ],
            },
        )
        for count in (SUMMARY_COUNT_MAX + 1, SUMMARY_COUNT_MAX)
    ]

    assert answers[0].status == 400
    assert "summary" in answers[0].body["error"]["message"]
    assert "entries" not in str(answers[1].body)
