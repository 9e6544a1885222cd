"""Finds superseded rows: rows whose key has a newer record below the partition's bound. Reads keys and offsets only.

Exact and with bounded memory: the keys themselves are compared, never only their hashes. The rows of the files to rewrite are taken in
chunks of row groups whose keys fit into `key_bytes`. For each chunk, the keys of the dirty files stream past the chunk's keys, which are
encoded as a dictionary. So a chunk of n keys takes about n * (key size + 40) bytes, however many keys the stream has.
The cost: each key is read once, and each dirty key once more per chunk with older rows of its partition.

`table/key_chunk.py` computes.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import bearlake.table.rows as table_rows
from bearlake.compaction.row_passes import Group, Place, load
from bearlake.compaction.workbench import Workbench
from bearlake.objects import ObjectStore
from bearlake.table.key_chunk import KeyChunk, Mask
from bearlake.table.writer import Rows

_ROW_BYTES = 40
"""Memory (bytes) that a row takes beyond its key."""


async def superseded(
    groups: Sequence[Group],
    dirty: Sequence[Group],
    bounds: Mapping[int, int],
    store: ObjectStore,
    workbench: Workbench,
) -> dict[Place, Mask]:
    """Return for each of `groups` with superseded rows which rows are superseded, or have no key.

    Only rows below the partition's bound (`bounds`, by index) are superseded or supersede. Newer records are looked for in `dirty`; rows of
    cleaned files supersede none of each other (`key_compaction.py`).

    Raises:
        Corrupt, NotFound, Unavailable: as `compaction.task.run`.
    """
    found: dict[Place, Mask] = {}
    key_bytes = workbench.limits.key_bytes
    for chunk_groups in _chunks(groups, key_bytes):
        tables = [await _read(group, store, workbench) for group in chunk_groups]
        chunk = await workbench.compute(partial(KeyChunk, tables, bounds))
        del tables
        taken = {group.place for group in chunk_groups}
        others = [group for group in dirty if group.place not in taken and _may_be_older(chunk, group)]
        for batch in _chunks(others, key_bytes):
            tables = [await _read(group, store, workbench) for group in batch]
            await workbench.compute(partial(chunk.see, tables))
        marks = await workbench.compute(chunk.marks)
        found.update((group.place, mask) for group, mask in zip(chunk_groups, marks, strict=True) if mask is not None)
    return found


def _chunks(groups: Sequence[Group], bytes_max: int) -> Iterator[list[Group]]:
    """Split the row groups into runs whose keys take at most `bytes_max` bytes of memory, but at least one row group."""
    chunk: list[Group] = []
    room = bytes_max
    for group in groups:
        found = group.footer.groups[group.number]
        size = group.footer.key_bytes(group.number) + _ROW_BYTES * (found.row_end - found.row_start)
        if chunk and size > room:
            yield chunk
            chunk, room = [], bytes_max
        chunk.append(group)
        room -= size
    if chunk:
        yield chunk


async def _read(group: Group, store: ObjectStore, workbench: Workbench) -> Rows:
    file = await load(group, group.footer.ranges_of(group.number, group.footer.key_columns), store)
    return await workbench.compute(partial(table_rows.read_keyed, file, group.footer, group.number))


def _may_be_older(chunk: KeyChunk, group: Group) -> bool:
    """Return whether a row of the chunk may be older than a row of `group` in the same partition."""
    found = group.footer.groups[group.number]
    firsts = chunk.first_offsets
    if found.is_of_one_partition:
        return firsts.get(found.partition_min, found.offset_max) < found.offset_max
    return any(found.partition_min <= index <= found.partition_max for index in firsts)
