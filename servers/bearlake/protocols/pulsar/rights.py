"""The rights that each command needs. A table for readers: documentation is generated from it, and a test compares it with the handlers."""

from collections.abc import Mapping

from bearlake.streams.access.rights import Right, on
from bearlake.streams.principal import Operation, Resource

_DESCRIBE, _READ, _WRITE = (
    on(Resource.STREAM, operation) for operation in (Operation.DESCRIBE, Operation.READ, Operation.WRITE)
)
_READ_SCHEMA, _WRITE_SCHEMA = (on(Resource.SUBJECT, operation) for operation in (Operation.READ, Operation.WRITE))

NEEDED: Mapping[str, tuple[Right, ...]] = {
    "connect": (),
    "auth_response": (),
    "ping": (),
    "pong": (),
    "partitioned_metadata": _DESCRIBE,
    "lookup": _DESCRIBE,
    "get_topics_of_namespace": _DESCRIBE,
    "watch_topic_list": _DESCRIBE,
    "watch_topic_list_close": (),
    "producer": _WRITE,
    "send": _WRITE,
    "close_producer": (),
    "subscribe": _READ,
    "flow": _READ,
    "ack": _READ,
    "redeliver_unacknowledged_messages": _READ,
    "seek": _READ,
    "unsubscribe": _READ,
    "consumer_stats": _READ,
    "get_last_message_id": _READ,
    "close_consumer": (),
    "get_schema": _DESCRIBE + _READ_SCHEMA,
    "get_or_create_schema": _WRITE + _READ_SCHEMA + _WRITE_SCHEMA,
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
