"""Batches on their way into the log: queued, placed in an object and given their offsets.

    appends   the loops over batches between a request and its commit
    offsets   offsets for accepted batches
    layout    holds the fields of `Append` and `BatchCommit` against the places that C uses (C only)

`Append` and `BatchCommit` are defined here, once: C reads and writes them by place, and refuses to be imported if its places are others.
"""

from typing import NamedTuple, NewType, Protocol, TypeAlias

PartitionKey = NewType("PartitionKey", int)
"""A partition's name in the log, one integer; `metadata.model.partition_key` says how it is made."""

ProduceOutcome: TypeAlias = tuple[int, int, int]
"""(verdict, base_offset, start_offset) of one batch; verdict 0: it was appended"""


class Hold(Protocol):
    """Memory that batches point into; it must stay unchanged while anybody holds it."""

    def acquire(self, count: int = 1) -> None:
        """`count` more holders."""

    def release(self, count: int = 1) -> None:
        """`count` holders less; the memory may be reused when the last one has gone."""


class Append(NamedTuple):
    """One record batch to append, already inspected by the kernel (`kernel.inspect`) and accepted by the stream's rules.

    `stream_id` are the 16 bytes of the incarnation's UUID; `hold` keeps `batch` alive until it is copied into a WAL object, None when
    the batch is immutable. Producer fields and the last ones as in `BatchCommit`.
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
    """One record batch inside a WAL object that shall be committed.

    `position` and `length` are its bytes in the object; `record_count` is the number of offsets it takes; `max_timestamp` is in ms;
    producer fields are -1 for a batch without idempotence. `flags` is a sum of `metadata.model.BATCH_…`; with `BATCH_NAMED`,
    `base_sequence` counts appends (`metadata/producers.py`). With an `expected_offset` (-1: any) the batch is only accepted if that is
    the partition's end when its turn comes. `after_sequence` is the sequence of the append that a named producer which may skip sent
    before this one (-1: none).
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


QueuedBatch: TypeAlias = tuple[object, int, Append]
"""A batch on its way: its call (passed on as it is), its place in the call, and itself"""
