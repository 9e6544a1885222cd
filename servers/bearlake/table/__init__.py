"""The table of a stream: Parquet data files, the Apache Iceberg table that lists them, and the conversion back to record batches.

There is one copy of the data: SQL engines read the data files through the table, Kafka consumers through the segment index. This file
has the interface and needs neither pyarrow nor pyiceberg; `table/model.py` has the values.

    model.py    values: data files, applied tasks, commits   schema.py   columns, field ids, Arrow and Iceberg forms
    writer.py   rows → Parquet file (+ its `DataFile`)       reader.py   row groups → record batches
    iceberg.py  `Tables` on PyIceberg, on its own threads    applied_tasks.py  which tasks a table has applied; pure
    naming.py   a stream's table name and folder             lookup.py   finds and creates a stream's table
    creation.py permits of creations in SQL catalogs
    io.py       Iceberg's metadata files in our object store
    catalog.py  the catalog (SQLite, PostgreSQL, REST)       commit.py   append and replace, exactly once
    upkeep.py   snapshot expiry, files of live snapshots     query.py    SQL over tables (DuckDB)
    foreign.py  translates errors of the libraries           typed/      typed columns: schemas, values to columns and back

Columns (field ids in `schema.py`): `_partition_id int`, `_offset long`, `_timestamp timestamptz`, `_key binary`,
`_headers list<struct<key string, value binary>>`, `_value binary`, and `_batch struct<base_offset long, attributes int,
producer_id long, producer_epoch int, base_sequence int>`: the row's original record batch, so that consumers get the same batches
before and after compaction (I6).
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol, TypeAlias

from bearlake.metadata.model import Stream
from bearlake.table.model import TableCommit, TableState, TableSummary, Unmergeable

CommitCheck: TypeAlias = Callable[[], Awaitable[None]]
"""Called in each attempt of a commit, after the attempt has loaded the version that it replaces (or, for a creation, has read its permit).
An exception ends the call."""


async def unchecked() -> None:
    """The `CommitCheck` of a caller that cannot be fenced."""


PredecessorCheck: TypeAlias = Callable[[], Awaitable[bool]]
"""Returns whether an older stream, deleted or not, may have had a table of the name of a stream's new table."""


async def no_predecessor() -> bool:
    """The `PredecessorCheck` of a caller that knows all streams."""
    return False


class Tables(Protocol):
    """The tables of all streams in one catalog. Every method raises `Unavailable` if the catalog or the object store does not answer.

    The catalog's libraries block: implementations call them on their own bounded threads, with deadlines.
    """

    async def ensure(
        self, stream: Stream, *, has_predecessor: PredecessorCheck = no_predecessor, check: CommitCheck = unchecked
    ) -> TableState:
        """Return the stream's table; create it if it does not exist.

        If the catalog drops tables by name only, as Iceberg REST does, a late drop of a predecessor's table could drop a new table of the
        same name. Before a creation in such a catalog, `has_predecessor` is called; if True, the table is named
        `<name>_<first 8 digits of the id>` (decision 97).

        Each attempt to create the table calls `check`, whose exception ends the call. In a SQL catalog, the attempt reads its permit first
        (decision 111): once `check` would refuse, `drop` or `is_absent` excludes the creation permanently.

        Raises:
            Conflict: the table's names are taken by other tables, or its columns are not ours.
        """

    async def state(self, stream: Stream) -> TableState | None:
        """Return the stream's table in its current state, or None."""

    async def commit(
        self, stream: Stream, commit: TableCommit, *, closed_tasks: Collection[int], check: CommitCheck = unchecked
    ) -> TableState:
        """Add and remove data files, and record their tasks as applied, in one atomic commit; exactly once per task.

        Reads the applied tasks first: a task whose ends the table has reached is not applied again, whichever epoch applied it (see
        `TableState.applied`). Each attempt is conditional on the metadata it has read. Conflicts with other writers are retried on fresh
        metadata, without rewriting files. Forgets `closed_tasks` and no other task (a list of open tasks could be
        stale, and would forget a task offered since).

        Each attempt loads the table, calls `check`, and replaces exactly the version it has loaded, however late the catalog executes the
        request. A fence placed once `check` would refuse therefore excludes this commit permanently.

        Raises:
            Conflict: the table's ends contradict a task's starts (nothing was changed).
            Unmergeable: rows of the files to remove are missing from the table (nothing was changed).
            Any exception of `check` (nothing was changed).
            NotFound: the table was dropped.
            Unavailable: commit outcome unknown. Call again; the applied tasks decide.
        """

    async def fence(self, stream: Stream) -> TableState | None:
        """Replace the table's version by a version with the same rows; return the table's new state, or None if there is no table.

        A commit that loaded the table before this call cannot happen after it returns.

        Raises:
            Unavailable: outcome unknown. Call again.
        """

    async def is_absent(self, stream: Stream) -> bool | None:
        """Return whether no table in the catalog, under any name, has its files in the stream's folder.

        True also excludes every creation of the table that began earlier, however late the catalog executes it. None: no table exists
        under the stream's names, but the catalog cannot tell whether the table was renamed, and may execute a creation later.
        """

    async def live_files(self, stream: Stream, keys: Collection[str]) -> set[str] | None:
        """Return the `keys` that any snapshot of the table still names; None if the catalog does not find the table."""

    async def expire(self, stream: Stream, *, keep_ms: int, keep_count_min: int, needed: Collection[int] = ()) -> int:
        """Expire snapshots older than `keep_ms`, except the newest `keep_count_min` and those whose ids are `needed`.

        Returns how many metadata files it deleted.
        """

    async def delete_before(self, stream: Stream, timestamp_ms: int) -> int:
        """Remove data files whose newest `_timestamp` is older: the table's own retention. Returns how many."""

    async def drop(self, stream: Stream) -> None:
        """Drop the table from the catalog; no-op if absent. The sweeper deletes the table's files.

        In a SQL catalog, a creation that began before the call cannot happen after it.

        Never drops another owner's table, however late the catalog executes the drop: see `ensure` for catalogs that drop by name.
        """

    async def summary(self, stream: Stream) -> TableSummary | None:
        """Return statistics for display (files, rows, sizes, snapshots), or None if there is no table."""

    async def close(self) -> None:
        """Release threads and connections."""


__all__ = [
    "CommitCheck",
    "PredecessorCheck",
    "TableCommit",
    "TableState",
    "TableSummary",
    "Tables",
    "Unmergeable",
    "no_predecessor",
    "unchecked",
]
