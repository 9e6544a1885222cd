"""What a member of a share group says about records that it acquired: its form, and what becomes of the records.

Source: KIP-932, KIP-1222 (renew); Apache Kafka 4.3, SharePartition.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from bearlake.errors import Conflict, Invalid
from bearlake.streams.subscriptions.share.runs import RecordState, Run


class AckType(IntEnum):
    """What a member says about a record; the numbers are those of Kafka's protocol."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    """Deliver it again."""
    REJECT = 3
    """Deliver it never again."""
    RENEW = 4
    """Keep it locked (KIP-1222)."""


class InvalidRecordState(Conflict):
    """The member does not hold the locks of all records that it acknowledges; nothing was changed."""


class ShareAck(NamedTuple):
    """Acknowledges offsets `[start, end)`: `types` has one value for all of them, or one for each."""

    start: int
    end: int
    types: Sequence[int]


def pieces(
    acks: Sequence[ShareAck], mark_delete: int, end: int, *, may_renew: bool
) -> Iterator[tuple[int, int, AckType]]:
    """Return the ranges inside `[mark_delete, end)`, which is in flight, with their type, in order.

    Raises `Invalid`, or `InvalidRecordState` for RENEW unless `may_renew`.
    """
    before = 0
    for ack in acks:
        if not before <= ack.start < ack.end:
            raise Invalid("The acknowledgement batches are not in order of offsets.")
        before = ack.end
        if len(ack.types) not in (1, ack.end - ack.start):
            raise Invalid("The number of acknowledge types differs from the number of offsets.")
        if ack.end > end:
            raise Invalid("The last offset in the batch was never acquired.")
        kinds = [_kind(value, may_renew=may_renew) for value in ack.types]
        start = ack.start
        if len(kinds) == 1:
            yield max(start, mark_delete), ack.end, kinds[0]
            continue
        for index, kind in enumerate(kinds, start=1):
            if index == len(kinds) or kinds[index] is not kind:
                part_end = ack.start + index
                yield max(start, mark_delete), part_end, kind
                start = part_end


def acknowledged(piece: Run, kind: AckType, delivery_count_max: int, renewed_until: float | None) -> Run:
    """Return what becomes of acquired records."""
    if kind is AckType.RENEW:
        assert renewed_until is not None, "renewing is allowed"
        return replace(piece, deadline=renewed_until)
    if kind is AckType.RELEASE and piece.delivery_count < delivery_count_max:
        return Run(piece.start, piece.end, RecordState.AVAILABLE, piece.delivery_count, unit=piece.unit)
    return Run(piece.start, piece.end, RecordState.DONE)


def _kind(value: int, *, may_renew: bool) -> AckType:
    try:
        kind = AckType(value)
    except ValueError as error:
        raise Invalid(f"Unknown acknowledge type: {value}") from error
    if kind is AckType.RENEW and not may_renew:
        raise InvalidRecordState("Renewing acquisition locks is not enabled for the group.")
    return kind
