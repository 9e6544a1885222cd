"""The write buffer: collects batches and seals them into one WAL object.

The buffer groups batches by partition on arrival, so that sealing is one join. Batches of one partition keep their order of arrival
(I3). Sealing copies the bytes out of the receive slabs and releases the slabs.
"""

from itertools import chain, groupby
from typing import NamedTuple, TypeAlias

from bearlake import kernel
from bearlake.metadata.model import BatchCommit, PartitionKey, ServerRef, partition_index
from bearlake.streams.append import Append, AppendCall
from bearlake.wal import writer as wal_writer
from bearlake.wal.format import Part

Entry: TypeAlias = tuple[AppendCall, int, Append]
"""A queued batch: its call, its index in the call, and the batch."""


class WriteBuffer:
    """Batches for one WAL object, by partition; each partition's batches are in order of arrival (I3)."""

    __slots__ = ("count", "partitions", "seen", "since", "size")

    def __init__(self, since: float) -> None:
        self.partitions: dict[PartitionKey, list[Entry]] = {}
        self.size = 0
        self.count = 0
        """Batches."""
        self.since = since
        """Loop time of the first batch."""
        self.seen = 0
        """Log position that this server knew before it received any batch that may be its producer's first."""


class Sealed(NamedTuple):
    """A WAL object's bytes, its batches in the form of a commit, and their entries in the same order.

    `size` and `seen` come from the buffer.
    """

    entries: list[Entry]
    buffer: bytearray
    batches: list[BatchCommit]
    size: int
    seen: int


def seal(buffer: WriteBuffer, server: ServerRef) -> Sealed:
    """Seal a non-empty buffer into one WAL object of `server`; releases the memory that its batches held."""
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
    ):  # consecutive batches usually share one receive slab
        if hold is not None:
            hold.release(len(list(run)))


def _owner(entries: list[Entry]) -> tuple[bytes, PartitionKey]:
    """Sort key of slices in an object."""
    item = entries[0][2]
    return item[1], item[0]
