"""Rows of the tables of transactions, read and written within the caller's transaction."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from bearlake.errors import Conflict
from bearlake.metadata.model import PartitionKey
from bearlake.metadata.packing import pack_rows, unpack_rows
from bearlake.metadata.transactions import NOTHING_OPEN, Transaction, TransactionState

_COLUMNS = (
    "name, producer_id, epoch, state, timeout_ms, last_producer_id, last_epoch, started_ms, changed_ms,"
    " partitions, consumer_groups, version"
)

_LISTED = _COLUMNS.replace("partitions, consumer_groups", "X'', '[]'")


def find(connection: sqlite3.Connection, name: str) -> Transaction | None:
    """Return the row of a transactional id."""
    found = select(connection, "name = ?", name)
    return found[0] if found else None


def by_producer(connection: sqlite3.Connection, producer_id: int) -> Transaction | None:
    """Return the row of a producer id."""
    found = select(connection, "producer_id = ?", producer_id)
    return found[0] if found else None


def select(connection: sqlite3.Connection, condition: str, *parameters: object) -> list[Transaction]:
    """Return the rows that fulfil the condition."""
    query = f"SELECT {_COLUMNS} FROM transactional_ids WHERE {condition}"
    return [_row(*row) for row in connection.execute(query, parameters)]


def page(connection: sqlite3.Connection, after: str, limit: int, *, is_ongoing: bool) -> list[Transaction]:
    """Return the next rows by name, without partitions and groups."""
    condition = "started_ms >= 0 AND " if is_ongoing else ""
    query = f"SELECT {_LISTED} FROM transactional_ids WHERE {condition}name > ? ORDER BY name LIMIT ?"
    return [_row(*row) for row in connection.execute(query, (after, limit))]


def write(connection: sqlite3.Connection, after: Transaction, version: int, now_ms: int) -> Transaction:
    """Replace the row of version `version` (0: none); returns it as stored. Raises `Conflict`."""
    found = connection.execute(
        "SELECT version FROM transactional_ids WHERE name = ?", (after.transactional_id,)
    ).fetchone()
    if (found[0] if found else 0) != version:
        raise Conflict(f"the transactional id {after.transactional_id!r} has changed since version {version}")
    started_ms = -1 if not after.is_ongoing else now_ms if after.started_ms < 0 else after.started_ms
    stored = replace(after, version=version + 1, started_ms=started_ms, changed_ms=now_ms)
    connection.execute(
        f"INSERT OR REPLACE INTO transactional_ids ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            stored.transactional_id,
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
        ),
    )
    return stored


def open_offset(connection: sqlite3.Connection, partition: int) -> int:
    """Return the smallest first offset of the partition's open transactions; -1 if there are none."""
    (first,) = connection.execute(
        "SELECT min(first_offset) FROM open_transactions WHERE partition = ?", (partition,)
    ).fetchone()
    return NOTHING_OPEN if first is None else int(first)


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


def opened(connection: sqlite3.Connection, producer_id: int) -> Sequence[tuple[PartitionKey, int]]:
    """Return partition and first offset of a producer's open transactions, by partition."""
    return connection.execute(
        "SELECT partition, first_offset FROM open_transactions WHERE producer_id = ? ORDER BY partition", (producer_id,)
    ).fetchall()
