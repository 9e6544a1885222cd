"""The epoch of a partition's exclusive and shared producers (decision 86). Pure: SQLite and the model run these rules.

`postgresql/functions/partition_epoch.sql` has the same rules in SQL; one conformance suite checks both. `producers.decide_named` decides
which appends an epoch fences.
"""

from typing import NamedTuple


class PartitionEpoch(NamedTuple):
    """The epoch, and whether it belongs to an exclusive producer: no shared producer was opened since."""

    epoch: int = 0
    is_exclusive: bool = False


def raised(held: PartitionEpoch) -> PartitionEpoch:
    """Return the epoch after an exclusive producer was opened: it fences all earlier producers."""
    return PartitionEpoch(held.epoch + 1, is_exclusive=True)


def shared(held: PartitionEpoch) -> PartitionEpoch:
    """Return the epoch after a shared producer was opened: it fences a previous exclusive producer, and no shared producers."""
    return PartitionEpoch(held.epoch + 1, is_exclusive=False) if held.is_exclusive else held
