"""What another engine says about files must be what the files say: bounds, row counts, places. Compaction continues after all refusals."""

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from bearlake.objects import ByteRange
from bearlake.table import schema
from bearlake.table.warehouse.settings import WarehouseSettings
from fixtures.guarded_table import Scene, Snapshots, claim, scene

__all__ = ["scene"]

OPTIONAL_KEY = b"\x25\x02\x18\x04_key"
REQUIRED_KEY = b"\x25\x00\x18\x04_key"
"""In a footer's schema: the column `_key`, as it is and as a column without nulls."""


def instead_of_the_last_five(file: DataFile) -> Callable[[Table], None]:
    """Replace the rows with offsets from 5 by a file."""

    def replace(table: Table) -> None:
        with table.transaction() as transaction:
            transaction.delete("_offset >= 5")
            with transaction.update_snapshot().fast_append() as append:
                append.append_data_file(file)

    return replace


async def test_a_file_that_is_as_the_engine_says_may_replace_rows(scene: Scene) -> None:
    file = await scene.work.file(0, 5, 10)
    await scene.on_table(instead_of_the_last_five(claim(scene, file)))
    await scene.compact(3, 10, 12)

    assert await scene.offsets() == list(range(12))


async def test_offsets_that_the_bounds_of_the_commit_hide_are_found_in_the_footer(scene: Scene) -> None:
    file, honest = await scene.work.file(0, 10, 15), await scene.work.file(0, 5, 10)
    lie = claim(scene, file, lower_bounds=honest.lower_bounds, upper_bounds=honest.upper_bounds)

    await scene.refused(instead_of_the_last_five(lie), "_offset from 10 to 14, and the commit says otherwise")


async def test_partitions_that_the_bounds_of_the_commit_hide_are_found_in_the_footer(scene: Scene) -> None:
    file, honest = await scene.work.file(1, 5, 10), await scene.work.file(0, 5, 10)
    lie = claim(scene, file, lower_bounds=honest.lower_bounds, upper_bounds=honest.upper_bounds)

    await scene.refused(instead_of_the_last_five(lie), "_partition_id from 1 to 1, and the commit says otherwise")


async def test_rows_that_the_commit_does_not_count_are_found_in_the_footer(scene: Scene) -> None:
    file = await scene.work.file(0, 0, 10)

    await scene.refused(
        instead_of_the_last_five(claim(scene, file, record_count=5)), "has 10 rows, and the commit says 5"
    )


async def test_a_file_of_no_rows_is_not_believed_to_have_none(scene: Scene) -> None:
    file = await scene.work.file(0, 10, 12)

    await scene.refused(
        instead_of_the_last_five(claim(scene, file, record_count=0)), "has 2 rows, and the commit says 0"
    )


async def test_deletes_that_a_file_does_not_have_make_no_room_for_rows(scene: Scene) -> None:
    file = await scene.work.file(0, 0, 1)
    lie, truth = (claim(scene, file, content=DataFileContent.POSITION_DELETES, record_count=n) for n in (1_000, 1))

    status, message = await Snapshots(scene).add(deletes=lie, moves_main=True)
    allowed = await Snapshots(scene).add(deletes=truth, moves_main=True)

    assert (status, message.partition(" has ")[2]) == (403, "1 rows, and the commit says 1000")
    assert allowed == (200, "")


async def test_deletes_in_a_manifest_of_data_are_refused(scene: Scene) -> None:
    """Some readers take them for data."""
    file = await scene.work.file(0, 10, 11)
    deletes = claim(scene, file, content=DataFileContent.POSITION_DELETES)

    def add(table: Table) -> None:
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(deletes)

    await scene.refused(add, "as data, and is listed as one of deletes, or reversed")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"file_size_in_bytes": 100}, "the commit says 100"),
        ({"file_format": FileFormat.AVRO}, "must be a Parquet file"),
    ],
)
async def test_a_file_of_another_size_or_format_is_refused(scene: Scene, claims: dict[str, Any], why: str) -> None:
    file = await scene.work.file(0, 5, 10)

    await scene.refused(instead_of_the_last_five(claim(scene, file, **claims)), why)


async def test_a_file_that_does_not_exist_is_refused(scene: Scene) -> None:
    file = await scene.work.file(0, 5, 10)
    await scene.server.store.delete([file.key])

    await scene.refused(instead_of_the_last_five(claim(scene, file)), "does not exist")


@pytest.mark.parametrize("end", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x08\x00\x00\x00PAR1"])
async def test_a_file_with_a_damaged_footer_is_refused(scene: Scene, end: bytes) -> None:
    honest = await scene.work.file(0, 5, 10)
    key = honest.key.replace(".parquet", "-damaged.parquet")
    content = b"PAR1" + b"\x15\x00\xff" * 30 + end
    await scene.server.store.put(key, [content])
    damaged = claim(scene, honest, file_path=f"{scene.server.store_url}/{key}", file_size_in_bytes=len(content))

    await scene.refused(instead_of_the_last_five(damaged), "does not end like|cannot be read")


async def test_a_footer_that_would_end_the_process_is_refused(scene: Scene) -> None:
    """Chunks count levels that their column does not have: pyarrow lets the exception through that C++ throws."""
    honest = await scene.work.file(0, 5, 10)
    size = await scene.server.store.size(honest.key)
    (whole,) = await scene.server.store.read(honest.key, [ByteRange(0, size)])
    content = bytes(whole)
    assert content.count(OPTIONAL_KEY) == 1
    key = honest.key.replace(".parquet", "-hostile.parquet")
    await scene.server.store.put(key, [content.replace(OPTIONAL_KEY, REQUIRED_KEY)])
    hostile = claim(scene, honest, file_path=f"{scene.server.store_url}/{key}")

    await scene.refused(instead_of_the_last_five(hostile), "cannot be read")
    await scene.refused(instead_of_the_last_five(hostile), "cannot be read")


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"footer_bytes_max": 100}, "footer_bytes_max"),
        ({"footers_bytes_max": 100}, "footers_bytes_max"),
        ({"file_count_max": 0}, "file_count_max"),
        ({"manifest_bytes_max": 100}, "manifest_bytes_max"),
    ],
)
async def test_a_commit_beyond_a_limit_is_refused(scene: Scene, limits: dict[str, Any], why: str) -> None:
    file = await scene.work.file(0, 5, 10)
    scene.server.warehouse.settings = WarehouseSettings(**limits)

    await scene.refused(instead_of_the_last_five(claim(scene, file)), why)


async def test_a_manifest_may_be_rewritten_in_the_folder_of_the_table(scene: Scene) -> None:
    assert await Snapshots(scene).add(["{table}/metadata/a.avro"]) == (200, "")


@pytest.mark.parametrize("key", ["lake/a.avro", "{table}/../a.avro", "{table}/metadata//a.avro", "{table}-2/a.avro"])
async def test_a_manifest_outside_of_the_folder_of_the_table_is_refused(scene: Scene, key: str) -> None:
    status, message = await Snapshots(scene).add([key])

    assert (status, message.partition(" does not ")[2]) == (403, "lie in the folder of the table")


async def test_a_file_that_is_named_twice_is_refused(scene: Scene) -> None:
    status, message = await Snapshots(scene).add(["{table}/metadata/a.avro", "{table}/metadata/b.avro"])

    assert status == 403
    assert message.endswith(" twice")


async def test_a_file_of_the_table_keeps_its_row_count_in_a_rewritten_manifest(scene: Scene) -> None:
    file = next(iter(await scene.on_table(lambda table: list(table.scan().plan_files())))).file

    def describe_anew(table: Table) -> None:
        again = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.file_path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=file.record_count + 100,
            file_size_in_bytes=file.file_size_in_bytes,
            lower_bounds=file.lower_bounds,
            upper_bounds=file.upper_bounds,
        )
        again.spec_id = 0
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
            overwrite.delete_data_file(file)
            overwrite.append_data_file(again)

    assert schema.FIELD_IDS[schema.OFFSET] in file.lower_bounds
    await scene.refused(describe_anew, "otherwise than the table does|and the commit says")
