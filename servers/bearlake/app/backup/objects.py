"""Checks that the object store has the objects that a backup names, by listing it: one request per thousand objects."""

from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from bearlake.errors import Corrupt, NotFound
from bearlake.objects import ObjectStore

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
    if missing and not may_lack:
        shown = ", ".join(missing[:SHOWN_COUNT]) + (", …" if len(missing) > SHOWN_COUNT else "")
        raise NotFound(
            f"the object store lacks {len(missing):,} of {count:,} objects that the backup names: {shown}. Their records would be lost:"
            " restore a newer backup, or pass --allow-missing"
        )
    return missing


def _rows(listed: Path) -> Iterator[tuple[str, int]]:
    try:
        with listed.open(encoding="ascii") as lines:
            for line in lines:
                key, _, size = line.rstrip("\n").partition("\t")
                yield key, int(size)
    except (OSError, ValueError) as error:
        raise Corrupt(f"{listed} cannot be read: {error}") from error
