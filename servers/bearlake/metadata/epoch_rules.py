"""The epoch of a partition's exclusive and shared producers (decision 86). Pure: SQLite and the model run it.

`postgresql/migrations/0022_late_writes.sql` has the same rules in SQL; one conformance suite holds both. Which appends an epoch fences is
`producers.judge_named`.
"""

from typing import NamedTuple


class PartitionEpoch(NamedTuple):
    """The epoch, and whether it belongs to an exclusive producer: no shared one was opened since."""

    epoch: int = 0
    is_exclusive: bool = False


def raised(held: PartitionEpoch) -> PartitionEpoch:
    """After an exclusive producer was opened: it fences all earlier producers."""
    return PartitionEpoch(held.epoch + 1, is_exclusive=True)


def shared(held: PartitionEpoch) -> PartitionEpoch:
    """After a shared producer was opened: it fences a former exclusive producer, and no shared ones."""
    return PartitionEpoch(held.epoch + 1, is_exclusive=False) if held.is_exclusive else held
