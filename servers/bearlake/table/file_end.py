"""The end of a data file, parsed: the footer, and the CRCs of the column chunks, so that damage is found before anything is decoded.

pyarrow ends the process if metadata of a column chunk is impossible, such as another type than that of its column: its accessors let C++
exceptions through. So a footer without a CRC is read here first (decision 338).

Source: Apache Parquet format, `parquet.thrift` (FileMetaData).
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.objects import ByteRange
from bearlake.table import file_tail
from bearlake.table.compact_protocol import BINARY, Cursor, Malformed
from bearlake.table.file_tail import CRC
from bearlake.table.sparse import SparseFile

UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError)
"""Errors of pyarrow for damaged files; `ValueError` for names that are not UTF-8, `LookupError` for columns that are not there."""

# Fields of the structs of `parquet.thrift`
_SCHEMA, _ROW_GROUPS, _ENCRYPTION = 2, 4, 8
_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILD_COUNT = 1, 2, 3, 4, 5
_COLUMNS = 1
_META_DATA, _CRYPTO = 3, 8
_CHUNK_TYPE, _ENCODINGS, _CODEC, _STATISTICS, _SIZE_STATISTICS = 1, 2, 4, 12, 16
_BOUNDS = (1, 2, 5, 6)
"""Statistics: max and min in the old and the new form."""
_TEXT_BYTES, _REPETITION_COUNTS, _DEFINITION_COUNTS = 1, 2, 3
_OPTIONAL, _REPEATED = 1, 2
_ENCODING_MAX = 9
_CODEC_MAX = 7
_SIZES: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a bound, by physical type; byte arrays may have any."""
_FIXED: Final = 7
_DEPTH_MAX: Final = 200
"""Groups in each other. The deepest typed column has about 50."""
_BYTE_ARRAY: Final = 6
_ELEMENT_BYTES: Final = 1_100
"""Memory (bytes) of an element of the schema: in Thrift, Parquet and Arrow."""
_CHUNK_BYTES: Final = 600
"""Memory (bytes) of a column chunk besides its lists."""
_MEMORY_MIN: Final = 32 * 1024 * 1024
_MEMORY_RATIO: Final = 24
"""A footer may take `_MEMORY_MIN` of memory, and so many times its bytes. Engines' take up to about 20 times: a column's element of the
schema has at least 30 bytes, and a column chunk at least 70."""


class FileEnd(NamedTuple):
    """A parsed footer, and the CRCs of the column chunks by row group; none if the file has none."""

    metadata: pq.FileMetaData
    crcs: "array[int]"


class _Leaf(NamedTuple):
    """A column of the schema: its physical type, the bytes of a bound (-1: any), and its largest levels."""

    type: int
    bound_bytes: int
    repetition: int
    definition: int


class _Above(NamedTuple):
    """A group in which the next element of the schema is: its children that are still to come, its levels, and the bytes of its path.

    `prefixes`: the bytes of its path and of those of all groups in which it is.
    """

    left: int
    repetition: int
    definition: int
    path: int
    prefixes: int


_ROOT: Final = _Above(0, 0, 0, 0, 0)


def crcs_of(parts: Sequence[bytes], page_count: int, footer: pq.FileMetaData) -> bytes:
    """Return what our files have before their footer. `parts` are the file's, the first `page_count` of them pages, the others its end."""
    starts = list(accumulate(map(len, parts), initial=0))
    crcs = bytearray()
    for group in range(footer.num_row_groups):
        for chunk in chunks(footer, group):
            crcs += CRC.pack(kernel.crc32c(_joined(parts, starts, chunk)))
    return file_tail.block(bytes(crcs), b"".join(parts[page_count:]))


def read(tail: memoryview, *, is_ours: bool = True) -> FileEnd:
    """Parse the end of a data file; `tail` has the bytes that are `file_tail.needed`. `is_ours`: no other engine can have written it.

    Raises:
        Corrupt: the footer is damaged, or the CRCs of which it speaks are.
    """
    footer, content = file_tail.split(tail)
    if content is None or not is_ours:
        check(footer)
    metadata = _parsed(tail)
    crcs = array("I", [crc for (crc,) in CRC.iter_unpack(content or b"")])
    if content is None:
        claimed = (metadata.metadata or {}).get(file_tail.CRCS_NAME)
        if claimed is not None and claimed == b"%d" % _pages_end(metadata):
            raise Corrupt("data file: its CRCs are damaged")
    elif len(crcs) != metadata.num_row_groups * metadata.num_columns:
        raise Corrupt(f"data file: it has {len(crcs)} CRCs, not one for each column chunk")
    return FileEnd(metadata, crcs)


def read_foreign(tail: memoryview) -> pq.FileMetaData:
    """Parse the footer of a file that anybody may have written; `tail` has at least the footer. Raises `Corrupt`."""
    length = int.from_bytes(tail[-8:-4], "little")
    check(tail[-length - 8 : -8])
    return _parsed(tail)


def chunks(metadata: pq.FileMetaData, group: int) -> Iterator[ByteRange]:
    """Yield the byte ranges of a row group's column chunks."""
    row_group = metadata.row_group(group)
    for at in range(row_group.num_columns):
        column = row_group.column(at)
        start = start_of(column)
        yield ByteRange(start, start + column.total_compressed_size)


def _pages_end(metadata: pq.FileMetaData) -> int:
    """Return where the last page ends. A file that an engine wrote with the metadata of one of ours has other pages."""
    groups = range(metadata.num_row_groups)
    return max((chunk.end for group in groups for chunk in chunks(metadata, group)), default=len(file_tail.MAGIC))


def start_of(column: pq.ColumnChunkMetaData) -> int:
    """Return where a column chunk starts: at its dictionary, if any. Some writers say 0 if there is none."""
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < column.data_page_offset:
        return int(column.dictionary_page_offset)
    return int(column.data_page_offset)


def is_in(path: str, names: Collection[str]) -> bool:
    """Return whether pyarrow reads a Parquet column with this path when it is asked for columns with these names, which may have dots."""
    return path in names or any(prefix in names for prefix in accumulate(path.split("."), "{}.{}".format))


def check_chunks(file: SparseFile, metadata: pq.FileMetaData, crcs: "array[int]", group: int) -> None:
    """Compare the column chunks of a row group that `file` has with their CRCs, if there are any.

    Raises:
        Corrupt: a chunk is damaged.
    """
    if not crcs:
        return
    first = group * metadata.num_columns  # in time that does not grow with the row groups before
    for at, chunk in enumerate(chunks(metadata, group)):
        octets = file.loaded(chunk)
        if octets is not None and kernel.crc32c(octets) != crcs[first + at]:
            path = metadata.schema.column(at).path
            raise Corrupt(f"data file, row group {group}: the CRC of {path} does not match")


def check(footer: memoryview) -> None:
    """Raise `Corrupt` if pyarrow could end the process over the footer, or take much memory for few bytes."""
    try:
        _check_file(cursor := Cursor(footer))
        if cursor.memory_bytes > _MEMORY_MIN + _MEMORY_RATIO * len(footer):
            raise Malformed(f"its {len(footer)} bytes become {cursor.memory_bytes} bytes of memory")
    except (Malformed, IndexError) as error:
        raise Corrupt(f"footer of a data file: {error}") from error


def _check_file(cursor: Cursor) -> None:
    leaves: list[_Leaf] = []
    for number, kind in cursor.fields():
        if number == _SCHEMA:
            if leaves:
                raise Malformed("it has two schemas")
            leaves = _leaves((_element(cursor) for _ in cursor.structs(kind)), cursor)
        elif number == _ROW_GROUPS:
            if not leaves:
                raise Malformed("its row groups come before their schema")
            for _ in cursor.structs(kind):
                _check_row_group(cursor, leaves)
        elif number == _ENCRYPTION:
            raise Malformed("it is encrypted")
        else:
            cursor.skip(kind)


def _element(cursor: Cursor) -> dict[int, int]:
    """Read what counts of an element of the schema; of its name, the length."""
    found = {}
    for number, kind in cursor.fields():
        if number in (_TYPE, _TYPE_LENGTH, _REPETITION, _CHILD_COUNT):
            found[number] = cursor.integer(kind)
        elif number == _NAME:
            found[number] = cursor.size_of_binary(kind)
        else:
            cursor.skip(kind)
    return found


def _leaves(elements: Iterable[dict[int, int]], cursor: Cursor) -> list[_Leaf]:
    """Return the columns of a schema, whose elements are in the order of a walk from the root, which comes first.

    The cursor adds up their memory. pyarrow has the path of each column, and the paths of all groups in which it is.
    """
    leaves = []
    above: list[_Above] = []
    for at, element in enumerate(elements):
        while above and not above[-1][0]:
            above.pop()
        if at and not above:
            raise Malformed("its schema has two roots")
        left, repetition, definition, path, prefixes = above[-1] if above else _ROOT
        if at:
            above[-1] = above[-1]._replace(left=left - 1)
            path += element.get(_NAME, 0) + 1
            prefixes += path
            repeats = element.get(_REPETITION, 0)
            if not 0 <= repeats <= _REPEATED:
                raise Malformed(f"there is no repetition {repeats}")
            repetition += repeats == _REPEATED
            definition += repeats in (_OPTIONAL, _REPEATED)
        children = element.get(_CHILD_COUNT, 0)
        if children < 0 or len(above) > _DEPTH_MAX:
            raise Malformed("its schema is impossible")
        cursor.memory_bytes += _ELEMENT_BYTES
        if children or not at:
            above.append(_Above(children, repetition, definition, path, prefixes))
        else:
            leaves.append(_leaf(element, repetition, definition))
            cursor.memory_bytes += path + prefixes
    if any(group.left for group in above):
        raise Malformed("its schema has no end")
    return leaves


def _leaf(element: dict[int, int], repetition: int, definition: int) -> _Leaf:
    type_ = element.get(_TYPE, -1)
    if type_ not in _SIZES and type_ not in (_BYTE_ARRAY, _FIXED):
        raise Malformed(f"there is no physical type {type_}")
    bound_bytes = element.get(_TYPE_LENGTH, 0) if type_ == _FIXED else _SIZES.get(type_, -1)
    return _Leaf(type_, bound_bytes, repetition, definition)


def _check_row_group(cursor: Cursor, leaves: Sequence[_Leaf]) -> None:
    count = 0
    for number, kind in cursor.fields():
        if number != _COLUMNS:
            cursor.skip(kind)
            continue
        for _ in cursor.structs(kind):
            if count == len(leaves):
                raise Malformed("a row group has more columns than the schema")
            _check_chunk(cursor, leaves[count])
            count += 1
    if count != len(leaves):
        raise Malformed(f"a row group has {count} columns, the schema {len(leaves)}")


def _check_chunk(cursor: Cursor, leaf: _Leaf) -> None:
    cursor.memory_bytes += _CHUNK_BYTES
    is_described = False
    for number, kind in cursor.fields():
        if number == _META_DATA:
            cursor.must_be_struct(kind)
            _check_metadata(cursor, leaf)
            is_described = True
        elif number == _CRYPTO:
            raise Malformed("a column is encrypted")
        else:
            cursor.skip(kind)
    if not is_described:
        raise Malformed("a column chunk has no metadata")


def _check_metadata(cursor: Cursor, leaf: _Leaf) -> None:
    has_type = False
    for number, kind in cursor.fields():
        if number == _CHUNK_TYPE:
            has_type = True
            if cursor.integer(kind) != leaf.type:
                raise Malformed("a column chunk has another type than its column")
        elif number == _ENCODINGS:
            if any(not 0 <= encoding <= _ENCODING_MAX for encoding in cursor.integers(kind)):
                raise Malformed("there is no such encoding")
        elif number == _CODEC:
            if not 0 <= cursor.integer(kind) <= _CODEC_MAX:
                raise Malformed("there is no such codec")
        elif number == _STATISTICS:
            cursor.must_be_struct(kind)
            _check_statistics(cursor, leaf)
        elif number == _SIZE_STATISTICS:
            cursor.must_be_struct(kind)
            _check_sizes(cursor, leaf)
        else:
            cursor.skip(kind)
    if not has_type:
        raise Malformed("a column chunk has no type")


def _check_statistics(cursor: Cursor, leaf: _Leaf) -> None:
    for number, kind in cursor.fields():
        if number in _BOUNDS and kind == BINARY:
            size = cursor.size_of_binary(kind)
            if size != leaf.bound_bytes and leaf.bound_bytes >= 0:
                raise Malformed(f"a bound has {size} bytes, {leaf.bound_bytes} are expected")
        else:
            cursor.skip(kind)


def _check_sizes(cursor: Cursor, leaf: _Leaf) -> None:
    levels = {_REPETITION_COUNTS: leaf.repetition, _DEFINITION_COUNTS: leaf.definition}
    for number, kind in cursor.fields():
        if number in levels:
            count = cursor.count_of_list(kind)
            if count not in (0, levels[number] + 1):
                raise Malformed(f"{count} levels are counted, the column has {levels[number] + 1}")
        elif number == _TEXT_BYTES and leaf.type != _BYTE_ARRAY:
            raise Malformed("a column without texts counts their bytes")
        else:
            cursor.skip(kind)


def _parsed(tail: memoryview) -> pq.FileMetaData:
    try:
        return pq.read_metadata(pa.BufferReader(tail))
    except UNREADABLE as error:
        raise Corrupt(f"footer of a data file: {error}") from error


def _joined(parts: Sequence[bytes], starts: Sequence[int], chunk: ByteRange) -> bytes:
    """Return the bytes of a chunk of a file. `starts`: where its parts begin."""
    found = []
    for at in range(bisect_right(starts, chunk.start) - 1, len(parts)):
        if starts[at] >= chunk.end:
            break
        found.append(parts[at][max(0, chunk.start - starts[at]) : chunk.end - starts[at]])
    return b"".join(found)
