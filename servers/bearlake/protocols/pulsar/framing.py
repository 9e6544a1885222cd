"""Frames of the Pulsar protocol: bytes to commands and back.

    command          +------------+--------------+-------------+
                     | total u32  | command u32  | BaseCommand |
                     +------------+--------------+-------------+

    with a message   +------------+--------------+-------------+--------+------------+---------------+----------+---------+
                     | total u32  | command u32  | BaseCommand | 0x0e01 | CRC32C u32 | metadata u32  | metadata | payload |
                     +------------+--------------+-------------+--------+------------+---------------+----------+---------+

Numbers are big-endian; sizes do not count themselves; the checksum covers all behind it, and clients may leave it out together with
its magic. `metadata` is a `MessageMetadata`.

Source: Pulsar binary protocol specification, "Framing".
"""

from struct import Struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from bearlake import kernel
from bearlake.errors import Corrupt
from bearlake.protocols.pulsar.proto.commands_pb2 import BaseCommand
from bearlake.protocols.pulsar.proto.metadata_pb2 import MessageMetadata

SIZE = Struct(">I")
_SIZES = Struct(">II")
_CHECKSUM = Struct(">HI")
_MAGIC_CHECKSUM = 0x0E01

PADDING_BYTES = 10 * 1024
"""What a frame may have beside the largest message: its command (Pulsar's MESSAGE_SIZE_FRAME_PADDING)."""
_COMMAND_BYTES_MAX = 1024


class BadChecksum(Corrupt):
    """A message's checksum does not match: it was damaged on its way; sent again, it may arrive whole."""


class Frame(NamedTuple):
    """A command, and the message behind it (empty if none), still in the receive buffer."""

    command: BaseCommand
    message: memoryview


class Message(NamedTuple):
    """A message's metadata, and its payload as sent: compressed, encrypted, batched as the metadata says."""

    metadata: MessageMetadata
    payload: memoryview


def read_frame(frame: memoryview) -> Frame:
    """Parse a frame without its total size. Raises `Corrupt`."""
    if len(frame) < SIZE.size:
        raise Corrupt(f"a frame of {len(frame)} bytes has no command")
    (size,) = SIZE.unpack_from(frame)
    end = SIZE.size + size
    if end > len(frame):
        raise Corrupt(f"a command of {size} bytes in a frame of {len(frame)} bytes")
    try:
        return Frame(BaseCommand.FromString(bytes(frame[SIZE.size : end])), frame[end:])
    except DecodeError as error:
        raise Corrupt(f"a command of {size} bytes does not parse") from error


def read_message(message: memoryview) -> Message:
    """Parse what is behind a SEND command.

    Raises:
        BadChecksum: the checksum does not match.
        Corrupt: it is not a message.
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
        raise Corrupt(f"metadata of {size} bytes does not parse") from error


def entry_bytes_max(message_bytes_max: int) -> int:
    """Largest entry, from its magic on, that fits into a frame which clients take that were told this limit.

    It is a little more than the limit, which a chunk of a large message reaches without what is in front of its payload.
    """
    return message_bytes_max + PADDING_BYTES - _COMMAND_BYTES_MAX


def command_frame(command: BaseCommand) -> bytes:
    """A frame of a command alone."""
    body = command.SerializeToString()
    return _SIZES.pack(SIZE.size + len(body), len(body)) + body


def message_frame(command: BaseCommand, message: bytes) -> bytes:
    """A frame of a command with a message, which is given from its magic on (`entries.from_batch`)."""
    body = command.SerializeToString()
    return b"".join((_SIZES.pack(SIZE.size + len(body) + len(message), len(body)), body, message))
