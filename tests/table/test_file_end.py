"""Damage of a data file, in whatever part of it, is found before consumers, merges or current tables get anything of it.

The bytes of a file are changed bit by bit at random. Footers without CRCs, and those that other engines write, must not end the process.
"""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.errors import Corrupt
from bearlake.metadata.model import ObjectKind, ObjectRef
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table import file_end, file_tail
from bearlake.table.current_rows import parse_file
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.rows import read_rows
from bearlake.table.sparse import SparseFile
from bearlake.table.value_plan import ValuePlan
from fixtures.avro_cases import number, record, text
from fixtures.file_ends import footer_bytes, read, without_crcs
from fixtures.typed_values import ValueFile, framed, plan_of, writer_schema

SCHEMAS = {7: writer_schema(record("long", "string", "double"))}
PLANS = {"raw": None, "keep": plan_of(SCHEMAS, elides=False), "elide": plan_of(SCHEMAS)}
CHANGE_COUNT = 150
TYPE_OF_A_CHUNK = b"\x15\x02\x19"
"""In a footer: the field `type` of a column chunk, INT32, before its encodings."""


def value(at: int) -> bytes:
    noise = random.Random(at).randbytes(8)
    return framed(7, number(at * 7919) + text(f"note {at % 13} of the customer {at % 7}") + noise)


def file_of(plan: ValuePlan | None) -> ValueFile:
    """Two row groups; one value is not given back by its columns."""
    values = [value(at) for at in range(120)]
    values[7] = framed(7, b"\x82\x00" + value(1)[6:])
    return ValueFile(plan, [[values[:60]], [values[60:]]], key_at=lambda offset: b"key-%d" % offset)


def content_of(file: ValueFile) -> bytes:
    return b"".join(file.finished.parts)


def changed(content: bytes, rng: random.Random, first: int = 0) -> bytes:
    """One bit from the byte `first` on is another one."""
    out = bytearray(content)
    bit = rng.randrange(8 * first, 8 * len(out))
    out[bit >> 3] ^= 1 << (bit & 7)
    return bytes(out)


@pytest.mark.parametrize("mode", PLANS)
async def test_consumers_get_the_right_bytes_or_an_error_whichever_bit_changes(mode: str) -> None:
    file = file_of(PLANS[mode])
    content, expected, rng = content_of(file), b"".join(file.batches), random.Random(mode)
    assert await read(content) == expected

    found_count = 0
    for _ in range(CHANGE_COUNT):
        try:
            assert await read(changed(content, rng)) == expected
        except Corrupt:
            found_count += 1

    assert found_count > CHANGE_COUNT // 3


async def test_a_merge_takes_no_row_of_a_damaged_chunk() -> None:
    content = content_of(file_of(None))
    rng = random.Random(5)
    file = SparseFile(len(content), [ByteRange(0, len(content))], [memoryview(content)])
    store = MemoryObjectStore()
    await store.put("file", [content])
    footer = await DataFileReader(store, DataFileSettings(thread_count=0)).footer(
        ObjectRef("file", len(content), ObjectKind.PARQUET)
    )
    pages_end = max(group.end for group in footer.groups)
    expected = read_rows(file, footer, 0)
    own = footer.groups[0]

    for _ in range(50):
        damaged = changed(content[:pages_end], rng, own.start)[: own.end] + content[own.end :]
        if damaged == content:
            continue
        with pytest.raises(Corrupt, match="CRC"):
            read_rows(SparseFile(len(content), [ByteRange(0, len(content))], [memoryview(damaged)]), footer, 0)
    assert expected.num_rows == 60


async def test_a_file_without_crcs_is_read_as_before() -> None:
    file = file_of(PLANS["elide"])

    content = without_crcs(content_of(file))

    assert len(content) < file.finished.file.size
    assert await read(content) == b"".join(file.batches)


@pytest.mark.parametrize("first_bytes", [8, 20, 4_000])
async def test_the_end_of_a_file_is_found_however_few_bytes_are_read_first(first_bytes: int) -> None:
    content = content_of(file_of(PLANS["elide"]))
    store = MemoryObjectStore()
    await store.put("file", [content])
    reader = DataFileReader(store, DataFileSettings(thread_count=0, footer_bytes=first_bytes))

    footer = await reader.footer(ObjectRef("file", len(content), ObjectKind.PARQUET))

    assert len(footer.crcs) == 2 * footer.metadata.num_columns


async def test_a_file_that_ends_within_its_crcs_is_refused() -> None:
    content = content_of(file_of(None))
    end = footer_bytes(content) + 16

    with pytest.raises(Corrupt):
        await read(b"PAR1" + content[-end - 8 :])


def with_other_type(content: bytes) -> bytes:
    """The first column chunk claims to have another type than its column."""
    at = content.index(TYPE_OF_A_CHUNK, len(content) - footer_bytes(content))
    return content[: at + 1] + b"\x04" + content[at + 2 :]


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_chunk_of_another_type_than_its_column_is_refused(is_ours: bool) -> None:
    content = without_crcs(content_of(file_of(None)))
    file_end.read(memoryview(content), is_ours=is_ours)
    assert file_end.read_foreign(memoryview(content)).num_rows == 120

    damaged = memoryview(with_other_type(content))

    with pytest.raises(Corrupt, match="another type"):
        file_end.read(damaged, is_ours=is_ours)
    with pytest.raises(Corrupt, match="another type"):
        file_end.read_foreign(damaged)
    with pytest.raises(Corrupt, match="another type"):
        parse_file(damaged)


def test_another_engine_cannot_make_a_footer_pass_with_crcs_of_its_own() -> None:
    content = with_other_type(without_crcs(content_of(file_of(None))))
    end = footer_bytes(content)
    signed = content[:-end] + file_tail.block(b"", content[-end:]) + content[-end:]

    with pytest.raises(Corrupt, match="another type"):
        parse_file(memoryview(signed))


OPTIONS: Sequence[dict[str, Any]] = (
    {},
    {"write_statistics": True, "version": "1.0"},
    {"data_page_version": "2.0", "compression": "snappy", "write_page_index": True, "write_page_checksum": True},
    {"compression": "none", "sorting_columns": [pq.SortingColumn(0)], "store_schema": False},
)


@pytest.mark.parametrize("options", OPTIONS)
def test_footers_of_other_writers_pass(options: dict[str, Any]) -> None:
    rows = pa.table(
        {
            "a": pa.array([1, None], pa.int32()),
            "b": pa.array([[{"x": 1.5, "y": b"1"}], []]),
            "c": pa.array([b"1234", b"5678"], pa.binary(4)),
            "d": pa.array([True, None]),
            "e": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "f": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, **options)

    assert file_end.read_foreign(memoryview(sink.getvalue().to_pybytes())).num_rows == 2


DAMAGE = """
import random, sys
from bearlake.errors import Corrupt, Unsupported
from bearlake.table import file_end, footer
from bearlake.table.current_rows import parse_file
content, rng = bytearray(sys.stdin.buffer.read()), random.Random(11)
size = int.from_bytes(content[-8:-4], "little") + 8
for _ in range(1500):
    damaged = bytearray(content[-size:])
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(size - 8)
        damaged[at] = rng.choice((damaged[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
    for parse in (footer.parse, parse_file, file_end.read_foreign):
        try:
            found = parse(memoryview(bytes(damaged)))
            metadata = getattr(found, "metadata", found)
            if not hasattr(metadata, "num_row_groups"):
                metadata = found
            for group in range(metadata.num_row_groups):
                for column in range(metadata.row_group(group).num_columns):
                    chunk = metadata.row_group(group).column(column)
                    str(chunk.compression), chunk.physical_type, chunk.statistics and chunk.statistics.has_min_max
        except (Corrupt, Unsupported, ValueError, OSError):
            pass
print("whole")
"""


@pytest.mark.parametrize("mode", PLANS)
def test_no_footer_ends_the_process(mode: str) -> None:
    content = without_crcs(content_of(file_of(PLANS[mode])))

    done = subprocess.run([sys.executable, "-c", DAMAGE], input=content, capture_output=True, timeout=300, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"whole\n", b"")


def test_a_footer_of_duckdb_passes(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    columns = "1::int as a, [{'x': 1.5}] as b, map(['k'], [1::bigint]) as c, 'x'::blob as d, 1.25::decimal(9, 2) as e, null::uuid as f"

    duckdb.sql(f"copy (select {columns}) to '{path}' (format parquet)")

    assert file_end.read_foreign(memoryview(path.read_bytes())).num_rows == 1
