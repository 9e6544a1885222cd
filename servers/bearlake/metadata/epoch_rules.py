"""The epoch of a partition's producers that are alone, or beside others (decision 86). Pure: SQLite and the model run it.

`postgresql/migrations/0022_late_writes.sql` has the same rules in SQL; one conformance suite holds both. Which appends an epoch fences is
`producers.judge_named`.
"""

from typing import NamedTuple


class PartitionEpoch(NamedTuple):
    """The epoch, and whether the newest was given to a producer that was to be alone, and nobody has opened beside others since."""

    epoch: int = 0
    is_exclusive: bool = False


def raised(held: PartitionEpoch) -> PartitionEpoch:
    """After a producer was made the only one: all that were opened before are fenced."""
    return PartitionEpoch(held.epoch + 1, is_exclusive=True)


def shared(held: PartitionEpoch) -> PartitionEpoch:
    """After a producer was opened beside others: a former exclusive one is fenced, others go on."""
    return PartitionEpoch(held.epoch + 1, is_exclusive=False) if held.is_exclusive else held
