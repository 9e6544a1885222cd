"""What a data file says of itself is not believed if it cannot be: about its CRCs, its row groups, its columns, its typed columns."""

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bearlake.errors import Corrupt
from bearlake.metadata.model import ObjectKind, ObjectRef
from bearlake.objects import ByteRange
from bearlake.objects.memory import MemoryObjectStore
from bearlake.table import file_end, file_tail, footer
from bearlake.table.blocks import Rows
from bearlake.table.current_rows import parse_file, read_places
from bearlake.table.reader import DataFileReader, DataFileSettings
from bearlake.table.schema import FIELD_IDS, KEY, METADATA_KEY, OFFSET, PARTITION_ID, TIMESTAMP
from bearlake.table.sparse import SparseFile
from bearlake.table.typed_footer import FOOTER_NAME, decode_footer
from fixtures.avro_cases import number, record
from fixtures.file_ends import TRAILER_BYTES, footer_bytes, read, with_crcs, without_crcs
from fixtures.typed_values import ValueFile, framed, plan_of, writer_schema

PLAN = plan_of({7: writer_schema(record("long"))})
VALUES = [[[framed(7, number(at)) for at in range(40)]], [[framed(7, number(at)) for at in range(40, 80)]]]
PLANS = {"raw": None, "elide": PLAN}
SECTOR_BYTES = 512
ROW_GROUPS_BEFORE_SCHEMA = bytes.fromhex("491c00 09042c 55020015 020000 00")
"""A footer: one row group without columns (field 4), then the schema (field 2) of a root with one column of type INT32."""
Parse = Any


def file_of(mode: str) -> ValueFile:
    return ValueFile(PLANS[mode], VALUES)


def content_of(mode: str) -> bytes:
    return b"".join(file_of(mode).finished.parts)


@pytest.mark.parametrize("mode", PLANS)
async def test_damage_that_hits_the_trailer_too_is_found(mode: str) -> None:
    content, rng = content_of(mode), random.Random(mode)
    trailer = len(content) - footer_bytes(content) - TRAILER_BYTES

    for _ in range(20):
        start = max(0, trailer + TRAILER_BYTES - 1 - rng.randrange(SECTOR_BYTES))
        damaged = bytearray(content)
        damaged[start : trailer + TRAILER_BYTES] = bytes(trailer + TRAILER_BYTES - start)
        with pytest.raises(Corrupt, match="CRC"):
            await read(bytes(damaged))
        with pytest.raises(Corrupt, match="CRC"):
            parse_file(memoryview(damaged))


@pytest.mark.parametrize("count", [1, 2 * 11 + 1])
@pytest.mark.parametrize("parse", [footer.parse, parse_file])
def test_a_file_with_too_few_or_too_many_crcs_is_refused(count: int, parse: Parse) -> None:
    content = with_crcs(without_crcs(content_of("raw")), bytes(4 * count))

    with pytest.raises(Corrupt, match="not one for each column chunk"):
        parse(memoryview(content))


def test_a_number_of_crcs_that_no_footer_has_does_not_make_us_read_the_file() -> None:
    content = without_crcs(content_of("raw"))
    end = footer_bytes(content)
    trailer = (2**32 - 1).to_bytes(4, "little") + bytes(4) + b"BLCRCS01"

    with pytest.raises(Corrupt, match="more CRCs"):
        file_tail.needed(memoryview(content[:-end] + trailer + content[-end:]), 10 << 30)


def test_row_groups_before_their_schema_are_refused() -> None:
    with pytest.raises(Corrupt, match="before their schema"):
        file_end.check(memoryview(ROW_GROUPS_BEFORE_SCHEMA))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"version": 1, "book_version": Infinity, "book": "", "schemas": {}, "crcs": [], "sizes": []}',
        '{"version": 1, "book_version": 1, "book": "", "schemas": {}, "crcs": [], "sizes": [1e999]}',
    ],
)
def test_a_text_about_typed_columns_that_is_none_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt, match="typed columns"):
        decode_footer(text.encode())


def test_typed_columns_of_other_row_groups_are_refused() -> None:
    described = pq.read_metadata(pa.BufferReader(content_of("elide"))).metadata[FOOTER_NAME]
    content = foreign([pa.array([0], pa.int32()), pa.array([0]), times()], {FOOTER_NAME: described})

    with pytest.raises(Corrupt, match="other row groups"):
        parse_file(memoryview(content))


def test_offsets_that_are_no_numbers_are_refused() -> None:
    content = foreign([pa.array([0], pa.int32()), pa.array(["0"]), times()])

    with pytest.raises(Corrupt, match="must be integers"):
        parse_file(memoryview(content))


def test_times_that_are_no_numbers_are_refused() -> None:
    content = foreign([pa.array([0], pa.int32()), pa.array([0]), pa.array([{"at": 1}])])
    file = SparseFile(len(content), [ByteRange(0, len(content))], [memoryview(content)])

    with pytest.raises(Corrupt, match="cast"):
        list(read_places(file, parse_file(memoryview(content)), 0, bytes_max=1 << 20))


async def test_a_time_is_not_looked_up_in_columns_of_other_names() -> None:
    whole = without_crcs(content_of("raw"))
    content = bytearray(whole)
    at = whole.index(OFFSET.encode(), len(whole) - footer_bytes(whole))  # in the schema
    content[at + 1] ^= 1
    store, ref = MemoryObjectStore(), ObjectRef("file", len(content), ObjectKind.PARQUET)
    await store.put("file", [content])
    reader = DataFileReader(store, DataFileSettings(thread_count=0))
    found = await reader.footer(ref)

    with pytest.raises(Corrupt, match=OFFSET):
        await reader.first_at(ref, found, 0, Rows(0, 0, 40), None)


def times() -> pa.Array:
    return pa.array([1], pa.timestamp("us", "UTC"))


def foreign(columns: Sequence[pa.Array], metadata: dict[bytes, bytes] | None = None) -> bytes:
    """A file of another engine, with one row: partition, offset, timestamp."""
    names = (PARTITION_ID, OFFSET, TIMESTAMP, KEY)
    arrays = [*columns, pa.array([b"key"])]
    fields = [
        pa.field(name, array.type, metadata={METADATA_KEY: str(FIELD_IDS[name]).encode()})
        for name, array in zip(names, arrays, strict=True)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata)), sink)
    return bytes(sink.getvalue())
