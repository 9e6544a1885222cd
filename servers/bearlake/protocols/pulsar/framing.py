"""Frames of the Pulsar protocol: converts bytes to commands and back.

    command          +------------+--------------+-------------+
                     | total u32  | command u32  | BaseCommand |
                     +------------+--------------+-------------+

    with a message   +------------+--------------+-------------+--------+------------+---------------+----------+---------+
                     | total u32  | command u32  | BaseCommand | 0x0e01 | CRC32C u32 | metadata u32  | metadata | payload |
                     +------------+--------------+-------------+--------+------------+---------------+----------+---------+

Numbers are big-endian. Sizes exclude their own field. The checksum covers all bytes after it; clients may omit the checksum and its
magic. `metadata` is a `MessageMetadata`.

Source: Pulsar binary protocol specification, "Framing".
"""

from struct import Struct
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand
from bearlake.protocols.pulsar.proto.metadata_pb2 import MessageMetadata

SIZE = Struct(">I")
_SIZES = Struct(">II")
_CHECKSUM = Struct(">HI")
_MAGIC_CHECKSUM = 0x0E01

PADDING_BYTES = 10 * 1024
"""Bytes that a frame may have in addition to the largest message, for its command (Pulsar's MESSAGE_SIZE_FRAME_PADDING)."""
_COMMAND_BYTES_MAX = 1024


class BadChecksum(Corrupt):
    """The checksum of a message does not match: the message was damaged in transit, so sending it again may succeed."""


class Frame(NamedTuple):
    """A command, and the message after it (empty if none), still in the receive buffer."""

    command: BaseCommand
    message: memoryview


class Message(NamedTuple):
    """The metadata and payload of a message; the metadata says whether the payload is compressed, encrypted or a batch."""

    metadata: MessageMetadata
    payload: memoryview


def read_frame(frame: memoryview) -> Frame:
    """Parse a frame without its total size; all texts of the command are UTF-8. Raises `Corrupt`."""
    if len(frame) < SIZE.size:
        raise Corrupt(f"a frame of {len(frame)} bytes has no command")
    (size,) = SIZE.unpack_from(frame)
    end = SIZE.size + size
    if end > len(frame):
        raise Corrupt(f"a command of {size} bytes in a frame of {len(frame)} bytes")
    try:
        command = BaseCommand.FromString(bytes(frame[SIZE.size : end]))
    except DecodeError as error:
        raise Corrupt(f"a command of {size} bytes is malformed") from error
    if command.type in _WITH_TEXTS:
        _check_texts(command)
    return Frame(command, frame[end:])


def _has_texts(kind: Any, outer: tuple[Any, ...] = ()) -> bool:
    """Whether a message may have a text (Any: a descriptor of either implementation of protobuf).

    `outer` are the messages around it: a message id may contain a message id.
    """
    inner = {field.message_type for field in kind.fields if field.message_type is not None} - {kind, *outer}
    is_text = any(field.type == FieldDescriptor.TYPE_STRING for field in kind.fields)
    return is_text or any(_has_texts(message, (kind, *outer)) for message in inner)


_WITH_TEXTS = frozenset(
    field.number
    for field in BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None and _has_texts(field.message_type)
)
"""Commands that have a text. SEND, ACK and FLOW are not among them."""


def _check_texts(message: ProtobufMessage) -> None:
    """Raise `Corrupt` for a text that is not UTF-8: protobuf's library returns such a text of proto2 as bytes."""
    for field, value in message.ListFields():
        values = value if field.is_repeated else (value,)
        if field.message_type is not None:
            for inner in values:
                _check_texts(inner)
        elif field.type == FieldDescriptor.TYPE_STRING and not all(isinstance(text, str) for text in values):
            raise Corrupt(f"the field {field.name} of a command is not UTF-8")


def read_message(message: memoryview) -> Message:
    """Parse the message after a SEND command.

    Raises:
        BadChecksum: the checksum does not match.
        Corrupt: the bytes are not a message.
    """
    at = 0
    if len(message) >= _CHECKSUM.size:
        magic, checksum = _CHECKSUM.unpack_from(message)
        if magic == _MAGIC_CHECKSUM:
            at = _CHECKSUM.size
            if kernel.crc32c(message[at:]) != checksum:
                raise BadChecksum("the message does not match its checksum")
    if len(message) < at + SIZE.size:
        raise Corrupt(f"a message of {len(message)} bytes has no metadata")
    (size,) = SIZE.unpack_from(message, at)
    start = at + SIZE.size
    end = start + size
    if end > len(message):
        raise Corrupt(f"metadata of {size} bytes in a message of {len(message)} bytes")
    try:
        return Message(MessageMetadata.FromString(bytes(message[start:end])), message[end:])
    except DecodeError as error:
        raise Corrupt(f"metadata of {size} bytes is malformed") from error


def entry_bytes_max(message_bytes_max: int) -> int:
    """The largest entry in bytes, from its magic on, that fits into a frame for clients with this message limit.

    The result is slightly larger than the limit, because the payload alone of a chunk can reach the limit.
    """
    return message_bytes_max + PADDING_BYTES - _COMMAND_BYTES_MAX


def command_frame(command: BaseCommand) -> bytes:
    """The frame of a command without a message."""
    body = command.SerializeToString()
    return _SIZES.pack(SIZE.size + len(body), len(body)) + body


def message_frame(command: BaseCommand, message: bytes) -> bytes:
    """The frame of a command with a message; `message` starts at its magic (`entries.from_batch`)."""
    body = command.SerializeToString()
    return b"".join((_SIZES.pack(SIZE.size + len(body) + len(message), len(body)), body, message))
