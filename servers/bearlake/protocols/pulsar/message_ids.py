"""Message ids: any server can resolve them, and compaction does not change them.

    ledger_id     the number of the stream's incarnation
    entry_id      the first offset of the record batch (the *entry*)
    partition     the partition's index; -1 if the topic is not partitioned
    batch_index   the message's index in its entry: offset - entry_id; -1: the entry is one message

Ids therefore have the order of offsets, and an id of a deleted stream never refers to a message of its successor. Entry ids are not dense:
the next entry after an entry with n messages has the id entry_id + n. Clients send entry_id - 1 for "all before this entry"; the server
accepts that id with this meaning. Clients send 2^64-1 as ledger and entry for the earliest message, and 2^63-1 for the latest.

In acknowledgements `ack_set` holds 64 messages of the entry per word, lowest bit first; a set bit is a message that is *not* acknowledged.
"""

from collections.abc import Iterable, Sequence

from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.protocols.pulsar.proto.commands_pb2 import MessageIdData
from bearlake.streams.subscriptions.model import EARLIEST, LATEST

NONE = (1 << 64) - 1
"""Ledger and entry of a message id that names no message: for a duplicate or an empty topic."""
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
    """The start position that this message id means: an offset, `EARLIEST` or `LATEST`.

    An id of an older incarnation means `EARLIEST`, of a newer one `LATEST`. Inside an entry, the position is the first unacknowledged
    message of `ack_set`, else `batch_index`. With `is_whole` it is the start of the entry; the client then skips the messages it has.
    """
    ledger, entry = message.ledger_id, message.entry_id
    if ledger == entry == _LATEST:
        return LATEST
    if ledger == _EARLIEST:
        return EARLIEST if entry == _EARLIEST else LATEST
    own = stream_number(partition)
    if ledger != own:
        return EARLIEST if ledger < own else LATEST
    if entry > _LATEST:  # -1 as unsigned: before the first entry
        return EARLIEST
    if is_whole:
        return entry
    open_bits = bits(message.ack_set)
    place = (open_bits & -open_bits).bit_length() - 1 if open_bits else max(message.batch_index, 0)
    return min(entry + place, _LATEST)


def bits(words: Iterable[int]) -> int:
    """The bits of an `ack_set` as one integer."""
    return int.from_bytes(b"".join((word & NONE).to_bytes(8, "little") for word in words), "little")


def words(count: int, acknowledged: Sequence[tuple[int, int]], base_offset: int) -> list[int]:
    """The `ack_set` of an entry with `count` messages and these acknowledged offset ranges; empty without ranges."""
    if not acknowledged:
        return []
    number = (1 << count) - 1
    for start, end in acknowledged:
        number &= ~(((1 << (end - start)) - 1) << (start - base_offset))
    places = range(0, count, _WORD_BITS)
    return [_signed(number >> place & NONE) for place in places]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
