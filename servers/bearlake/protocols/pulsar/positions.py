"""GET_LAST_MESSAGE_ID: the last message of a topic, and how far the consumer has acknowledged."""

from functools import partial
from typing import TypeAlias

from bearlake import kernel
from bearlake.errors import NotFound, Unavailable
from bearlake.metadata.model import PartitionKey, partition_index, stream_number
from bearlake.protocols.pulsar import commands, entries, message_ids, subscribing
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    MessageIdData,
)
from bearlake.records.batch import is_control
from bearlake.streams.fetched import FetchRange

READS_MAX = 1_000
"""Reads of one search for the last message. Further back, the id is that of a marker or of an aborted batch."""
READ_OFFSETS_MAX = 4_096
READ_BYTES = 256 * 1024
"""Offsets and bytes of one of these reads. Markers and aborted batches have less than 100 bytes each."""

Batch: TypeAlias = tuple[memoryview, int, kernel.BatchHeader]
"""A batch, its base offset, and its header."""


async def last_message_id(connection: Connection, request: CommandGetLastMessageId) -> bytes:
    """Handle GET_LAST_MESSAGE_ID. Raises the error for the answer."""
    consumer = subscribing.attached(connection, request.consumer_id)
    assert consumer.attachment is not None
    last = await find_last(connection.context, consumer.partition)
    if consumer.topic.is_partitioned:
        last.partition = partition_index(consumer.partition)
    body = CommandGetLastMessageIdResponse(
        request_id=request.request_id,
        last_message_id=last,
        consumer_mark_delete_position=MessageIdData(
            ledger_id=last.ledger_id, entry_id=_acknowledged(last, consumer.attachment.mark_delete)
        ),
    )
    return commands.frame("get_last_message_id_response", body)


async def find_last(context: PulsarContext, partition: PartitionKey) -> MessageIdData:
    """The id of the last message of a partition; entry 2^64-1 if the partition is empty. Raises `NotFound`, `Unavailable`.

    Looks for it before the markers and aborted batches of transactions.
    """
    last = MessageIdData(ledger_id=stream_number(partition), entry_id=message_ids.NONE)
    bounds = (await context.streams.bounds([partition])).get(partition)
    if bounds is None:
        raise NotFound("the topic has been deleted")
    found = await _last_batch(context, partition, bounds.start, bounds.last_stable)
    if found is None:
        return last
    batch, base_offset, header = found
    entry = await context.opener.opened(batch, partial(entries.from_records, batch, base_offset, entries.ANY_BYTES))
    last.entry_id = base_offset
    last.batch_index = header.last_offset_delta if entry.is_batch else -1
    return last


async def _last_batch(context: PulsarContext, partition: PartitionKey, start: int, end: int) -> Batch | None:
    """Return the last batch with messages in `[start, end)`; None if there is none. After `READS_MAX` reads: the batch that it came to.

    Each read begins twice as far back as the one before, as long as it reaches the offsets that are known to have no messages.
    """
    size = 1
    reached: Batch | None = None
    for _ in range(READS_MAX):
        if start >= end:
            return None
        at = max(start, end - size)
        found = await _read(context, partition, at)
        _, base_offset, header = found[-1]
        if base_offset + header.last_offset_delta + 1 < end:
            size = max(1, (end - at) // 2)
            continue
        for batch in reversed(found):
            if batch[1] < end and batch[2].record_count and not is_control(batch[2].attributes):
                return batch
        reached = found[0]
        end = reached[1]
        size = min(2 * size, READ_OFFSETS_MAX)
    return reached


async def _read(context: PulsarContext, partition: PartitionKey, offset: int) -> list[Batch]:
    """Return the batches from the one that holds the offset on. Raises the error of the read, and `Unavailable`."""
    streams = context.streams
    (found,) = await streams.fetch(
        [FetchRange(partition, offset, READ_BYTES)],
        bytes_min=1,
        bytes_max=READ_BYTES,
        wait_ms=streams.settings.writer.deadline_ms,
    )
    if found.error is not None:
        raise found.error
    if not found.views:
        raise Unavailable(f"the message at offset {offset} is not readable yet")
    return [
        (view[start : start + header.length], base_offset, header)
        for view in found.views
        for start, base_offset, header in kernel.batches(view, 0, len(view))
    ]


def _acknowledged(last: MessageIdData, mark_delete: int) -> int:
    """The id of the entry up to which all entries are acknowledged, at most that of the last message: clients compare the two ids."""
    is_inside_last = last.entry_id < mark_delete <= last.entry_id + max(last.batch_index, 0)
    before = (last.entry_id if is_inside_last else mark_delete) - 1
    return min(before, last.entry_id) & message_ids.NONE
