"""Which record of each key is the newest: the computation of current tables, in columns, without I/O.

**The rule.** Of the records of a key in one partition, the last by offset counts. A record is at least as new as those before it: its
*time* is the largest timestamp of the key's records in the partition up to it. Of several partitions, the record with the largest time
counts, then that of the larger partition. If it is a tombstone, the key has no row.

So (time, partition, offset) orders the records of a key, and the newest of two sets of records is the newer one of their newest ones. A
round needs only the newest record so far of each key, with its time. What the rows of the table do not tell is *remembered* beside them, in
the footers of their files: the places and times of tombstones, and the times of rows that differ from their timestamps. Without them, an
older record that another partition gets later would come back.

    newest   key, partition, offset, time     one row per key and partition, or per key
"""

import base64
import zlib
from collections.abc import Sequence
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg_core import transform

from bearlake.errors import Corrupt, Invalid
from bearlake.table.ipc_message import is_compressed

FOOTER_NAME: Final = "bearlake.current.remembered"
"""Key of a data file's footer: what is remembered beside its rows, as Arrow's IPC stream, deflated, in Base64."""
REMEMBERED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Memory (bytes) of what one bucket remembers: readers of its file read the footer. Beyond that, the oldest times are forgotten."""
_ENCODED_BYTES_MAX: Final = 4 * REMEMBERED_BYTES_MAX

SCHEMA: Final = pa.schema(
    [("key", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64()), ("time", pa.int64())]
)
"""Columns of places: `time` in µs."""
Places: TypeAlias = pa.Table
"""Keys with the places of records, as `SCHEMA`."""
_TOMBSTONE: Final = "is_tombstone"
REMEMBERED_SCHEMA: Final = SCHEMA.append(pa.field(_TOMBSTONE, pa.bool_()))


def no_places() -> Places:
    """Return no places."""
    return SCHEMA.empty_table()


def nothing_remembered() -> pa.Table:
    """Return an empty memory."""
    return REMEMBERED_SCHEMA.empty_table()


def newest_by_partition(parts: Sequence[Places]) -> Places:
    """Return the newest place of each key and partition, with the largest time. Rows without a key do not count."""
    rows = pa.concat_tables(parts).filter(pc.field("key").is_valid())
    found = rows.group_by(["key", "partition"], use_threads=False).aggregate([("offset", "max"), ("time", "max")])
    return found.rename_columns(SCHEMA.names).cast(SCHEMA)


def newest(places: Places) -> Places:
    """Return the newest place of each key, of the newest ones of each partition."""
    if places.num_rows == 0:
        return places
    indices = _only(places["key"]).dictionary_encode().indices
    ordered = places.append_column("index", indices)
    order = [("index", "ascending"), ("time", "ascending"), ("partition", "ascending")]
    ordered = ordered.take(pc.sort_indices(ordered, sort_keys=order))
    index = _only(ordered["index"])
    is_last = pa.concat_arrays([pc.not_equal(index[1:], index[:-1]), pa.array([True])])
    return ordered.filter(is_last).select(SCHEMA.names)


def of_keys(rows: pa.Table, keys: pa.Array, column: str = "key") -> pa.Table:
    """Return the rows whose key is one of `keys`."""
    return rows.filter(pc.is_in(rows[column], value_set=keys))


def of_keys_of(rows: Places, others: Places) -> Places:
    """Return the places whose key others have."""
    return of_keys(rows, _only(others["key"]))


def joined(parts: Sequence[pa.Table]) -> pa.Table:
    """Return all rows; there is at least one table."""
    return pa.concat_tables(parts).combine_chunks()


def without_keys(rows: pa.Table, keys: pa.Array, column: str = "key") -> pa.Table:
    """Return the rows whose key is none of `keys`."""
    return rows.filter(pc.invert(pc.is_in(rows[column], value_set=keys)))


def with_times(rows: Places, remembered: pa.Table) -> Places:
    """Return the places of a table's rows with the times that are remembered, and the places of tombstones."""
    if remembered.num_rows == 0:
        return rows
    live = remembered.filter(pc.invert(remembered[_TOMBSTONE]))
    at = pc.index_in(_only(rows["key"]), value_set=_only(live["key"]))
    times = pc.coalesce(_only(live["time"]).take(at), _only(rows["time"]))
    gone = remembered.filter(remembered[_TOMBSTONE]).select(SCHEMA.names)
    return pa.concat_tables([rows.set_column(3, SCHEMA.field(3), times), gone])


def remembered_after(
    remembered: pa.Table, changed: Places, timestamps: pa.Array, is_tombstone: pa.Array, *, forget_before: int
) -> pa.Table:
    """Return what is remembered once the records at `changed`, with these timestamps (µs), are the newest of their keys.

    Times before `forget_before` (µs) are forgotten, and the oldest ones beyond `REMEMBERED_BYTES_MAX`.
    """
    kept = without_keys(remembered, _only(changed["key"]))
    flagged = changed.append_column(REMEMBERED_SCHEMA.field(_TOMBSTONE), is_tombstone)
    differs = pc.or_(is_tombstone, pc.greater(_only(changed["time"]), timestamps))
    found = pa.concat_tables([kept, flagged.filter(differs)])
    found = found.filter(pc.greater_equal(found["time"], forget_before)).combine_chunks()
    if found.nbytes <= REMEMBERED_BYTES_MAX:
        return found
    newest_first = found.take(pc.sort_indices(found, sort_keys=[("time", "descending")]))
    return newest_first.slice(0, found.num_rows * REMEMBERED_BYTES_MAX // found.nbytes).combine_chunks()


def bucket_of(keys: pa.Array, bucket_count: int) -> pa.Array:
    """Return each key's bucket, as Iceberg's transform `bucket` computes it; null for null."""
    return transform.bucket(keys, bucket_count)


def encode_remembered(remembered: pa.Table) -> str:
    """Return the text for a data file's footer."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, REMEMBERED_SCHEMA) as writer:
        writer.write_table(remembered.cast(REMEMBERED_SCHEMA))
    return base64.b64encode(zlib.compress(sink.getvalue())).decode()


def decode_remembered(text: bytes | None) -> pa.Table:
    """Return what a data file remembers. Raises `Corrupt`."""
    if text is None:
        return nothing_remembered()
    try:
        inflate = zlib.decompressobj()
        octets = inflate.decompress(base64.b64decode(text, validate=True), _ENCODED_BYTES_MAX)
        if not inflate.eof:
            raise Corrupt(f"a data file remembers more than {_ENCODED_BYTES_MAX} bytes")
        if any(map(_may_expand, pa.ipc.MessageReader.open_stream(octets))):
            raise Corrupt("what a data file of a current table remembers is compressed twice")
        with pa.ipc.open_stream(octets) as reader:
            found = reader.read_all()
        found.validate(full=True)
        return found.cast(REMEMBERED_SCHEMA)
    except (ValueError, zlib.error, pa.ArrowException, Invalid) as error:
        raise Corrupt(f"what a data file of a current table remembers: {error!r}") from error


def _may_expand(message: pa.ipc.Message) -> bool:
    """Return whether a message may become more bytes than it has: it is compressed, or of a kind that rounds do not write."""
    return message.type != "schema" and (message.type != "record batch" or is_compressed(message.metadata))


def _only(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([*column.chunks, pa.array([], column.type)])
