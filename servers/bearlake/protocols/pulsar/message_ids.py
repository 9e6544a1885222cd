"""Message ids: names of messages that any server can read, and that compaction does not change.

    ledger_id     the number of the stream's incarnation
    entry_id      the first offset of the record batch (the *entry*)
    partition     the partition's index, -1 in a topic that is not partitioned
    batch_index   the message's place in its entry: offset - entry_id; -1: the entry is one message

So ids order as offsets do, and an id of a deleted stream is never taken for one of its successor. Entry ids are not dense: the entry
behind the one with n messages is entry_id + n. Clients compute entry_id - 1 to say "all before this entry", and it means that.
2^64-1 twice is the earliest message, 2^63-1 twice the latest, as clients send them.

In acknowledgements `ack_set` has 64 messages of the entry per word, lowest bit first; a set bit is a message that is *not* acknowledged.
"""

from collections.abc import Iterable, Sequence

from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.protocols.pulsar.proto.commands_pb2 import MessageIdData
from bearlake.streams.subscriptions.model import EARLIEST, LATEST

NONE = (1 << 64) - 1
"""Ledger and entry of a message id that names nothing: of a duplicate, of an empty topic."""
_EARLIEST = NONE
_LATEST = (1 << 63) - 1
_WORD_BITS = 64


def entry_id(partition: PartitionKey, base_offset: int, *, is_partitioned: bool) -> MessageIdData:
    """The id of an entry."""
    return MessageIdData(
        ledger_id=stream_number(partition),
        entry_id=base_offset,
        partition=partition_index(partition) if is_partitioned else -1,
    )


def start_offset(message: MessageIdData, partition: PartitionKey, *, is_whole: bool = False) -> int:
    """Where a client that names this message wants to start: an offset, `EARLIEST` or `LATEST`.

    An id of another incarnation lies before (an older one) or behind everything. Inside an entry the first message that the client has
    not done with counts: its `ack_set`, else its `batch_index`; with `is_whole` the entry, of which the client skips what it knows.
    """
    ledger, entry = message.ledger_id, message.entry_id
    if ledger == entry == _LATEST:
        return LATEST
    if ledger == _EARLIEST:
        return EARLIEST if entry == _EARLIEST else LATEST
    own = stream_number(partition)
    if ledger != own:
        return EARLIEST if ledger < own else LATEST
    if entry > _LATEST:  # the entry before the first one
        return EARLIEST
    if is_whole:
        return entry
    open_bits = bits(message.ack_set)
    place = (open_bits & -open_bits).bit_length() - 1 if open_bits else max(message.batch_index, 0)
    return min(entry + place, _LATEST)


def bits(words: Iterable[int]) -> int:
    """The bits of an `ack_set` in one number."""
    return int.from_bytes(b"".join((word & NONE).to_bytes(8, "little") for word in words), "little")


def words(count: int, acknowledged: Sequence[tuple[int, int]], base_offset: int) -> list[int]:
    """The `ack_set` of an entry of `count` messages of which these offset ranges are acknowledged; empty if none is."""
    if not acknowledged:
        return []
    number = (1 << count) - 1
    for start, end in acknowledged:
        number &= ~(((1 << (end - start)) - 1) << (start - base_offset))
    places = range(0, count, _WORD_BITS)
    return [_signed(number >> place & NONE) for place in places]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
