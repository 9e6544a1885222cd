"""GET_LAST_MESSAGE_ID: the last message of a topic (`last_messages.py`), and how far the consumer has acknowledged."""

from bearlake.metadata.model import partition_index
from bearlake.protocols.pulsar import commands, message_ids, subscribing
from bearlake.protocols.pulsar.connection import Connection
from bearlake.protocols.pulsar.proto.commands_pb2 import (
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    MessageIdData,
)


async def last_message_id(connection: Connection, request: CommandGetLastMessageId) -> bytes:
    """Handle GET_LAST_MESSAGE_ID. Raises the error for the answer."""
    consumer = subscribing.attached(connection, request.consumer_id)
    assert consumer.attachment is not None
    last = await connection.context.last_messages.find(consumer.partition)
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


def _acknowledged(last: MessageIdData, mark_delete: int) -> int:
    """The id of the entry up to which all entries are acknowledged, at most that of the last message: clients compare the two ids."""
    is_inside_last = last.entry_id < mark_delete <= last.entry_id + max(last.batch_index, 0)
    before = (last.entry_id if is_inside_last else mark_delete) - 1
    return min(before, last.entry_id) & message_ids.NONE
