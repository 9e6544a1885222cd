"""Rows of the tables of transactions, read and written within the caller's transaction."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bearlake.errors import Conflict
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.packing import pack_rows, unpack_rows
from bearlake.metadata.transactions import NOTHING_OPEN, Transaction, TransactionState

_CHANGED = (
    "producer_id, epoch, state, timeout_ms, last_producer_id, last_epoch, started_ms, changed_ms, partitions,"
    " consumer_groups, version"
)
_COLUMNS = f"name, {_CHANGED}"

FIND = f"SELECT {_COLUMNS} FROM transactional_ids WHERE name = ?"

_UPDATE = f"UPDATE transactional_ids SET ({_CHANGED}) = ({', '.join('?' * 11)}) WHERE name = ? AND version = ?"

_INSERT = (
    f"INSERT INTO transactional_ids ({_CHANGED}, name) VALUES ({', '.join('?' * 12)}) ON CONFLICT (name) DO NOTHING"
)

_LISTED = _COLUMNS.replace("partitions, consumer_groups", "X'', '[]'")


def find(connection: sqlite3.Connection, name: str) -> Transaction | None:
    """Return the row of a transactional id."""
    return first_row(connection.execute(FIND, (name,)))


def first_row(cursor: sqlite3.Cursor) -> Transaction | None:
    """Return the first row of a cursor over the columns of `FIND`; None if there is none."""
    row = cursor.fetchone()
    return None if row is None else _row(*row)


def by_producer(connection: sqlite3.Connection, producer_id: int) -> Transaction | None:
    """Return the row of a producer id."""
    return first_row(
        connection.execute(f"SELECT {_COLUMNS} FROM transactional_ids WHERE producer_id = ?", (producer_id,))
    )


def page(connection: sqlite3.Connection, after: str, limit: int, *, is_ongoing: bool) -> list[Transaction]:
    """Return the next rows by name, without partitions and groups."""
    condition = "started_ms >= 0 AND " if is_ongoing else ""
    query = f"SELECT {_LISTED} FROM transactional_ids WHERE {condition}name > ? ORDER BY name LIMIT ?"
    return [_row(*row) for row in connection.execute(query, (after, limit))]


def write(connection: sqlite3.Connection, after: Transaction, version: int, now_ms: int) -> Transaction:
    """Replace the row of version `version` (0: none); returns it as stored. Raises `Conflict`."""
    started_ms = -1 if not after.is_ongoing else now_ms if after.started_ms < 0 else after.started_ms
    stored = replace(after, version=version + 1, started_ms=started_ms, changed_ms=now_ms)
    values = (
        stored.producer_id,
        stored.epoch,
        stored.state,
        stored.timeout_ms,
        stored.last_producer_id,
        stored.last_epoch,
        stored.started_ms,
        stored.changed_ms,
        pack_rows([(key,) for key in sorted(stored.partitions)], 1),
        json.dumps(sorted(stored.groups)),
        stored.version,
        stored.transactional_id,
    )
    replaced = connection.execute(_UPDATE, (*values, version)) if version else connection.execute(_INSERT, values)
    if not replaced.rowcount:
        raise changed(after.transactional_id, version)
    return stored


def changed(name: str, version: int) -> Conflict:
    """Return the error of a row that does not have this version."""
    return Conflict(f"the transactional id {name!r} has changed since version {version}")


def has_pending(connection: sqlite3.Connection, producer_id: int) -> bool:
    """Return whether the transaction of this producer id has offsets of groups: most have none."""
    find = "SELECT 1 FROM pending_offsets WHERE producer_id = ? LIMIT 1"
    return connection.execute(find, (producer_id,)).fetchone() is not None


def open_offset(connection: sqlite3.Connection, partition: int) -> int:
    """Return the smallest first offset of the partition's open transactions; -1 if there are none."""
    (first,) = connection.execute(
        "SELECT min(first_offset) FROM open_transactions WHERE partition = ?", (partition,)
    ).fetchone()
    return NOTHING_OPEN if first is None else int(first)


def open_offsets(connection: sqlite3.Connection, partitions: Sequence[int]) -> dict[int, int]:
    """Return the smallest first offset of the open transactions of each partition; leaves out partitions without open transactions."""
    return dict(
        connection.execute(
            "SELECT partition, min(first_offset) FROM open_transactions"
            " WHERE partition IN (SELECT value FROM json_each(?)) GROUP BY partition",
            (json.dumps(partitions),),
        ).fetchall()
    )


def begin(connection: sqlite3.Connection, firsts: Mapping[tuple[PartitionKey, int], int]) -> set[tuple[int, int]]:
    """Register open transactions, by partition and producer id; returns those that were not open."""
    begun = connection.execute(
        "INSERT OR IGNORE INTO open_transactions"
        " SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?)"
        " RETURNING partition, producer_id",
        (json.dumps([(*place, first) for place, first in firsts.items()]),),
    )
    return set(begun.fetchall())


def has_open(connection: sqlite3.Connection) -> bool:
    """Return whether any transaction is open: usually none is, and then bounds need no look-up."""
    return connection.execute("SELECT 1 FROM open_transactions LIMIT 1").fetchone() is not None


def _row(
    name: str,
    producer_id: int,
    epoch: int,
    state: int,
    timeout_ms: int,
    last_producer_id: int,
    last_epoch: int,
    started_ms: int,
    changed_ms: int,
    partitions: bytes,
    groups: str,
    version: int,
) -> Transaction:
    return Transaction(
        transactional_id=name,
        producer_id=producer_id,
        epoch=epoch,
        state=TransactionState(state),
        timeout_ms=timeout_ms,
        last_producer_id=last_producer_id,
        last_epoch=last_epoch,
        started_ms=started_ms,
        changed_ms=changed_ms,
        partitions=frozenset(PartitionKey(key) for (key,) in unpack_rows(partitions, 1)),
        groups=frozenset(json.loads(groups)),
        version=version,
    )


def close(connection: sqlite3.Connection, producer_id: int) -> Sequence[tuple[PartitionKey, int]]:
    """Delete a producer's open transactions; returns partition and first offset of each, by partition."""
    return sorted(
        connection.execute(
            "DELETE FROM open_transactions WHERE producer_id = ? RETURNING partition, first_offset", (producer_id,)
        ).fetchall()
    )
