"""What waits to become one WAL object, and how it becomes one.

Batches are grouped by partition as they come, so that sealing is one join. Those of one partition keep the order in which they came
(I3). Sealing copies the bytes out of the receive slabs and gives the slabs back.
"""

from itertools import chain, groupby
from typing import NamedTuple, TypeAlias

from bearlake import kernel
from bearlake.metadata.model import BatchCommit, PartitionKey, ServerRef, partition_index
from bearlake.streams.append import Append, AppendCall
from bearlake.wal import writer as wal_writer
from bearlake.wal.format import Part

Entry: TypeAlias = tuple[AppendCall, int, Append]
"""A batch on its way: its call, its place in the call, and itself."""


class WriteBuffer:
    """Batches for one WAL object, by partition; those of one partition in the order they came (I3)."""

    __slots__ = ("count", "partitions", "seen", "since", "size")

    def __init__(self, since: float) -> None:
        self.partitions: dict[PartitionKey, list[Entry]] = {}
        self.size = 0
        self.count = 0
        """Batches."""
        self.since = since
        """Loop time of the first batch."""
        self.seen = 0
        """Log position that this server knew of before it received any batch that may be its producer's first one."""


class Sealed(NamedTuple):
    """A WAL object's bytes, its batches as a commit wants them, and the entry of each, in the same order.

    `size` and `seen` are those of the buffer.
    """

    entries: list[Entry]
    buffer: bytearray
    batches: list[BatchCommit]
    size: int
    seen: int


def seal(buffer: WriteBuffer, server: ServerRef) -> Sealed:
    """Make one WAL object, written by `server`, of a buffer that is not empty; releases what its batches held."""
    groups = sorted(buffer.partitions.values(), key=_owner)
    parts = [
        Part(entries[0][2].stream_id, partition_index(entries[0][2].partition), [item.batch for _, _, item in entries])
        for entries in groups
    ]
    sealed = wal_writer.seal(parts, node_id=server.node_id, server_epoch=server.epoch)
    all_entries = list(chain.from_iterable(groups))
    batches = kernel.place_appends(all_entries, sealed.positions[0])
    _release(all_entries)
    return Sealed(all_entries, sealed.buffer, batches, buffer.size, buffer.seen)


def _release(entries: list[Entry]) -> None:
    for hold, run in groupby(
        [item.hold for _, _, item in entries]
    ):  # consecutive batches mostly lie in the same memory
        if hold is not None:
            hold.release(len(list(run)))


def _owner(entries: list[Entry]) -> tuple[bytes, PartitionKey]:
    """What slices are sorted by in an object."""
    item = entries[0][2]
    return item[1], item[0]
