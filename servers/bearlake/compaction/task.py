"""Runs a work item: read, compute (`compaction/converter.py`, `compaction/merge.py`), store. The only state is in objects.

Spark's executors, tests and the simulation all run this code. An item may be stopped at any point and run again, even concurrently: every
attempt writes under its own keys, and only the result that reaches `TaskQueue.prepare` counts.
"""

from bearlake.compaction.clean import clean
from bearlake.compaction.concurrency import run_both
from bearlake.compaction.converter import Converter
from bearlake.compaction.current_item import update
from bearlake.compaction.kept_batches import KeptBatches
from bearlake.compaction.merge import merge
from bearlake.compaction.model import ItemResult, WorkItem, missing_schemas
from bearlake.compaction.output import Output, put_all
from bearlake.compaction.windows import read_window, windows
from bearlake.compaction.workbench import Workbench
from bearlake.metadata.compaction import TaskKind
from bearlake.objects import ObjectStore
from bearlake.table.value_typing import MissingSchemas, ValueTyping
from bearlake.wal.keys import KeySource


async def run(item: WorkItem, store: ObjectStore, workbench: Workbench) -> ItemResult:
    """Run the item; its objects are durable when this returns.

    `workbench.limits` and `item.file_bytes_max` bound the memory, whatever the item's size (except for one larger slice).

    Raises:
        NotFound: an object that the item reads does not exist (any more).
        Corrupt: an object contradicts its checksums or the index; the message names the object.
        Unavailable: the store did not answer in time.
    """
    if item.current is not None:
        return await update(item, item.current, store, workbench)
    if item.cleaning is not None:
        return await clean(item, item.cleaning, store, workbench)
    if item.kind is TaskKind.MERGE:
        return await merge(item, store, workbench)
    try:
        return await _compact(item, store, workbench)
    except MissingSchemas as missing:
        return missing_schemas(missing.ids, missing.messages, missing.key_ids, missing.key_messages)


async def _compact(item: WorkItem, store: ObjectStore, workbench: Workbench) -> ItemResult:
    limits = workbench.limits
    keys = KeySource(workbench.clock, workbench.random_bits, item.kept_prefix)
    columns = None if item.values is None else item.values.columns
    converter = Converter(
        Output(item.output_prefix, workbench.random_bits, columns),
        KeptBatches(item.stream_id.bytes, keys, limits.kept_bytes),
        row_group_bytes=item.row_group_bytes,
        file_bytes_max=item.file_bytes_max,
        batch_bytes_max=limits.batch_bytes_max,
        aborted=item.aborted,
        typing=None if item.values is None else ValueTyping(item.values),
    )
    rest = windows(item.slices, limits.window_bytes)
    loaded = await read_window(next(rest, ()), store, limits.read_concurrent_count)
    while loaded:
        reading = read_window(next(rest, ()), store, limits.read_concurrent_count)
        loaded, _ = await run_both(reading, put_all(converter.feed(loaded), store, workbench))
    await put_all(converter.finish(), store, workbench)
    return converter.result()
