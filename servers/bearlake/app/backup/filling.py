"""Makes a restored store safe for clients that remember the lost one.

*Offsets.* The lost store may have given offsets after the backup, which clients remember: positions outside of Bearlake, caches, logs.
Those offsets must not name other records. So each partition gets an empty batch that covers far more offsets than can have been given.
Consumers skip it, as they skip what key compaction removed (decision 27), and new records come after it. A stream that is being imported
has the offsets of its source: the import brings the lost records again.

*Transactions.* A transaction that was open may lack batches that were acknowledged after the backup, so it is aborted. Each transactional
id gets a new producer id, so that no producer of the lost store can go on: producers begin anew, with InitProducerId.
"""

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from bearlake.clock import Clock
from bearlake.compaction.all_streams import all_streams
from bearlake.metadata import Metadata, transaction_rules
from bearlake.metadata.model import BatchCommit, ObjectCommit, OutcomeKind, ServerRef, Stream
from bearlake.metadata.transactions import TransactionState
from bearlake.objects import ObjectStore
from bearlake.streams import configs as stream_configs
from bearlake.streams.history_pieces import empty_batch
from bearlake.wal import writer as wal_writer
from bearlake.wal.format import Part
from bearlake.wal.keys import KeySource

BATCH_OFFSETS_MAX = 2**31 - 1
"""Offsets of one empty batch."""
GAP_BATCHES_MAX = 64
GAP_MAX = BATCH_OFFSETS_MAX * GAP_BATCHES_MAX
"""Most offsets that a restore skips in a partition."""
GAP_MIN = 1_000_000_000
OFFSETS_PER_S = 100_000
"""More records than a partition gets per second."""
PARTITIONS_PER_OBJECT = 5_000
PAGE_COUNT = 1_000


def gap_since(age_ms: int, ordinal: int) -> int:
    """Return how many offsets to skip for a backup of this age.

    `ordinal`: how many restores there were, with this one. Each earlier one may have been of the same backup: then its store began after
    its gap, and gave out offsets from there.
    """
    return min(GAP_MAX, GAP_MIN * (ordinal - 1) + max(GAP_MIN, age_ms * OFFSETS_PER_S // 1000))


async def skip_offsets(
    metadata: Metadata, store: ObjectStore, server: ServerRef, clock: Clock, gap: int
) -> AsyncIterator[int]:
    """Skip `gap` offsets at the end of each partition that takes records; yield the number of partitions so far.

    `server`: the restore's own registration.
    """
    count = 0
    keys = KeySource(clock, random.SystemRandom().getrandbits)
    pending: list[tuple[Stream, int]] = []
    async for stream in all_streams(metadata.streams, PAGE_COUNT):
        is_imported = bool(stream_configs.value(stream.configs, stream_configs.IMPORT_SOURCE))
        if stream.is_deleted or stream.is_terminated or is_imported:
            continue
        for index in range(stream.partition_count):
            pending.append((stream, index))
            if len(pending) == PARTITIONS_PER_OBJECT:
                await _skip(metadata, store, server, keys.next(), pending, gap)
                count += len(pending)
                pending = []
                yield count
    if pending:
        await _skip(metadata, store, server, keys.next(), pending, gap)
        yield count + len(pending)


async def _skip(
    metadata: Metadata,
    store: ObjectStore,
    server: ServerRef,
    key: str,
    places: Sequence[tuple[Stream, int]],
    gap: int,
) -> None:
    """Put one object with empty batches, and commit it."""
    counts = [BATCH_OFFSETS_MAX] * (gap // BATCH_OFFSETS_MAX)
    if rest := gap % BATCH_OFFSETS_MAX:
        counts.append(rest)
    batches = [empty_batch(0, count) for count in counts]
    sealed = wal_writer.seal(
        [Part(stream.id.bytes, index, batches) for stream, index in places],
        node_id=server.node_id,
        server_epoch=server.epoch,
    )
    await store.put(key, [sealed.buffer])
    commits: list[BatchCommit] = []
    for position, (stream, index) in sorted(zip(sealed.positions, places, strict=True), key=lambda item: item[0]):
        at = position
        for batch, count in zip(batches, counts, strict=True):
            commits.append(BatchCommit(stream.partition(index), at, len(batch), count, -1))
            at += len(batch)
    done = await metadata.log.commit(ObjectCommit(token=key, server=server, size=len(sealed.buffer), batches=commits))
    # Nobody else uses the store, so each partition exists and takes batches.
    assert all(outcome.kind is OutcomeKind.ACCEPTED for outcome in done.outcomes)


async def begin_producers_anew(metadata: Metadata) -> int:
    """Abort the open transactions, and give each transactional id a new producer id; returns how many transactions were open."""
    store = metadata.transactions
    open_count, after = 0, ""
    while page := await store.list(after=after, limit=PAGE_COUNT):
        after = page[-1].transactional_id
        ids = await metadata.producers.allocate(len(page))
        for listed, producer_id in zip(page, ids, strict=True):
            held = await store.get(listed.transactional_id)
            assert held is not None
            if held.is_ongoing:
                open_count += 1
                held = await store.end(transaction_rules.expire(held, producer_id).after, held.version, is_commit=False)
            fresh = replace(
                held,
                producer_id=producer_id,
                epoch=0,
                state=TransactionState.EMPTY,
                last_producer_id=-1,
                last_epoch=-1,
            )
            if held.producer_id != producer_id:  # not if the end gave it already
                await store.put(fresh, held.version)
    return open_count
