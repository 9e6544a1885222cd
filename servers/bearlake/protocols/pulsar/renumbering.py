"""Last sequence ids for clients that restart their numbering when they reopen a producer.

The C++ client, and the Python and Node.js clients built on it, set the sequence id of their next message to `last_sequence_id + 1` of each
PRODUCER_SUCCESS, until they have received a receipt or a `last_sequence_id` other than -1. At that time their first messages may still
wait to be sent again, with ids from 0 on. New messages would repeat these ids. The server would treat them as duplicates: acknowledge
them, and not store them.

    open:     server returns -1          m0=0 m1=1 m2=2    no receipt; m0 may be stored
    reopen:   server returns 2^32 + 0    m0=0 m1=1 m2=2    sent again, then new messages: m3=2^32+1 …

The server therefore answers a reopened producer with an id that no waiting message can have. A client that has had a receipt ignores it.

Source: pulsar-client-cpp, `ProducerImpl::handleCreateProducer` and `HandlerBase::handleTimeout`.
"""

from bearlake.protocols.pulsar.proto.commands_pb2 import CommandProducer

CLIENT = "Pulsar-CPP-v"
"""The prefix of `CommandConnect.client_version`; Python and Node.js send the version of the C++ client that they contain."""
SKIPPED_COUNT = 1 << 32
"""Number of skipped sequence ids: more than a client assigns without a receipt, and within JavaScript's exact integers (2^53)."""
SEQUENCE_MAX = (1 << 63) - 1
"""The largest sequence id that can be stored."""
OPENED = 0
"""The topic epoch returned to a shared producer, which the client sends back when it reopens the producer; it has no other use."""


def renumbers(client_version: str) -> bool:
    """Whether the client may reuse the sequence ids of waiting messages when it reopens a producer."""
    return client_version.startswith(CLIENT)


def is_reopened(request: CommandProducer) -> bool:
    """Whether the client has received a PRODUCER_SUCCESS for this producer before: it sends the topic epoch or a name that we chose.

    The request's `epoch` does not tell, because it grows with each attempt, even before the first response. An application that reads
    from its first response where to resume must get the true id.
    """
    return request.HasField("topic_epoch") or bool(request.producer_name and not request.user_provided_producer_name)


def returned_sequence_id(client_version: str, request: CommandProducer, last_sequence_id: int) -> int:
    """The sequence id to return; `last_sequence_id` is the id of the last message stored under the producer's name (-1: none)."""
    if not renumbers(client_version) or not is_reopened(request):
        return last_sequence_id
    if last_sequence_id > SEQUENCE_MAX - SKIPPED_COUNT:
        return last_sequence_id  # the application assigns the ids
    return last_sequence_id + SKIPPED_COUNT
