"""The object store as a Protocol; the sibling modules implement it.

An object is immutable: it is put once under a new key, read in ranges, and deleted by a sweeper. This package does not know what
objects contain. `open_store(url)` in `objects/open.py` picks the implementation: `file:///…`, `s3://bucket/prefix`, `memory:///`.

All implementations pass `tests/objects/` (one conformance suite).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bearlake.errors import BearlakeError

Buffer = bytes | bytearray | memoryview


class ByteRange(NamedTuple):
    """Bytes `[start, end)` of an object."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object of a listing: its key, size in bytes, and last change by the store's clock (ms since 1970)."""

    key: str
    size: int
    modified_ms: int


Put = Callable[[str, Sequence[Buffer]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingPut:
    """A put in steps, for a caller that does more in the same thread: no task, timer or future of the event loop takes part.

        start(put, then) ─ threads: `put`, which calls `attempt`, then `then` in its turn ─ event loop: `attempted`, then perhaps `again`

    Only stores on this machine offer it. An attempt has no deadline: it ends when the disk answers.
    """

    start: Callable[[Callable[[], None], Callable[[], None], Callable[[BaseException | None], None]], None]
    """`start(put, then, ended)` runs `put` in a thread of the store, `then` in a thread once all steps that were started before are over,
    and `ended` on the event loop, in the order of the steps, with the first error that they raised. `then` runs in any case.

    Raises `Unavailable`, with nothing done, if there is no thread. The caller bounds its steps."""
    attempt: Put
    """`attempt(key, parts)` makes the first attempt, in the thread. It raises as `ObjectStore.put`, and is called once per key."""
    attempted: Callable[[float, int, BearlakeError | None], None]
    """`attempted(seconds, size, error)` notes the end of an attempt with an object of `size` bytes; on the event loop."""
    again: Callable[[str, Sequence[Buffer], BearlakeError], Awaitable[None]]
    """`again(key, parts, error)` makes the further attempts after one that raised `error`, as `ObjectStore.put` does."""


class ObjectStore(Protocol):
    """Immutable objects under `/`-separated keys.

    Every method raises `Unavailable` if the store does not answer within the configured deadline, and cancels cleanly.
    """

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the concatenation of `parts` as one object, which is durable (survives a power cut) when this returns.

        All or nothing: a reader sees the whole object or none. The store does not read the buffers after this has returned or raised,
        so the caller may then reuse or change them.

        Raises:
            AlreadyExists: the key is taken, with any content; nothing was replaced. After an `Unavailable` the first
                attempt has probably succeeded, since keys are never reused; `size` shows whether it has.
            Unavailable: the object may or may not exist now. Put it again under the same key.
        """

    def blocking_put(self) -> BlockingPut | None:
        """Return `put` in steps; None if the store is not on this machine."""
        return None

    async def read(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[memoryview]:
        """Read the ranges; returns one view per range, in order. Adjacent or close ranges are coalesced into one request.

        Each view is writable memory that only the caller uses (views of one call may share a buffer).

        Raises:
            NotFound: no such object.
            OutOfRange: a range reaches beyond the end of the object.
            Unavailable: the store did not answer in time.
        """

    async def size(self, key: str) -> int:
        """Return the size of the object in bytes.

        Raises:
            NotFound: no such object.
        """

    async def delete(self, keys: Collection[str]) -> None:
        """Delete the objects; absent keys are ignored. Safe to repeat."""

    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """List objects whose key starts with `prefix` and sorts after `after`, in key order (bytewise)."""

    async def close(self) -> None:
        """Release threads and connections; the store must not be used afterwards."""
