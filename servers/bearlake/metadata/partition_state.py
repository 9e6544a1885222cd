"""The ledger's states of streams and partitions: plain objects in memory, changed in place as entries are applied (`ledger.py`)."""

from bearlake.metadata.model import PartitionBounds
from bearlake.metadata.producers import Producer


class StreamState:
    """The ledger's state of a stream; changed in place when the stream changes."""

    __slots__ = ("former_producer_id", "is_deleted", "is_open", "is_terminated", "partition_count")

    def __init__(
        self,
        partition_count: int,
        *,
        is_deleted: bool = False,
        is_terminated: bool = False,
        former_producer_id: int = -1,
    ) -> None:
        """`former_producer_id`: the largest id given out before the stream replaced a deleted one of its name; -1 if it replaced none."""
        self.former_producer_id = former_producer_id
        self.become(partition_count, is_deleted=is_deleted, is_terminated=is_terminated)

    def become(self, partition_count: int, *, is_deleted: bool, is_terminated: bool) -> None:
        """Set the state. `is_open`: the stream takes batches."""
        self.partition_count = partition_count
        self.is_deleted = is_deleted
        self.is_terminated = is_terminated
        self.is_open = not (is_deleted or is_terminated)


class PartitionState:
    """A partition as of the newest entry that was applied.

    `epoch` is the partition's (`ProducerIds.raise_epoch`); it is not in the log.
    `size` counts all bytes ever committed; `size_before` those below the slice that holds `start`. `changed` is the position of the
    last entry that changed the partition (0: as in the checkpoint). `tail` is flat: base offset and log position of each entry that
    appended and is not rolled up yet.
    """

    __slots__ = ("changed", "end", "epoch", "producers", "size", "size_before", "start", "stream", "tail")

    def __init__(
        self,
        stream: StreamState,
        *,
        start: int = 0,
        end: int = 0,
        size: int = 0,
        size_before: int = 0,
        epoch: int = 0,
        producers: dict[int, Producer] | None = None,
    ) -> None:
        self.stream = stream
        self.epoch = epoch
        self.start = start
        self.end = end
        self.size = size
        self.size_before = size_before
        self.producers: dict[int, Producer] = {} if producers is None else producers
        self.changed = 0
        self.tail: list[int] = []

    def bounds(self) -> PartitionBounds:
        """Start, end, last stable offset."""
        return PartitionBounds(self.start, self.end, self.end)


NOWHERE = PartitionState(StreamState(0, is_deleted=True), start=-1)
"""The state of partitions that do not exist."""
