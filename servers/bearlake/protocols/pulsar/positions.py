"""GET_LAST_MESSAGE_ID: the last message of a topic, and how far the consumer has acknowledged."""

from functools import partial

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

STEPS_MAX = 100
"""Batches without messages that a search for the last message reads. Further back, the id is that of a marker."""


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

    Looks for it before the markers and aborted batches of transactions, up to `STEPS_MAX` batches back.
    """
    streams = context.streams
    last = MessageIdData(ledger_id=stream_number(partition), entry_id=message_ids.NONE)
    bounds = (await streams.bounds([partition])).get(partition)
    if bounds is None:
        raise NotFound("the topic has been deleted")
    offset = bounds.last_stable - 1
    for _ in range(STEPS_MAX):
        if offset < bounds.start:
            return last
        batch, base_offset, header = await _batch_at(context, partition, offset)
        if header.record_count and not is_control(header.attributes):
            break
        offset = base_offset - 1
    entry = await context.opener.opened(batch, partial(entries.from_records, batch, base_offset, entries.ANY_BYTES))
    last.entry_id = base_offset
    last.batch_index = header.last_offset_delta if entry.is_batch else -1
    return last


async def _batch_at(
    context: PulsarContext, partition: PartitionKey, offset: int
) -> tuple[memoryview, int, kernel.BatchHeader]:
    """Return the batch that holds the offset, with its base offset. Raises the error of the read, and `Unavailable`."""
    streams = context.streams
    (found,) = await streams.fetch(
        [FetchRange(partition, offset, 1)], bytes_min=1, bytes_max=1, wait_ms=streams.settings.writer.deadline_ms
    )
    if found.error is not None:
        raise found.error
    if not found.views:
        raise Unavailable(f"the message at offset {offset} is not readable yet")
    view = found.views[0]
    start, base_offset, header = next(iter(kernel.batches(view, 0, len(view))))
    return view[start : start + header.length], base_offset, header


def _acknowledged(last: MessageIdData, mark_delete: int) -> int:
    """The id of the entry up to which all entries are acknowledged, at most that of the last message: clients compare the two ids."""
    is_inside_last = last.entry_id < mark_delete <= last.entry_id + max(last.batch_index, 0)
    before = (last.entry_id if is_inside_last else mark_delete) - 1
    return min(before, last.entry_id) & message_ids.NONE
