"""Checks that the object store has what a backup names.

Objects of the log are listed: one request per thousand objects. The metadata files of a table are looked up: an expired snapshot has lost
them, while the data files may still be there for newer snapshots.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from bearlake.app.backup.taking import TABLES_AT_ONCE
from bearlake.compaction.concurrency import run_all
from bearlake.errors import Corrupt, NotFound
from bearlake.objects import ObjectStore
from bearlake.table import backup as table_backup
from bearlake.table.backup import TableCopy
from bearlake.table.iceberg import IcebergTables

SHOWN_COUNT = 3


async def check_objects(
    listed: Path, store: ObjectStore, *, may_lack: bool, on_progress: Callable[[int], None]
) -> list[str]:
    """Return the keys in the file `listed` that the store lacks, or has with another size.

    Raises:
        NotFound: the store lacks some, and not `may_lack`.
        Corrupt: the file cannot be read.
        Unavailable: the store did not answer.
    """
    missing: list[str] = []
    count = 0
    for prefix, desired in groupby(_rows(listed), key=lambda row: row[0].partition("/")[0] + "/"):
        present = store.list(prefix)
        found = await anext(present, None)
        for key, size in desired:
            while found is not None and found.key < key:
                found = await anext(present, None)
            if found is None or found.key != key or found.size != size:
                missing.append(key)
            count += 1
            if count % 1_000 == 0:
                on_progress(count)
    _refuse(missing, f"{len(missing):,} of {count:,} objects", may_lack=may_lack)
    return missing


async def check_tables(
    copies: Collection[TableCopy], tables: IcebergTables, *, may_lack: bool, on_progress: Callable[[int], None]
) -> list[str]:
    """Return the locations of metadata files that the tables of the backup need and the store lacks: expired snapshots have none.

    Raises:
        NotFound: files are missing, and not `may_lack`.
        Corrupt: a copy cannot be read.
        Unavailable: the catalog or the store did not answer.
    """
    missing: list[str] = []
    count = 0
    turns = asyncio.Semaphore(TABLES_AT_ONCE)

    async def check_one(copy: TableCopy) -> None:
        nonlocal count
        async with turns:
            missing.extend(await table_backup.missing_files(tables, copy))
            count += 1
            on_progress(count)

    await run_all(check_one(copy) for copy in copies)
    _refuse(missing, f"{len(missing):,} metadata files of tables", may_lack=may_lack)
    return sorted(missing)


def _refuse(missing: Sequence[str], what: str, *, may_lack: bool) -> None:
    if not missing or may_lack:
        return
    shown = ", ".join(missing[:SHOWN_COUNT]) + (", …" if len(missing) > SHOWN_COUNT else "")
    raise NotFound(
        f"the object store lacks {what} that the backup names: {shown}. Their records would be lost:"
        " restore a newer backup, or pass --allow-missing"
    )


def _rows(listed: Path) -> Iterator[tuple[str, int]]:
    try:
        with listed.open(encoding="ascii") as lines:
            for line in lines:
                key, _, size = line.rstrip("\n").partition("\t")
                yield key, int(size)
    except (OSError, ValueError) as error:
        raise Corrupt(f"{listed} cannot be read: {error}") from error
