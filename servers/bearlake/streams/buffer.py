"""What waits to become one WAL object, and how it becomes one.

Batches are grouped by partition as they come, so that sealing is one join. Those of one partition keep the order in which they came
(I3). Sealing copies the bytes out of the receive slabs and gives the slabs back.
"""

from typing import NamedTuple, TypeAlias

from bearlake.metadata.model import BatchCommit, PartitionKey, ServerRef, partition_index
from bearlake.streams.append import Append, AppendCall
from bearlake.wal import writer as wal_writer
from bearlake.wal.format import Part

Entry: TypeAlias = tuple[AppendCall, int, Append]
"""A batch on its way: its call, its place in the call, and itself."""


class WriteBuffer:
    """Batches for one WAL object, by partition; those of one partition in the order they came (I3)."""

    __slots__ = ("partitions", "since", "size")

    def __init__(self, since: float) -> None:
        self.partitions: dict[PartitionKey, list[Entry]] = {}
        self.size = 0
        self.since = since
        """Loop time of the first batch."""


class Sealed(NamedTuple):
    """A WAL object's bytes, its batches as a commit wants them, and the entry of each, in the same order; `size` as in the buffer."""

    entries: list[Entry]
    buffer: bytearray
    batches: list[BatchCommit]
    size: int


def seal(buffer: WriteBuffer, server: ServerRef) -> Sealed:
    """Make one WAL object, written by `server`, of a buffer that is not empty; releases what its batches held."""
    parts = [
        Part(entries[0][2].stream_id, partition_index(partition), [item.batch for _, _, item in entries])
        for partition, entries in buffer.partitions.items()
    ]
    sealed = wal_writer.seal(parts, node_id=server.node_id, server_epoch=server.epoch)
    # By position in the object, as a commit wants its batches.
    order = sorted(zip(sealed.positions, buffer.partitions.values(), strict=True), key=_first)
    new = tuple.__new__  # a NamedTuple's own constructor costs three times as much, and this runs once per batch
    all_entries: list[Entry] = []
    batches: list[BatchCommit] = []
    for position, entries in order:
        all_entries += entries
        for _, _, item in entries:
            partition, _, batch, hold, count, max_timestamp, producer_id, epoch, sequence, flags = item
            size = len(batch)
            row = (partition, position, size, count, max_timestamp, producer_id, epoch, sequence, flags)
            batches.append(new(BatchCommit, row))
            position += size
            if hold is not None:
                hold.release()
    return Sealed(all_entries, sealed.buffer, batches, buffer.size)


def _first(pair: tuple[int, object]) -> int:
    return pair[0]
