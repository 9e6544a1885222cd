"""The interface `cursors` of the metadata store: the progress of each subscription in a partition.

A cursor is a mark-delete offset (everything below it is acknowledged) and the acknowledged offset ranges above it. Only the
partition's dispatcher moves cursors, under the lease `dispatch_lease(partition)`. It keeps the truth in memory between two saves: after a
crash, unsaved acknowledgements cause redelivery, never loss.

- Cursors are deleted with their stream. Cursors at trimmed offsets are not changed; the dispatcher that loads them moves them to the start.
- A save never goes back in time: each carries a larger `revision` than the one before, and a late save changes nothing. It names the
  cursor's `generation`, so it does not move a newer cursor of the same name.
- Ranges are opaque bytes to the store; their layout, with `pack_ranges` and `unpack_ranges`:

      byte   0      1
             +------+-------------------+---------------------+-- … --+
             | 0x01 | gap before range  | length of the range |       |   unsigned LEB128 integers, >= 1
             +------+-------------------+---------------------+-- … --+

  The first gap is counted from the mark-delete offset, the next ones from the end of the previous range. No ranges encode to no bytes.

Source: Apache Pulsar, ManagedCursor (mark-delete position, individually deleted messages).
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from bearlake.errors import Corrupt, TooLarge
from bearlake.metadata.model import Lease, PartitionKey
from bearlake.metadata.names import check_name

EARLIEST = 0
"""`mark_delete` of a new cursor that starts at its partition's start, wherever that is."""

LATEST = (1 << 63) - 1
"""`mark_delete` of a new cursor that starts at its partition's end, as of the transaction that creates it."""

CURSOR_NAME_BYTES_MAX = 1024
"""Limit of a subscription's name in UTF-8; the name is not empty."""

ACKNOWLEDGED_BYTES_MAX = 256 * 1024
"""Packed ranges of one cursor: more than 10,000 ranges (Pulsar's managedLedgerMaxUnackedRangesToPersist) of 20 bytes."""

PROPERTIES_BYTES_MAX = 64 * 1024
"""Properties of one cursor, as JSON."""

_VERSION = 1


class CursorId(NamedTuple):
    """A cursor's partition and the name of its subscription."""

    partition: PartitionKey
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A durable subscription's position in one partition, as of its last save.

    `acknowledged` are the packed ranges above `mark_delete`; `revision` is that of the last save (0: never saved); `created_ms` is
    the store's time. `generation` distinguishes it from other cursors that have had its name (`cursor_rules.py`).
    """

    partition: PartitionKey
    name: str
    mark_delete: int
    acknowledged: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0
    revision: int = 0
    generation: int = 0


class CursorUpdate(NamedTuple):
    """The update of one cursor in a save. `properties` None: leave them unchanged.

    `revision` must be larger than that of every earlier save under the same lease, whatever its result. `generation` is the cursor's.
    """

    name: str
    mark_delete: int
    acknowledged: bytes
    revision: int
    properties: Mapping[str, str] | None = None
    generation: int = 0


class CursorSave(NamedTuple):
    """New positions of cursors of one partition, under the lease of its dispatcher."""

    partition: PartitionKey
    updates: Sequence[CursorUpdate]
    lease: Lease


class CursorsSaved(NamedTuple):
    """The result of a save. Every update that is in neither of the two sets is stored."""

    overtaken: Set[PartitionKey]
    """Partitions whose lease was overtaken: nothing of them was changed, and their dispatcher must stop."""
    unsaved: Set[CursorId]
    """Cursors of other partitions whose update is not stored: the cursor has another generation, is gone, or has a larger revision."""


SAVED_ALL = CursorsSaved(frozenset(), frozenset())
"""All updates were stored."""


class CursorStore(Protocol):
    """Cursors of durable subscriptions. Saves carry the dispatcher's lease; a save with an overtaken lease changes nothing."""

    async def create(
        self, partition: PartitionKey, name: str, *, mark_delete: int, properties: Mapping[str, str], after: int
    ) -> Cursor:
        """Create the cursor at `mark_delete`, moved into the partition's `[start, end]` as of now (`EARLIEST`, `LATEST`), or return
        the existing cursor unchanged. Any server may call this; safe to repeat.

        `after` is the partition's `deletion_count` that the caller has read, so a late creation does not bring back a subscription that
        was deleted in the meantime (I12). If the cursor exists, the count grows, so a late deletion does not remove it.

        Raises:
            Conflict: the cursor does not exist, and the count has grown since.
            NotFound: no such partition.
            Invalid: the name is empty, or longer than `CURSOR_NAME_BYTES_MAX`.
            TooLarge: `properties` are larger than `PROPERTIES_BYTES_MAX`.
        """

    async def deletion_count(self, partition: PartitionKey) -> int:
        """Return how often cursors of the partition were deleted, or found by `create`, as of now."""

    async def load(self, partition: PartitionKey) -> Sequence[Cursor]:
        """Return all cursors of the partition, by name, as of now; none if the partition does not exist."""

    async def save(self, saves: Collection[CursorSave]) -> CursorsSaved:
        """Move cursors of any number of partitions (each at most once) in one transaction. Safe to repeat.

        An update takes effect if the lease of its partition is held, and the cursor has its generation and a smaller revision. The result
        names the partitions and updates that are not stored; an update that an earlier attempt stored counts as stored.

        Raises:
            TooLarge: ranges or properties exceed their limit; nothing was changed.
            Unavailable: the save may or may not have happened; save again, with larger revisions.
        """

    async def delete(
        self, partition: PartitionKey, generations: Mapping[str, int], lease: Lease, *, after: int
    ) -> None:
        """Delete cursors, given by name and generation; absent cursors and other generations are left alone. `deletion_count` grows.

        `after` is the `deletion_count` that the caller has read, so a late deletion does not remove a cursor that `create` made or found
        in the meantime (I12). A call without cursors makes earlier deletions final: those that arrive later are refused.

        Raises:
            Fenced: the lease was overtaken.
            Conflict: the count has grown since; nothing was changed.
            Unavailable: the deletion may or may not have happened.
        """

    async def list(self, stream_number: int, *, after: CursorId | None = None, limit: int = 1000) -> Sequence[Cursor]:
        """List at most `limit` cursors of the stream by partition, then name, after `after`; without their ranges, which may be large."""


def dispatch_lease(partition: PartitionKey) -> str:
    """Return the name of the lease that a partition's dispatcher holds."""
    return f"dispatch/{partition}"


def check_cursor_name(name: str) -> None:
    """Raise `Invalid` unless `name` is a valid name of a subscription."""
    check_name("a subscription's name", name, CURSOR_NAME_BYTES_MAX)


def pack_properties(properties: Mapping[str, str]) -> str:
    """Encode properties for a store: JSON in ASCII. Raises `TooLarge`."""
    text = json.dumps(dict(properties))
    if len(text) > PROPERTIES_BYTES_MAX:
        raise TooLarge("properties of a subscription", len(text), PROPERTIES_BYTES_MAX)
    return text


def check_ranges(acknowledged: bytes) -> bytes:
    """Return the packed ranges unchanged. Raises `TooLarge`."""
    if len(acknowledged) > ACKNOWLEDGED_BYTES_MAX:
        raise TooLarge("acknowledged ranges of a subscription", len(acknowledged), ACKNOWLEDGED_BYTES_MAX)
    return acknowledged


def pack_ranges(mark_delete: int, ranges: Iterable[tuple[int, int]]) -> bytes:
    """Pack ranges `[start, end)`, which ascend, neither overlap nor touch, and lie above `mark_delete` (which is in none of them)."""
    packed = bytearray((_VERSION,))
    before = mark_delete
    for start, end in ranges:
        assert before < start < end, "ranges ascend, are not empty, and do not touch"
        for number in (start - before, end - start):
            while number > 0x7F:
                packed.append(number & 0x7F | 0x80)
                number >>= 7
            packed.append(number)
        before = end
    return bytes(packed) if len(packed) > 1 else b""


def unpack_ranges(mark_delete: int, packed: bytes) -> list[tuple[int, int]]:
    """Return the ranges `[start, end)` that were packed with this `mark_delete`, ascending.

    Raises:
        Corrupt: an unknown version, or bytes that are not whole ranges.
    """
    if not packed:
        return []
    if packed[0] != _VERSION:
        raise Corrupt(f"acknowledged ranges have layout {packed[0]}, not {_VERSION}")
    lengths: list[int] = []
    number = shift = 0
    for byte in packed[1:]:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
        else:
            lengths.append(number)
            number = shift = 0
    if shift or len(lengths) % 2 or not all(lengths):
        raise Corrupt(f"acknowledged ranges of {len(packed)} bytes are not whole ranges")
    ranges = []
    at = mark_delete
    for gap, length in zip(lengths[::2], lengths[1::2], strict=True):
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    return ranges
