"""What an entry of the commit log says about transactions (`transactions.py`)."""

from enum import IntEnum
from typing import NamedTuple

from bearlake.kernel import PartitionKey


class ChangeKind(IntEnum):
    """What a log entry says about a transaction in a partition."""

    BEGUN = 0
    COMMITTED = 1
    ABORTED = 2


class TransactionChange(NamedTuple):
    """The change of one partition by one log entry.

    `first_offset` is that of the transaction in the partition. `marker_offset` is -1 if it has begun. `open_offset` is the smallest first
    offset of the partition's open transactions after the entry, -1 if none is open.
    """

    kind: ChangeKind
    partition: PartitionKey
    producer_id: int
    first_offset: int
    marker_offset: int
    open_offset: int
