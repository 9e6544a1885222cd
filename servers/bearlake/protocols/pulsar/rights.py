"""The rights that each command needs. A table for readers: documentation is generated from it, and a test compares it with the handlers."""

from collections.abc import Mapping

from bearlake.streams.access.rights import DESCRIBE_STREAM, READ_STREAM, WRITE_STREAM, Right, on
from bearlake.streams.principal import Operation, Resource

_READ_SUBJECT, _WRITE_SUBJECT = (on(Resource.SUBJECT, operation) for operation in (Operation.READ, Operation.WRITE))

NEEDED: Mapping[str, tuple[Right, ...]] = {
    "connect": (),
    "auth_response": (),
    "ping": (),
    "pong": (),
    "partitioned_metadata": DESCRIBE_STREAM,
    "lookup": DESCRIBE_STREAM,
    "get_topics_of_namespace": DESCRIBE_STREAM,
    "watch_topic_list": DESCRIBE_STREAM,
    "watch_topic_list_close": (),
    "producer": WRITE_STREAM,
    "send": WRITE_STREAM,
    "close_producer": (),
    "subscribe": READ_STREAM,
    "flow": READ_STREAM,
    "ack": READ_STREAM,
    "redeliver_unacknowledged_messages": READ_STREAM,
    "seek": READ_STREAM,
    "unsubscribe": READ_STREAM,
    "consumer_stats": READ_STREAM,
    "get_last_message_id": READ_STREAM,
    "close_consumer": (),
    "get_schema": DESCRIBE_STREAM + _READ_SUBJECT,
    "get_or_create_schema": WRITE_STREAM + _READ_SUBJECT + _WRITE_SUBJECT,
    "tc_client_connect_request": (),  # transactions are refused
    "new_txn": (),
    "add_partition_to_txn": (),
    "add_subscription_to_txn": (),
    "end_txn": (),
}
"""All of these rights, for the topic that the command names or that its producer or consumer has.

A command that creates the topic also needs CREATE. `get_or_create_schema` needs WRITE on the subject only for a schema that is new.
`producer` with a schema needs the same rights on the subject, and with an initial subscription also READ on the topic. `subscribe` with a
schema needs READ on the subject, and WRITE if it is the topic's first schema.
"""
