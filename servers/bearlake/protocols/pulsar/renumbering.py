"""Last sequence ids for clients that number their messages anew when they open a producer again.

The C++ client, and Python and Node.js on top of it, set the number of their next message to `last_sequence_id + 1` of each
PRODUCER_SUCCESS until they have had a receipt, or an answer other than -1. Their first messages may still wait to be sent again then, with
numbers from 0 on. New messages would repeat these numbers, and would pass for duplicates: acknowledged, and not stored.

    open:        told -1           m0=0 m1=1 m2=2    no receipt; m0 may be stored
    open again:  told 2^32 + 0     m0=0 m1=1 m2=2    sent again, then new messages: m3=2^32+1 …

A producer that is opened again is told a number that no waiting message can have. A client that has had a receipt ignores it.

Source: pulsar-client-cpp, `ProducerImpl::handleCreateProducer` and `HandlerBase::handleTimeout`.
"""

from bearlake.protocols.pulsar.proto.commands_pb2 import CommandProducer

CLIENT = "Pulsar-CPP-v"
"""How `CommandConnect.client_version` begins; Python and Node.js send that of the C++ client that they contain."""
SKIPPED_COUNT = 1 << 32
"""Sequence ids that are skipped: more than a client numbers without one receipt, and few enough for JavaScript's exact integers (2^53)."""
SEQUENCE_MAX = (1 << 63) - 1
"""Largest sequence id that can be stored."""
OPENED = 0
"""The topic epoch that a producer beside others is told, for it to send back: nothing else depends on it."""


def renumbers(client_version: str) -> bool:
    """Whether the client may repeat the numbers of messages that wait, when it opens a producer again."""
    return client_version.startswith(CLIENT)


def is_reopened(request: CommandProducer) -> bool:
    """Whether the client has had a PRODUCER_SUCCESS for this producer before: it sends back the topic epoch, or a name that we chose.

    Its `epoch` does not tell: it grows with each attempt, also before the first answer. An application that reads where it has to go on
    after its first answer must get the truth.
    """
    return request.HasField("topic_epoch") or bool(request.producer_name and not request.user_provided_producer_name)


def told_sequence_id(client_version: str, request: CommandProducer, last_sequence_id: int) -> int:
    """What the client is told for `last_sequence_id`, that of the last message stored under the producer's name (-1: none)."""
    if not renumbers(client_version) or not is_reopened(request):
        return last_sequence_id
    if last_sequence_id > SEQUENCE_MAX - SKIPPED_COUNT:
        return last_sequence_id  # numbered by the application
    return last_sequence_id + SKIPPED_COUNT
