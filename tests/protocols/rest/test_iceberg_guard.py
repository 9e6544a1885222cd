"""What other engines may change in the table of a stream through the Iceberg REST catalog: compaction continues after all of it."""

from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from bearlake.table.column_book import ColumnBook, new_book, with_schema
from bearlake.table.column_tree import Column, StructOf
from fixtures.guarded_table import TABLE, Scene, scene
from fixtures.tables import commit_of, rows

__all__ = ["scene"]


async def test_an_engine_deletes_rows_and_compaction_continues(scene: Scene) -> None:
    await scene.on_table(lambda table: table.delete("_offset < 2"))
    await scene.on_table(lambda table: table.delete("_offset >= 5 and _offset < 10"))
    await scene.compact(3, 10, 12)

    assert await scene.offsets() == [2, 3, 4, 10, 11]


async def test_an_engine_rewrites_rows_and_compaction_continues(scene: Scene) -> None:
    await scene.on_table(lambda table: table.overwrite(rows(0, 5, 10), "_offset >= 5"))
    await scene.compact(3, 10, 12)

    assert await scene.offsets() == list(range(12))


@pytest.mark.parametrize("start", [0, 10, 123_456])
async def test_an_engine_cannot_append_rows(scene: Scene, start: int) -> None:
    await scene.refused(lambda table: table.append(rows(0, start, start + 1)), "producers")


async def test_an_engine_cannot_invent_offsets_in_the_place_of_others(scene: Scene) -> None:
    await scene.refused(lambda table: table.overwrite(rows(0, 6, 11), "_offset >= 5"), "does not have yet")
    await scene.refused(lambda table: table.overwrite(rows(3, 0, 1), "_offset >= 5"), "does not have yet")
    await scene.refused(lambda table: table.overwrite(rows(0, -1, 1), "_offset >= 5"), "negative")


async def test_an_engine_cannot_use_files_without_bounds_of_the_offsets(scene: Scene) -> None:
    def without_bounds(table: Table) -> None:
        table.metadata.properties["write.metadata.metrics.column._offset"] = "none"
        table.overwrite(rows(0, 5, 10), "_offset >= 5")

    await scene.refused(without_bounds, "no bounds")


@pytest.mark.parametrize("name", ["_timestamp", "_value", "_batch"])
async def test_an_engine_cannot_drop_a_column_of_the_stream(scene: Scene, name: str) -> None:
    def drop(table: Table) -> None:
        table.update_schema(allow_incompatible_changes=True).delete_column(name).commit()

    await scene.refused(drop, "belongs to the stream")


async def test_an_engine_cannot_rename_or_loosen_a_column_of_the_stream(scene: Scene) -> None:
    await scene.refused(lambda t: t.update_schema().rename_column("_offset", "position").commit(), "belongs to")
    await scene.refused(lambda t: t.update_schema().make_column_optional("_offset").commit(), "must stay required")
    await scene.refused(
        lambda t: t.update_schema().update_column("_partition_id", LongType()).commit(), "belongs to the stream"
    )


async def test_an_engine_cannot_add_a_column_that_every_record_must_have(scene: Scene) -> None:
    def add(table: Table) -> None:
        change = table.update_schema(allow_incompatible_changes=True)
        change.add_column("note", StringType(), required=True).commit()

    await scene.refused(add, "must be optional")


async def test_an_engine_adds_renames_and_drops_a_column_of_its_own_and_compaction_continues(scene: Scene) -> None:
    await scene.on_table(lambda table: table.update_schema().add_column("note", StringType()).commit())
    await scene.on_table(lambda table: table.update_schema().rename_column("note", "remark").commit())
    await scene.compact(3, 10, 12)
    await scene.on_table(lambda table: table.update_schema().delete_column("remark").commit())
    await scene.compact(4, 12, 13)

    assert await scene.offsets() == list(range(13))


async def with_typed_columns(scene: Scene) -> ColumnBook:
    """Compact with the typed columns `amount` (int) and `place.city` (string)."""
    place = Column(0, "place", "place", StructOf((Column(0, "city", "city", "string"),)))
    fields = [Column(0, "amount", "amount", "int"), place]
    book = with_schema(new_book(15), 0, fields, last_id=15, names=(), column_count_max=100)
    await scene.compact(3, 10, 11, columns=book)
    return book


async def test_an_engine_renames_promotes_and_drops_typed_columns_and_compaction_continues(scene: Scene) -> None:
    book = await with_typed_columns(scene)
    await scene.on_table(lambda table: table.update_schema().rename_column("amount", "sum").commit())
    await scene.on_table(lambda table: table.update_schema().update_column("sum", LongType()).commit())
    await scene.compact(4, 11, 12, columns=book)
    await scene.on_table(lambda table: table.update_schema().delete_column("sum").commit())
    await scene.compact(5, 12, 13, columns=book)

    names = await scene.on_table(lambda table: table.schema().column_names)
    assert "sum" not in names
    assert "place.city" in names
    assert await scene.offsets() == list(range(13))


@pytest.mark.parametrize("name", ["amount", "place", "city"])
async def test_an_engine_cannot_give_a_typed_column_another_type(scene: Scene, name: str) -> None:
    book = await with_typed_columns(scene)
    loaded = await scene.server.ask("GET", TABLE)
    metadata = loaded.body["metadata"]
    schema = next(found for found in metadata["schemas"] if found["schema-id"] == metadata["current-schema-id"])
    place = next(field for field in schema["fields"] if field["name"] == "place")
    changed = next(field for field in (*schema["fields"], *place["type"]["fields"]) if field["name"] == name)
    changed["type"] = "date"

    status, message = await scene.update(
        {"action": "add-schema", "schema": {**schema, "schema-id": 99}},
        {"action": "set-current-schema", "schema-id": -1},
    )
    await scene.compact(4, 11, 12, columns=book)

    assert (status, message) == (
        403,
        f"the typed column {name} belongs to the stream; its type can only be promoted",
    )


async def test_an_engine_makes_branches_and_tags_and_compaction_continues(scene: Scene) -> None:
    snapshot = (await scene.state()).snapshot_id
    assert snapshot is not None
    await scene.on_table(
        lambda table: table.manage_snapshots().create_tag(snapshot, "t").create_branch(snapshot, "b").commit()
    )
    await scene.compact(3, 10, 12)
    await scene.on_table(lambda table: table.manage_snapshots().remove_branch("b").remove_tag("t").commit())

    assert await scene.offsets() == list(range(12))


async def test_an_engine_cannot_move_the_main_branch_back_or_away(scene: Scene) -> None:
    first = await scene.on_table(lambda table: table.metadata.snapshots[0].snapshot_id)

    def ref(name: str, snapshot: int) -> dict[str, Any]:
        return {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": snapshot}

    back = await scene.update(ref("main", first))
    gone = await scene.update({"action": "remove-snapshot-ref", "ref-name": "main"})
    expired = await scene.update({"action": "remove-snapshots", "snapshot-ids": [first]})

    assert back == (403, "the branch main of a stream's table can only move to a successor of its current snapshot")
    assert gone[0] == expired[0] == 403


async def test_a_write_on_a_branch_may_become_main_while_nothing_was_compacted_since(scene: Scene) -> None:
    snapshot = (await scene.state()).snapshot_id
    assert snapshot is not None

    def branched(table: Table) -> int:
        table.manage_snapshots().create_branch(snapshot, "audit").commit()
        table.refresh()
        table.delete("_offset = 9", branch="audit")
        return table.refresh().refs()["audit"].snapshot_id

    written = await scene.on_table(branched)
    move = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": written}
    moved = await scene.update(move)
    await scene.compact(3, 10, 12)
    late = await scene.update(move)

    assert moved == (200, "")
    assert late[0] == 403
    assert await scene.offsets() == [*range(9), 10, 11]


@pytest.mark.parametrize(
    "name",
    ["bearlake.ends", "bearlake.stream_id", "gc.enabled", "write.metadata.path", "write.py-location-provider.impl"],
)
async def test_an_engine_cannot_change_the_properties_that_we_rely_on(scene: Scene, name: str) -> None:
    changed = await scene.update({"action": "set-properties", "updates": {name: "true"}})
    removed = await scene.update({"action": "remove-properties", "removals": [name]})

    assert changed == removed == (403, f"the property {name} is Bearlake's; no engine may change it")


@pytest.mark.parametrize(
    "change",
    [
        {"action": "set-location", "location": "file:///elsewhere"},
        {"action": "upgrade-format-version", "format-version": 3},
        {
            "action": "add-spec",
            "spec": {
                "spec-id": 1,
                "fields": [{"source-id": 2, "field-id": 1000, "name": "p", "transform": "identity"}],
            },
        },
        {"action": "remove-schemas", "schema-ids": [0]},
    ],
)
async def test_an_engine_cannot_move_partition_or_upgrade_the_table(scene: Scene, change: dict[str, Any]) -> None:
    status, _ = await scene.update(change)

    assert status in (400, 403)
    await scene.compact(3, 10, 12)


async def test_the_table_of_a_stream_cannot_be_dropped_until_the_stream_is_deleted(scene: Scene) -> None:
    refused = await scene.server.ask("DELETE", TABLE)
    await scene.server.streams.delete(scene.stream)
    dropped = await scene.server.ask("DELETE", TABLE)

    assert (refused.status, refused.error, dropped.status) == (403, "ForbiddenException", 204)


async def test_files_of_another_folder_cannot_become_part_of_the_table(scene: Scene) -> None:
    other, work = await scene.server.stream("secret")
    await scene.server.tables.commit(other, commit_of(await work.append(1, 0, 5)), closed_tasks=[])

    def add(catalog: RestCatalog) -> None:
        taken = next(iter(catalog.load_table("streams.secret").scan().plan_files())).file
        with catalog.load_table("streams.orders").transaction() as transaction:
            transaction.delete("_offset < 5")
            with transaction.update_snapshot().fast_append() as append:
                append.append_data_file(taken)

    before = await scene.state()
    with pytest.raises(ForbiddenError, match="does not lie in the folder"):
        await scene.server.client(add)
    assert await scene.state() == before


async def test_rows_of_a_branch_cannot_become_main_by_a_commit_of_several_snapshots(scene: Scene) -> None:
    """An engine adds rows in one snapshot of a branch and deletes them in the next one; main may not stop in between."""
    snapshot = (await scene.state()).snapshot_id
    assert snapshot is not None

    def branched(table: Table) -> int:
        table.manage_snapshots().create_branch(snapshot, "audit").commit()
        table.refresh()
        table.append(rows(0, 3, 5), branch="audit")
        return table.refresh().refs()["audit"].snapshot_id

    added = await scene.on_table(branched)
    move = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": added}
    status, message = await scene.update(move)

    assert (status, message) == (
        403,
        "the commit adds 2 rows and takes away 0: rows of a stream come from its producers",
    )
