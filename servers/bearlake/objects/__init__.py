"""The object store, as a Protocol; implementations are its siblings.

An object is immutable: it is put once under a fresh key, read in ranges, deleted by a sweeper. Nothing here knows what
objects contain. `open_store(url)` in `objects/open.py` picks the implementation: `file:///…`, `s3://bucket/prefix`, `memory:///`.

All implementations pass `tests/objects/` (one conformance suite).
"""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview


class ByteRange(NamedTuple):
    """Bytes `[start, end)` of an object."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object of a listing: its key, size in bytes, and the store's time of its last change (ms since 1970)."""

    key: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    """Immutable objects under `/`-separated keys.

    Every method raises `Unavailable` when the store did not answer within the configured deadline, and cancels cleanly.
    """

    async def put(self, key: str, parts: Sequence[Buffer], on_durable: Callable[[], None] | None = None) -> None:
        """Store the concatenation of `parts` as one object; durable (survives a power cut) when this returns.

        All or nothing: a reader sees the whole object or none. The buffers are not read any more once this has returned or
        raised, so the caller may then reuse or change them. `on_durable` is what shall happen next, for stores that write on a
        thread of their own: called there, at most once, when the object is durable, perhaps after this has raised. It may block
        and must not raise. Other stores do not call it.

        Raises:
            AlreadyExists: the key is taken, by whatever bytes; nothing was replaced. After an `Unavailable` it means that the
                first attempt had succeeded, since keys are never reused.
            Unavailable: the object may or may not exist now. Put again under the same key.
        """

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        """Read the ranges, one view per range, in order; near ranges are coalesced into one request.

        Each view is writable memory that belongs to the caller alone (views of one call may share a buffer).

        Raises:
            NotFound: no such object.
            OutOfRange: a range reaches beyond the end of the object.
            Unavailable: the store did not answer in time.
        """

    async def size(self, key: str) -> int:
        """Size of the object in bytes.

        Raises:
            NotFound: no such object.
        """

    async def delete(self, keys: Collection[str]) -> None:
        """Delete the objects; absent keys are fine, and a repeated call too."""

    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with `prefix` and sorts behind `after`, in key order (bytewise)."""

    async def close(self) -> None:
        """Release threads and connections; the store is not used afterwards."""
