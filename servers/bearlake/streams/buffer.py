"""The open buffer of the write path, and the WAL object that it becomes."""

from collections.abc import Sequence
from typing import NamedTuple

from bearlake import kernel
from bearlake.metadata.model import BATCH_TRANSACTIONAL, CommitRows, ObjectCommit, ServerRef
from bearlake.objects import Buffer
from bearlake.streams.writer_settings import WriterSettings
from bearlake.wal import writer as wal_writer

ARRANGED_BYTES_MIN = 256 * 1024
"""Smaller objects are copied, and so are in the cache: the copy takes less than 30 µs."""
ARRANGED_BATCH_BYTES_MIN = 4 * 1024
"""Batches that are smaller on average are copied: a view of each takes 0.2 µs, as does the copy of 4 KiB, and more in the system call."""


class OpenBuffer:
    """Batches for one WAL object, and how long they wait."""

    __slots__ = ("batches", "since")

    def __init__(self, settings: WriterSettings) -> None:
        self.batches = kernel.WriteBuffer(settings.object_bytes_max, settings.object_batch_count_max)
        self.since = 0.0
        """Loop time of the first batch."""

    @property
    def size(self) -> int:
        """Bytes of the batches."""
        return self.batches.size

    @property
    def count(self) -> int:
        """Batches."""
        return self.batches.count


class Sealed(NamedTuple):
    """A WAL object's bytes, and its batches in the form of a commit. `queued` takes their outcomes, in the same order."""

    queued: kernel.WriteBuffer
    parts: Sequence[Buffer]
    size: int
    """Bytes of the object."""
    buffer: bytearray | None
    """The object as one copy, for the cache. None: the parts are in the receive buffers, which `release` frees."""
    batches: CommitRows

    def commit(self, key: str, server: ServerRef) -> ObjectCommit:
        """Return the commit of this object, which is stored under `key`."""
        return ObjectCommit(
            token=key,
            server=server,
            size=self.size,
            batches=self.batches,
            seen=self.queued.seen,
            is_transactional=self.queued.flags & BATCH_TRANSACTIONAL != 0,
        )

    def release(self) -> None:
        """The parts are not needed any more."""
        if self.buffer is None:
            self.queued.release()


def seal(buffer: OpenBuffer, server: ServerRef, *, is_copied: bool = True) -> Sealed:
    """Seal a buffer with batches into one WAL object of `server`.

    `is_copied`: copy the batches, and release their memory. Otherwise large batches stay in their memory until `Sealed.release`.
    """
    batches = buffer.batches
    if is_copied or not _is_arrangeable(batches):
        copy = wal_writer.seal_batches(batches, node_id=server.node_id, server_epoch=server.epoch)
        return Sealed(batches, (copy,), len(copy), copy, batches.commits())
    try:
        parts = wal_writer.arrange_batches(batches, node_id=server.node_id, server_epoch=server.epoch)
    except ValueError:
        batches.release()
        raise
    return Sealed(batches, parts, sum(map(len, parts)), None, batches.commits())


def _is_arrangeable(batches: kernel.WriteBuffer) -> bool:
    count, size = batches.count, batches.size
    is_large = size >= ARRANGED_BYTES_MIN and size >= count * ARRANGED_BATCH_BYTES_MIN
    return is_large and count + 2 <= kernel.FILE_PARTS_MAX and batches.can_arrange
