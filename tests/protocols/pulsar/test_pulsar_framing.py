"""Frames: golden bytes, round trips, hostile bytes; the generated messages are up to date."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Corrupt
from bearlake.kernel import crc32c
from bearlake.protocols.pulsar import commands, framing
from bearlake.protocols.pulsar.framing import BadChecksum
from bearlake.protocols.pulsar.proto import commands_pb2 as pb
from bearlake.protocols.pulsar.proto import generate
from bearlake.protocols.pulsar.proto.metadata_pb2 import KeyValue, MessageMetadata
from fixtures.pulsar_server import message_bytes


def test_generated_messages_are_up_to_date() -> None:
    for name, content in generate.generate().items():
        is_same = (generate.FOLDER / name).read_text() == content
        assert is_same, f"{name} is out of date: run python -m bearlake.protocols.pulsar.proto.generate"


def test_commands_have_their_bytes() -> None:
    # PONG: type 19, field 19 with an empty message. SUCCESS: type 13, field 13 with request id 5.
    assert commands.frame("pong", pb.CommandPong()).hex() == "000000090000000508139a0100"
    assert commands.success(5).hex() == "0000000a00000006080d6a020805"
    # CLOSE_CONSUMER: type 16, field 16 with consumer 1, request id 2^64-1, URL.
    close = "0000002400000020081082011b080110ffffffffffffffffff011a0c"
    assert commands.close_consumer(1, "pulsar://b:1").hex() == close + b"pulsar://b:1".hex()


def test_a_send_of_a_client_is_read() -> None:
    """A frame as pulsar-client 3.13 sent it: SEND of producer 0, sequence 0, and the unbatched message b"hi"."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    head = metadata.SerializeToString()
    covered = struct.pack(">I", len(head)) + head + b"hi"
    command = bytes.fromhex("0806320408001000")
    frame = struct.pack(">I", len(command)) + command + struct.pack(">HI", 0x0E01, crc32c(covered)) + covered

    found, rest = framing.read_frame(memoryview(frame))
    message = framing.read_message(rest)

    assert (found.type, found.send.producer_id, found.send.sequence_id) == (6, 0, 0)
    assert (message.metadata.producer_name, bytes(message.payload)) == ("p", b"hi")


@given(value=st.binary(max_size=200), sequence_id=st.integers(0, 2**64 - 1), name=st.text(max_size=20))
def test_messages_survive_a_round_trip(value: bytes, sequence_id: int, name: str) -> None:
    body = pb.CommandSend(producer_id=3, sequence_id=sequence_id)
    frame = framing.message_frame(
        pb.BaseCommand(type=6, send=body), message_bytes(value, sequence_id, producer_name=name)
    )

    (size,) = struct.unpack_from(">I", frame)
    command, message = framing.read_frame(memoryview(frame)[4:])
    found = framing.read_message(message)

    assert size == len(frame) - 4
    assert command.send == body
    assert (bytes(found.payload), found.metadata.sequence_id, found.metadata.producer_name) == (
        value,
        sequence_id,
        name,
    )


def test_a_message_without_a_checksum_is_taken() -> None:
    message = message_bytes(b"value")[6:]

    assert bytes(framing.read_message(memoryview(message)).payload) == b"value"


@pytest.mark.parametrize("place", [6, 12, -1])
def test_a_damaged_message_does_not_match_its_checksum(place: int) -> None:
    message = bytearray(message_bytes(b"value"))
    message[place] ^= 1

    with pytest.raises(BadChecksum):
        framing.read_message(memoryview(message))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        struct.pack(">I", 1),
        struct.pack(">I", 2**32 - 1) + b"x" * 10,
        struct.pack(">I", 3) + b"\xff\xff\xff",
    ],
)
def test_a_frame_without_a_command_is_refused(frame: bytes) -> None:
    with pytest.raises(Corrupt):
        framing.read_frame(memoryview(frame))


@pytest.mark.parametrize(
    "message",
    [b"", b"\0\0", struct.pack(">I", 5), struct.pack(">I", 2**32 - 1) + b"x", struct.pack(">I", 2) + b"\xff\xff"],
)
def test_a_message_without_metadata_is_refused(message: bytes) -> None:
    with pytest.raises(Corrupt):
        framing.read_message(memoryview(message))


@given(data=st.binary(max_size=200))
def test_hostile_bytes_are_refused_with_our_own_messages(data: bytes) -> None:
    for read in (framing.read_frame, framing.read_message):
        with contextlib.suppress(Corrupt):
            read(memoryview(data))


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("lookup", pb.CommandLookupTopic(topic="needle", request_id=1)),
        ("subscribe", pb.CommandSubscribe(topic="t", subscription="needle", consumer_id=1, request_id=1)),
        (
            "producer",
            pb.CommandProducer(topic="t", producer_id=1, request_id=1, metadata=[KeyValue(key="k", value="needle")]),
        ),
        ("watch_topic_list", pb.CommandWatchTopicList(namespace="needle", topics_pattern="x")),
    ],
)
def test_a_command_with_a_text_that_is_not_utf_8_is_refused(name: str, body: Any) -> None:
    """protobuf returns such a text as bytes, which no handler expects."""
    frame = framing.command_frame(pb.BaseCommand(type=commands.NUMBERS[name], **{name: body}))[4:]

    assert framing.read_frame(memoryview(frame)).command.HasField(name)
    with pytest.raises(Corrupt, match="UTF-8"):
        framing.read_frame(memoryview(frame.replace(b"needle", b"need\xffe")))
