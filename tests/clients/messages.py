"""The messages and the operations with which every third-party client is tested.

A client is an adapter around an unmodified third-party library or program. The adapters exchange `Message`s; programs in other languages
exchange JSON lines: `{"key": base64|null, "value": base64|null, "headers": [[name, base64|null]]}`.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

TIMEOUT_S = 60
"""Time limit for one step of a client: create, produce or consume."""


@dataclass(frozen=True, slots=True)
class Message:
    """One record as a client writes and reads it; `None` is Kafka's null, not the empty string."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class ClientFailed(AssertionError):
    """A client reported an error, or did not get the expected result in time."""


class Client(Protocol):
    """A third-party client against one server."""

    @property
    def compressions(self) -> Sequence[str]:
        """Compressions that this client can write and read, including `none`."""

    @property
    def is_text_only(self) -> bool:
        """Whether the client reads and writes lines of text, so that it cannot show bytes that are not text."""

    @property
    def has_null_headers(self) -> bool:
        """Whether the client can write a header whose value is null."""

    def create_topic(self, topic: str, partition_count: int) -> None:
        """Create `topic`; raises ClientFailed when the server refuses."""

    def produce(self, topic: str, messages: Sequence[Message], compression: str = "none") -> None:
        """Write `messages`; all are acknowledged when this returns."""

    def consume(self, topic: str, group: str, count: int) -> list[Message]:
        """Join `group`, read exactly `count` messages from its committed offsets (a new group: from the start), commit, and leave."""


def by_content(messages: Iterable[Message]) -> list[Message]:
    """`messages` in an order that depends only on their content, since partitions arrive in any order."""
    return sorted(messages, key=repr)


def to_lines(messages: Iterable[Message]) -> bytes:
    """`messages` as JSON lines."""
    return b"".join(json.dumps(_to_json(message)).encode() + b"\n" for message in messages)


def from_lines(text: str) -> list[Message]:
    """The messages in JSON lines."""
    return [_from_json(json.loads(line)) for line in text.splitlines()]


def _to_json(message: Message) -> dict[str, object]:
    headers = [[name, _encode(value)] for name, value in message.headers]
    return {"key": _encode(message.key), "value": _encode(message.value), "headers": headers}


def _from_json(line: dict[str, list[list[str | None]] | str | None]) -> Message:
    key, value, headers = line["key"], line["value"], line["headers"]
    assert not isinstance(key, list)
    assert not isinstance(value, list)
    assert isinstance(headers, list)
    pairs = tuple((str(name), _decode(content)) for name, content in headers)
    return Message(value=_decode(value), key=_decode(key), headers=pairs)


def _encode(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _decode(content: str | None) -> bytes | None:
    return None if content is None else base64.b64decode(content)
