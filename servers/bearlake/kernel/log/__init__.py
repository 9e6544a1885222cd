"""Batches between a request and its commit: queue them, place them in an object and assign their offsets.

    buffer    the batches of one WAL object, from their arrival to their outcomes
    results   the outcomes of the batches of one call
    rows      packed rows of integers: commits, outcomes, slices
    offsets   offsets for accepted batches
    layout    check that `Append` and `BatchCommit` have the field order that C uses (C only)

Only this module defines `Append` and `BatchCommit`. C reads and writes their fields by index; importing the C module fails if the
fields differ.
"""

from typing import NamedTuple, NewType, Protocol, TypeAlias

PartitionKey = NewType("PartitionKey", int)
"""The integer that names a partition in the log; `metadata.model.partition_key` builds it."""

PARTITION_BITS = 20
"""The lower bits of a `PartitionKey`: the partition's index in its stream."""

BATCH_CONTROL = 2
"""The batch is a marker: it has one offset, and no sequence."""

BATCH_NAMED = 4
"""The producer has a name (`ProducerIds.named`): its 64-bit sequence counts appends instead of records, and may skip."""

ProduceOutcome: TypeAlias = tuple[int, int, int]
"""(verdict, base_offset, start_offset) of one batch; verdict 0: appended"""


class Hold(Protocol):
    """Memory that batches point into; it must stay unchanged while it has holders."""

    def acquire(self, count: int = 1) -> None:
        """Add `count` holders."""

    def release(self, count: int = 1) -> None:
        """Remove `count` holders; the memory may be reused once no holder is left."""


class Append(NamedTuple):
    """One record batch to append, already inspected by the kernel (`kernel.inspect`) and accepted by the stream's rules.

    `stream_id` holds the 16 bytes of the incarnation's UUID. `hold` keeps `batch` unchanged until it is copied into a WAL object; None
    if the batch is immutable. The fields from `record_count` on have the meaning that they have in `BatchCommit`.
    """

    partition: PartitionKey
    stream_id: bytes
    batch: bytes | bytearray | memoryview
    hold: Hold | None
    record_count: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    flags: int
    expected_offset: int = -1
    after_sequence: int = -1


class BatchCommit(NamedTuple):
    """One record batch of a WAL object to commit.

    `position` and `length` locate its bytes in the object; `record_count` is the number of offsets it takes; `max_timestamp` is in ms;
    producer fields are -1 for a batch without idempotence. `flags` is a sum of `metadata.model.BATCH_…`; with `BATCH_NAMED`,
    `base_sequence` counts appends (`metadata/producers.py`). A batch with an `expected_offset` (-1: any) is only accepted if that is
    the partition's end offset when the batch is applied. `after_sequence` is the sequence of the previous append of a named producer
    that may skip sequences (-1: none).
    """

    partition: PartitionKey
    position: int
    length: int
    record_count: int
    max_timestamp: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    flags: int = 0
    expected_offset: int = -1
    after_sequence: int = -1
