"""The table of a stream: Parquet data files, an Apache Iceberg table that lists them, and the way back to record batches.

One copy: the data files serve SQL engines through the table and Kafka consumers through the segment index. This file has the
interface and needs neither pyarrow nor pyiceberg; `table/model.py` has the values.

    model.py    what a data file is to the table; marks and commits
    schema.py   columns and field ids; Arrow and Iceberg forms of them
    writer.py   rows → Parquet file (+ its `DataFile`)       reader.py   row groups → record batches
    iceberg.py  `Tables` on PyIceberg, by threads of its own     marks.py  which tasks a table has seen; pure
    naming.py   a stream's table name and folder             lookup.py  finding and making a stream's table
    io.py       Iceberg's metadata files through our object store
    catalog.py  the catalog (SQLite, PostgreSQL, REST)       commit.py  append and replace, exactly once
    upkeep.py   snapshot expiry, which files live snapshots name
    query.py    SQL over tables (DuckDB)                     foreign.py  the libraries' errors into ours

Columns (field ids in `schema.py`): `_partition_id int`, `_offset long`, `_timestamp timestamptz`, `_key binary`,
`_headers list<struct<key string, value binary>>`, `_value binary`, and `_batch struct<base_offset long, attributes int,
producer_id long, producer_epoch int, base_sequence int>`: the record batch that the row came in, so that consumers get the same
batches before and after compaction (I6).
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol, TypeAlias

from bearlake.metadata.model import Stream
from bearlake.table.model import TableCommit, TableState, TableSummary, Unmergeable

CommitCheck: TypeAlias = Callable[[], Awaitable[None]]
"""Asked in each try of a commit, behind the load of the version that it replaces. What it raises ends the commit."""


async def unchecked() -> None:
    """The `CommitCheck` of a caller that nobody can overtake."""


PredecessorCheck: TypeAlias = Callable[[], Awaitable[bool]]
"""Whether an older stream, deleted or not, may have had a table of the name that a stream's new table would have."""


async def no_predecessor() -> bool:
    """The `PredecessorCheck` of a caller that knows all streams."""
    return False


class Tables(Protocol):
    """The tables of all streams in one catalog. Every method raises `Unavailable` when the catalog or the object store did not answer.

    The catalog's libraries block: implementations call them on their own threads, bounded, and with deadlines.
    """

    async def ensure(self, stream: Stream, *, has_predecessor: PredecessorCheck = no_predecessor) -> TableState:
        """The stream's table, created if it does not exist.

        `has_predecessor` is asked before a creation if the catalog drops tables by name only, as Iceberg REST does: a late drop of a
        predecessor's table would hit a new one of the same name, so that one is `<name>_<first 8 digits of the id>` (decision 97).

        Raises:
            Conflict: the table exists and belongs to somebody else, or its columns are not ours.
        """

    async def state(self, stream: Stream) -> TableState | None:
        """The stream's table as it is now; None when there is none."""

    async def commit(
        self, stream: Stream, commit: TableCommit, *, closed_tasks: Collection[int], check: CommitCheck = unchecked
    ) -> TableState:
        """Add and remove data files, with the tasks' marks, in one atomic commit; exactly once per task.

        Looks first whether marks are there already: a task whose ends the table has reached is not applied again, whichever epoch did
        it (`TableState.applied` says which). Each try is conditional on the metadata that was looked at; conflicts with other
        writers are retried on fresh metadata, files are never rewritten. Marks of `closed_tasks` are dropped; all others stay (a list of
        open tasks would be old by now, and would drop the mark of a task that was offered since).

        Each try loads the table, asks `check`, and replaces exactly the version that it has loaded, however late the catalog
        executes the request. So whoever fences the table after `check` would have refused keeps this commit out for ever.

        Raises:
            Conflict: the table's ends contradict a task's starts (nothing was changed).
            Unmergeable: the table has not all rows of the files to remove (nothing was changed).
            Whatever `check` raises (nothing was changed).
            NotFound: the table was dropped.
            Unavailable: it may or may not have happened: call again, the marks decide.
        """

    async def fence(self, stream: Stream) -> TableState | None:
        """Replace the table's version by one with the same rows; the table as it is then, None when there is none.

        No commit that loaded the table before this call can happen after it returns.

        Raises:
            Unavailable: it may or may not have happened: call again.
        """

    async def is_absent(self, stream: Stream) -> bool | None:
        """Whether no table of the catalog, under any name, has its files in the stream's folder.

        None: there is none under the stream's names, but the catalog cannot tell whether it was renamed.
        """

    async def live_files(self, stream: Stream, keys: Collection[str]) -> set[str] | None:
        """Those of the data files that any snapshot of the table still names; None if the table is not under the stream's names now."""

    async def expire(self, stream: Stream, *, keep_ms: int, keep_count_min: int) -> int:
        """Expire snapshots older than `keep_ms` (the newest `keep_count_min` stay) and delete metadata files nothing names; how many."""

    async def delete_before(self, stream: Stream, timestamp_ms: int) -> int:
        """Remove data files from the table whose newest `_timestamp` is older: the table's own retention. How many were removed."""

    async def drop(self, stream: Stream) -> None:
        """Drop the table from the catalog; its files stay for the sweeper. Absent: no effect.

        Drops no table of anybody else, however late the catalog executes it: see `ensure` for catalogs that drop by name.
        """

    async def summary(self, stream: Stream) -> TableSummary | None:
        """Figures for people: files, rows, sizes, snapshots; None when there is no table."""

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
