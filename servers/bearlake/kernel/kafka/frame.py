"""The fields that responses to Produce and Fetch share. Flexible versions write lengths as varints and tagged fields (KIP-482)."""

from dataclasses import dataclass
from struct import Struct

_INT16, _INT32 = Struct(">h"), Struct(">i")
_NAME_BYTES_MAX = 0x7FFF


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a version of a response is encoded; `name` begins the messages of errors."""

    name: str
    is_flexible: bool
    has_topic_ids: bool

    @property
    def tags(self) -> bytes:
        """The end of a structure: a flexible version has no tagged fields there."""
        return b"\0" if self.is_flexible else b""

    def count(self, count: int) -> bytes:
        """Encode the number of elements of an array, or of bytes. Raises `struct.error` if it does not fit."""
        return _varint(count + 1) if self.is_flexible else _INT32.pack(count)

    def topic(self, topic: str | bytes) -> bytes:
        """Encode a topic's name, or its id (KIP-516). Raises `ValueError` unless it is what the version has."""
        if self.has_topic_ids:
            if isinstance(topic, bytes) and len(topic) == 16:
                return topic
            raise ValueError(f"{self.name}: a topic id has 16 bytes")
        if isinstance(topic, str) and len(name := topic.encode()) <= _NAME_BYTES_MAX:
            return (_varint(len(name) + 1) if self.is_flexible else _INT16.pack(len(name))) + name
        raise ValueError(f"{self.name}: a topic name is a str of at most {_NAME_BYTES_MAX} bytes")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
