"""The open buffer of the write path, and the WAL object that it becomes."""

from typing import NamedTuple

from bearlake import kernel
from bearlake.metadata.model import CommitRows, ObjectCommit, ServerRef
from bearlake.streams.writer_settings import WriterSettings
from bearlake.wal import writer as wal_writer


class OpenBuffer:
    """Batches for one WAL object, and how long they wait."""

    __slots__ = ("batches", "is_transactional", "since")

    def __init__(self, settings: WriterSettings) -> None:
        self.batches = kernel.WriteBuffer(settings.object_bytes_max, settings.object_batch_count_max)
        self.since = 0.0
        """Loop time of the first batch."""
        self.is_transactional = False
        """Whether one of the batches has BATCH_TRANSACTIONAL."""

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
    buffer: bytearray
    batches: CommitRows
    is_transactional: bool

    def commit(self, key: str, server: ServerRef) -> ObjectCommit:
        """Return the commit of this object, which is stored under `key`."""
        return ObjectCommit(
            token=key,
            server=server,
            size=len(self.buffer),
            batches=self.batches,
            seen=self.queued.seen,
            is_transactional=self.is_transactional,
        )


def seal(buffer: OpenBuffer, server: ServerRef) -> Sealed:
    """Seal a buffer with batches into one WAL object of `server`; releases the memory that its batches held."""
    batches = buffer.batches
    sealed = wal_writer.seal_batches(batches, node_id=server.node_id, server_epoch=server.epoch)
    return Sealed(batches, sealed, batches.commits(), buffer.is_transactional)
