"""Templates for the Pulsar load generator: the frames that open a producer or a consumer, and the SEND that is repeated.

A SEND is like the Java client's for a batch: every message has its sequence id, the entry the first and the last one. Ids begin
at the first number whose varint has five bytes, so that `loader/pulsar.c` can increment them in place; it also writes the checksum.

Source: Pulsar binary protocol specification; the messages are those of `bearlake.protocols.pulsar.proto`.
"""

import random
import time
from dataclasses import dataclass
from struct import Struct
from typing import Literal

from bearlake.protocols.pulsar.proto.commands_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
)
from bearlake.protocols.pulsar.proto.metadata_pb2 import MessageMetadata, SingleMessageMetadata

CLIENT = "load"
PROTOCOL_VERSION = 21
FIRST_SEQUENCE_ID = 1 << 28
"""The smallest number whose varint has five bytes."""
SUBSCRIPTION = "load"
_SIZE = Struct(">I")
_SIZES = Struct(">II")
_CHECKSUM = Struct(">HI")
_MAGIC = 0x0E01

Subscription = Literal["Exclusive", "Shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The content of one SEND: `message_count` messages of `message_bytes` bytes in a batch; a single message is unbatched."""

    message_count: int
    message_bytes: int

    @property
    def payload_bytes(self) -> int:
        """Bytes of all messages together."""
        return self.message_count * self.message_bytes


def producer(topic: str, entry: Entry) -> bytes:
    """Template of a producer's connection."""
    request = CommandProducer(topic=topic, producer_id=0, request_id=1, producer_name=CLIENT)
    return _connect() + _frame(BaseCommand(type=5, producer=request)) + send(entry)


def consumer(topic: str, number: int, kind: Subscription) -> bytes:
    """Template of the connection of consumer `number`, from the topic's beginning."""
    request = CommandSubscribe(
        topic=topic,
        subscription=SUBSCRIPTION,
        sub_type=kind,
        consumer_id=number,
        request_id=1,
        consumer_name=f"{CLIENT}-{number}",
        initial_position=CommandSubscribe.Earliest,
    )
    return _connect() + _frame(BaseCommand(type=4, subscribe=request))


def send(entry: Entry, *, seed: int = 1) -> bytes:
    """A SEND whose checksum is 0."""
    source = random.Random(seed)
    last = FIRST_SEQUENCE_ID + entry.message_count - 1
    metadata = MessageMetadata(
        producer_name=CLIENT, sequence_id=FIRST_SEQUENCE_ID, publish_time=time.time_ns() // 1_000_000
    )
    command = CommandSend(producer_id=0, sequence_id=FIRST_SEQUENCE_ID)
    if entry.message_count == 1:
        payload = source.randbytes(entry.message_bytes)
    else:
        payload = b"".join(_single(source, entry, number) for number in range(entry.message_count))
        metadata.num_messages_in_batch = command.num_messages = entry.message_count
        metadata.highest_sequence_id = command.highest_sequence_id = last
    metadata.uncompressed_size = len(payload)
    head = metadata.SerializeToString()
    message = _CHECKSUM.pack(_MAGIC, 0) + _SIZE.pack(len(head)) + head + payload
    return _frame(BaseCommand(type=6, send=command), message)


def _single(source: random.Random, entry: Entry, number: int) -> bytes:
    head = SingleMessageMetadata(
        payload_size=entry.message_bytes, sequence_id=FIRST_SEQUENCE_ID + number
    ).SerializeToString()
    return _SIZE.pack(len(head)) + head + source.randbytes(entry.message_bytes)


def _connect() -> bytes:
    request = CommandConnect(client_version=CLIENT, protocol_version=PROTOCOL_VERSION)
    return _frame(BaseCommand(type=2, connect=request))


def _frame(command: BaseCommand, message: bytes = b"") -> bytes:
    body = command.SerializeToString()
    return _SIZES.pack(_SIZE.size + len(body) + len(message), len(body)) + body + message
