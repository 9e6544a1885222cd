"""What an engine commits to a stream's table stays readable for every engine, and compaction goes on (decision 244)."""

import json
import time
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent, ManifestFile

from bearlake.table import schema
from bearlake.table.warehouse.readability import LONG_MAX
from fixtures.guarded_table import TABLE, Scene, Snapshots, claim, scene

__all__ = ["scene"]


@pytest.mark.parametrize(
    "claims",
    [
        *({"summary": {"operation": "append", "total-records": text}} for text in ("abc", "9" * 5_000, "-1", "")),
        {"summary": {"operation": "append", "total-files-size": "x"}},
        {"summary": {"operation": "append", "bearlake.tasks": "{}"}},
        *({"summary": {"operation": "append", "x": value}} for value in (5, [5], None)),
        *({"snapshot-id": number} for number in (LONG_MAX + 1, 10**30)),
        *({"schema-id": number} for number in (99, 1 << 40)),
        {"first-row-id": -1, "added-rows": -5},
    ],
)
async def test_a_snapshot_that_readers_or_compaction_do_not_understand_is_refused(
    scene: Scene, claims: dict[str, Any]
) -> None:
    """PyIceberg adds to the totals of the current snapshot: with `abc` as a total, the stream was never compacted again."""
    before = await scene.state()

    found = await Snapshots(scene).add(moves_main=True, **claims)

    assert (found[0], await scene.state()) == (403, before), found
    await scene.compact(3, 10, 12)
    assert await scene.offsets() == list(range(12))


def of_another_spec(manifests: list[ManifestFile]) -> list[ManifestFile]:
    """Merges of manifests, and scans, look for this partition spec."""
    manifests[0][2] = 77
    return manifests


def shorter(manifests: list[ManifestFile]) -> list[ManifestFile]:
    """Java reads as many bytes as the list says."""
    manifests[0][1] = 1
    return manifests


def of_the_future(manifests: list[ManifestFile]) -> list[ManifestFile]:
    """The deletes, which come last, would apply to rows of later commits."""
    manifests[-1][4] = manifests[-1][5] = 1 << 40
    return manifests


COPY = "{table}/metadata/a.avro"


@pytest.mark.parametrize(
    ("copies", "listed", "why"),
    [
        ([COPY], of_another_spec, "partition spec 77"),
        ([COPY], shorter, "is listed with 1"),
        ([], shorter, "otherwise than the table does"),
    ],
)
async def test_a_list_that_readers_cannot_follow_is_refused(
    scene: Scene, copies: list[str], listed: Any, why: str
) -> None:
    found = await Snapshots(scene).add(copies, listed=listed, moves_main=True)

    assert (found[0], why in found[1]) == (403, True), found


@pytest.mark.parametrize(
    ("claims", "listed", "why"),
    [
        ({"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [1]}, list, "deletes rows by values"),
        ({"content": DataFileContent.POSITION_DELETES}, of_the_future, "a sequence number above"),
        ({"content": DataFileContent.POSITION_DELETES, "upper_bounds": {3: b"\x01"}}, list, "a bound of 1 bytes"),
    ],
)
async def test_deletes_that_would_harm_later_commits_are_refused(
    scene: Scene, claims: dict[str, Any], listed: Any, why: str
) -> None:
    assert schema.FIELD_IDS[schema.TIMESTAMP] == 3
    (file,) = (await scene.work.append(9, 0, 2)).add

    found = await Snapshots(scene).add(deletes=claim(scene, file, **claims), listed=listed, moves_main=True)

    assert (found[0], why in found[1]) == (403, True), found


def column(number: int, name: str = "note", kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind, **more}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema-id": 0}, "one id"),
        ({"schema-id": (1 << 31) - 1}, "must be from 0"),
        ({"schema-id": 1 << 40}, "must be from 0"),
        ({"added": column(16, kind="timestamp_ns")}, "other engines could not read"),
        ({"added": column(16, kind="unknown")}, "other engines could not read"),
        *(({"added": column(16, name)}, "the name of a column") for name in ("z\0z", "", "a\nb", "z" * 256)),
        ({"added": column(16, kind="int", **{"initial-default": 5, "write-default": 5})}, "cannot have a default"),
        ({"added": column(16, kind="fixed[99999999999]")}, "at most"),
    ],
)
async def test_a_schema_that_engines_cannot_read_is_refused(scene: Scene, change: dict[str, Any], why: str) -> None:
    metadata = (await scene.server.ask("GET", TABLE)).body["metadata"]
    (found,) = (schema for schema in metadata["schemas"] if schema["schema-id"] == metadata["current-schema-id"])
    new = {**json.loads(json.dumps(found)), "schema-id": change.get("schema-id", 9)}
    new["fields"].append(change.get("added", column(16)))

    status, message = await scene.update({"action": "add-schema", "schema": new})

    assert (status, why in message) == (403, True), message


def order(number: int, *sources: int) -> dict[str, Any]:
    fields = [
        {"transform": "identity", "source-id": source, "direction": "asc", "null-order": "nulls-first"}
        for source in sources
    ]
    return {"action": "add-sort-order", "sort-order": {"order-id": number, "fields": fields}}


@pytest.mark.parametrize(
    "updates",
    [
        [{"action": "add-spec", "spec": {"spec-id": 0, "fields": []}}],
        [{"action": "add-spec", "spec": {"spec-id": 1 << 40, "fields": []}}],
        [order(0), order(0)],
        [order(5)],
        [order(1 << 40, 1)],
        [{"action": "set-snapshot-ref", "ref-name": "", "type": "branch"}],
        [{"action": "set-snapshot-ref", "ref-name": "a\nb", "type": "tag"}],
        [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "max-ref-age-ms": 10**30}],
        [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "min-snapshots-to-keep": 1 << 31}],
        [{"action": "set-statistics", "size": 10**30}],
        [{"action": "set-statistics", "size": 1, "snapshot-id": 5}],
    ],
)
async def test_ids_and_numbers_that_java_does_not_read_are_refused(scene: Scene, updates: list[dict[str, Any]]) -> None:
    state = await scene.state()
    for update in updates:
        if update["action"] == "set-snapshot-ref":
            update["snapshot-id"] = state.snapshot_id
        if update["action"] == "set-statistics":
            update["statistics"] = {
                "snapshot-id": update.pop("snapshot-id", state.snapshot_id),
                "statistics-path": f"{scene.server.store_url}/{state.location_key}/metadata/a.stats",
                "file-size-in-bytes": update.pop("size"),
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            }

    status, message = await scene.update(*updates)

    assert status == 403, message
    assert await scene.state() == state


# Repeats.


async def test_a_commit_whose_answer_was_lost_is_answered_again_and_not_refused(scene: Scene) -> None:
    """A proxy repeats it. After a conflict, the engine would delete the manifests that the first one has committed."""
    sent = list[Any]()

    async def noted(*updates: Any) -> tuple[int, str]:
        sent.extend(updates)
        return await Scene.update(scene, *updates)

    scene.update = noted  # type: ignore[method-assign]
    first = await Snapshots(scene).add(moves_main=True)
    requirements = [
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": sent[0]["snapshot"]["parent-snapshot-id"]}
    ]
    again = await scene.server.ask("POST", TABLE, {"requirements": requirements, "updates": sent})
    await scene.compact(3, 10, 12)
    late = await scene.server.ask("POST", TABLE, {"requirements": requirements, "updates": sent})

    assert (first, again.status, late.status) == ((200, ""), 200, 200)
    assert again.body["metadata"]["current-snapshot-id"] == 4711
    assert late.body["metadata"]["current-snapshot-id"] != 4711
    other = {
        **sent[0]["snapshot"],
        "manifest-list": sent[0]["snapshot"]["manifest-list"] + "x",
        "timestamp-ms": time.time_ns() // 10**6,
    }
    refused = await scene.server.ask(
        "POST", TABLE, {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": other}]}
    )
    assert refused.status == 400
