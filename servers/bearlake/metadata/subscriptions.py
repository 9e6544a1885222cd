"""The noun `cursors` of the metadata store: how far each subscription of a partition has come.

A cursor is a mark-delete offset (everything below it is acknowledged) and the acknowledged offset ranges above it. Only the
partition's dispatcher moves cursors, under the lease `dispatch_lease(partition)`, and keeps the truth in memory between two saves:
what was acknowledged and not saved is delivered again after a crash, never the reverse.

- Cursors go with their stream. Cursors of trimmed offsets stay where they are: whoever loads them moves them to the start.
- A save never goes back in time: each carries a larger `revision` than the one before, and a late one changes nothing. It names the
  cursor's `generation`, so it moves no cursor that was made since under the same name.
- Ranges are bytes to the store; their layout, with `pack_ranges` and `unpack_ranges`:

      byte   0      1
             +------+-------------------+---------------------+-- … --+
             | 0x01 | gap before range  | length of the range |       |   unsigned LEB128 integers, >= 1
             +------+-------------------+---------------------+-- … --+

  The first gap is counted from the mark-delete offset, the next ones from the end of the range before. No ranges are no bytes.

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
"""`mark_delete` of a cursor that shall start at its partition's start, wherever that is."""

LATEST = (1 << 63) - 1
"""`mark_delete` of a cursor that shall start at its partition's end, as of the transaction that creates it."""

CURSOR_NAME_BYTES_MAX = 1024
"""A subscription's name in UTF-8; not empty."""

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
    """A durable subscription's position in one partition, as it was saved last.

    `acknowledged` are the packed ranges above `mark_delete`; `revision` is that of the last save (0: never saved); `created_ms` is
    the store's time. `generation` tells it from other cursors that have had its name (`cursor_rules.py`).
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
    """What a save makes of one cursor. `properties` None: as they are.

    `revision` must be larger than that of every save before of the same lease, whatever became of it. `generation` is the cursor's.
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
    """What became of a save. Every update that is in neither of the two sets is stored."""

    overtaken: Set[PartitionKey]
    """Partitions whose lease was overtaken: nothing of theirs was changed, their dispatcher must stop."""
    unsaved: Set[CursorId]
    """Cursors of other partitions whose update is not stored: there is none of that generation (any more), or it has a larger revision."""


SAVED_ALL = CursorsSaved(frozenset(), frozenset())
"""Everything was stored."""


class CursorStore(Protocol):
    """Cursors of durable subscriptions. Moves carry the dispatcher's lease; what an overtaken one sends changes nothing."""

    async def create(
        self, partition: PartitionKey, name: str, *, mark_delete: int, properties: Mapping[str, str], after: int
    ) -> Cursor:
        """Make the cursor at `mark_delete`, moved into the partition's `[start, end]` as of now (`EARLIEST`, `LATEST`), or return
        the one that exists, unchanged. Any server may; safe to repeat.

        `after` is the partition's `deletion_count` that the caller has read: so a creation that arrives late brings no subscription back
        that was deleted meanwhile (I12). If the cursor exists, the count grows: a deletion that arrives late does not remove it.

        Raises:
            Conflict: there is none, and the count has grown since.
            NotFound: no such partition.
            Invalid: an empty name, or one longer than `CURSOR_NAME_BYTES_MAX`.
            TooLarge: `properties` have more than `PROPERTIES_BYTES_MAX`.
        """

    async def deletion_count(self, partition: PartitionKey) -> int:
        """How often cursors of the partition were deleted, or found by `create`, as of now."""

    async def load(self, partition: PartitionKey) -> Sequence[Cursor]:
        """All cursors of the partition, by name, as of now; none when the partition does not exist."""

    async def save(self, saves: Collection[CursorSave]) -> CursorsSaved:
        """Move cursors of any number of partitions (each at most once): one transaction. Safe to repeat.

        An update is done if the lease of its partition is held, the cursor has its generation, and a smaller revision. The answer names
        the partitions and updates that are not stored; an update that an earlier attempt stored counts as stored.

        Raises:
            TooLarge: ranges or properties above their limit; nothing was changed.
            Unavailable: it may or may not have happened; save again, with larger revisions.
        """

    async def delete(
        self, partition: PartitionKey, generations: Mapping[str, int], lease: Lease, *, after: int
    ) -> None:
        """Forget cursors, given as names with their generations; absent ones and other generations are left alone. `deletion_count` grows.

        `after` is the `deletion_count` that the caller has read: so a deletion that arrives late removes no cursor that was created, or
        found by `create`, meanwhile (I12). Deleting no cursors settles the deletions before: those that come later are refused.

        Raises:
            Fenced: the lease was overtaken.
            Conflict: the count has grown since; nothing was changed.
            Unavailable: it may or may not have happened.
        """

    async def list(self, stream_number: int, *, after: CursorId | None = None, limit: int = 1000) -> Sequence[Cursor]:
        """Cursors of the stream by partition, then name, behind `after`, at most `limit`; without their ranges, which may be large."""


def dispatch_lease(partition: PartitionKey) -> str:
    """Name of the lease that a partition's dispatcher holds."""
    return f"dispatch/{partition}"


def check_cursor_name(name: str) -> None:
    """Raise `Invalid` unless a subscription may have that name."""
    check_name("a subscription's name", name, CURSOR_NAME_BYTES_MAX)


def pack_properties(properties: Mapping[str, str]) -> str:
    """Properties as a store keeps them: JSON in ASCII. Raises `TooLarge`."""
    text = json.dumps(dict(properties))
    if len(text) > PROPERTIES_BYTES_MAX:
        raise TooLarge("properties of a subscription", len(text), PROPERTIES_BYTES_MAX)
    return text


def check_ranges(acknowledged: bytes) -> bytes:
    """The packed ranges themselves. Raises `TooLarge`."""
    if len(acknowledged) > ACKNOWLEDGED_BYTES_MAX:
        raise TooLarge("acknowledged ranges of a subscription", len(acknowledged), ACKNOWLEDGED_BYTES_MAX)
    return acknowledged


def pack_ranges(mark_delete: int, ranges: Iterable[tuple[int, int]]) -> bytes:
    """The ranges `[start, end)`, which ascend, neither overlap nor touch, and lie above `mark_delete` (which is not in one)."""
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
    """The ranges `[start, end)` that were packed with this `mark_delete`, ascending.

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
