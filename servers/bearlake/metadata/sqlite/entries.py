"""Reading the commit log's entries from SQLite: no ledger is needed, so reads run on the reader's thread, in parallel with commits."""

from bearlake.errors import OutOfRange
from bearlake.metadata.model import NO_STREAM, Entries, Entry, EntryKind, PartitionKey
from bearlake.metadata.packing import RANGE_WIDTH, unpack_rows, unpack_slices
from bearlake.metadata.sqlite.catchup import COMMIT, SWAP, TRIM, read_heads
from bearlake.metadata.sqlite.database import Database
from bearlake.metadata.transactions import unpack_changes


def follow(database: Database, after: int, limit: int) -> Entries:
    """Return at most `limit` entries after position `after`. Raises `OutOfRange` if some of them are truncated."""
    with database.reading() as connection:
        heads = read_heads(connection)
        if after < heads.truncated:
            raise OutOfRange(
                f"log entries up to {heads.truncated} are truncated", start=heads.truncated, end=heads.head
            )
        rows = connection.execute(
            "SELECT position, kind, token, object_size, slices, partition, start_offset, stream_number, transactions FROM log"
            " WHERE position > ? ORDER BY position LIMIT ?",
            (after, limit),
        ).fetchall()
    return Entries(entries=[_entry(*row) for row in rows], head=heads.head)


def head(database: Database) -> int:
    """Return the position of the newest entry."""
    with database.reading() as connection:
        return read_heads(connection).head


def _entry(
    position: int,
    kind: int,
    token: str,
    size: int,
    slices: bytes,
    partition: PartitionKey,
    start: int,
    number: int,
    transactions: bytes | None,
) -> Entry:
    if kind == COMMIT:
        return Entry(
            position=position,
            kind=EntryKind.COMMIT,
            object_key=token,
            object_size=size,
            slices=unpack_slices(slices),
            changes=unpack_changes(transactions) if transactions else (),
        )
    if kind == TRIM:
        return Entry(position=position, kind=EntryKind.TRIM, partition=partition, start_offset=start)
    if kind == SWAP:
        ranges = [(PartitionKey(key), start, end) for key, start, end in unpack_rows(slices, RANGE_WIDTH)]
        return Entry(position=position, kind=EntryKind.SWAP, ranges=ranges)
    if number == NO_STREAM:
        return Entry(position=position, kind=EntryKind.POLICY)
    return Entry(position=position, kind=EntryKind.STREAM, stream_number=number)
