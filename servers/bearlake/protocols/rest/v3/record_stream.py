"""Concatenated JSON objects out of a body that arrives in pieces, and what an object says about a record.

    {"partition_id": 0, "key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": {…}},
     "headers": [{"name": "h", "value": "base64"}], "timestamp": "2026-01-31T12:00:00Z"}

Keys and values: see `parts.py`. Source: Confluent, "REST Proxy API Reference v3", Produce Records.
"""

import base64
import binascii
import codecs
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from bearlake.errors import TooLarge
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.v3.parts import Part, part

_SPACE = " \t\r\n"
_CUT_LENGTH_MAX = 12
"""How far before the end the decoder may complain when only the rest is missing (a number, a word, an escape)."""
_INDEX_MAX = 2**31 - 1


class Wanted(NamedTuple):
    """A record to write, and its partition if it names one."""

    partition: int | None
    key: Part
    value: Part
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class Objects:
    """Objects out of pieces. One object may have `bytes_max` bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder(parse_constant=_refuse)
        self._text = ""

    @property
    def waiting_count(self) -> int:
        """Characters of an object that is not whole yet."""
        return len(self._text)

    def feed(self, piece: bytes) -> Iterator[Any]:
        """The values that are whole with this piece (Any: JSON). Raises `Problem` (400), `TooLarge`."""
        try:
            self._text += self._utf8.decode(piece)
        except UnicodeDecodeError as error:
            raise Problem(400, 400, f"Malformed JSON: {error}") from error
        if b"}" in piece:
            yield from self._whole()
        if len(self._text) > self._bytes_max:
            raise TooLarge("record", len(self._text), self._bytes_max)

    def end(self) -> None:
        """The body has ended. Raises `Problem` (400) if it did inside an object."""
        if self._text.strip(_SPACE):
            raise Problem(400, 400, "Malformed JSON: the body ends inside a record")

    def _whole(self) -> Iterator[Any]:
        text, at = self._text, 0
        try:
            while at < len(text):
                while at < len(text) and text[at] in _SPACE:
                    at += 1
                if at == len(text):
                    break
                try:
                    value, at = self._decoder.raw_decode(text, at)
                except json.JSONDecodeError as error:
                    if error.pos < len(text) - _CUT_LENGTH_MAX and not error.msg.startswith("Unterminated"):
                        raise Problem(400, 400, f"Malformed JSON: {error}") from error
                    break
                except (ValueError, RecursionError) as error:
                    raise Problem(400, 400, f"Malformed JSON: {error}") from error
                yield value
        finally:
            self._text = text[at:]


def wanted(item: Any, now_ms: int) -> Wanted:
    """What an object says. Raises `Problem` (400, 422)."""
    if not isinstance(item, dict):
        raise Problem(400, 400, "a record: expected an object with key, value, headers, partition_id and timestamp")
    partition = item.get("partition_id")
    if partition is not None and not (_is_int(partition) and 0 <= partition <= _INDEX_MAX):
        raise Problem(400, 400, "partition_id: expected a number from 0")
    headers = item.get("headers")
    timestamp = item.get("timestamp")
    return Wanted(
        partition,
        part(item, "key"),
        part(item, "value"),
        _headers(headers) if headers is not None else (),
        now_ms if timestamp is None else _milliseconds(timestamp),
    )


def _headers(items: Any) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(items, list):
        raise Problem(400, 400, "headers: expected a list")
    found = []
    for item in items:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise Problem(400, 400, "headers: expected objects with name and value")
        value = item.get("value")
        if value is not None and not isinstance(value, str):
            raise Problem(400, 400, f"headers: {name[:100]}: expected base64 text")
        try:
            found.append((name, None if value is None else base64.b64decode(value, validate=True)))
        except (binascii.Error, ValueError) as error:
            raise Problem(422, 422, f"headers: {name[:100]}: not base64: {error}") from error
    return tuple(found)


def _milliseconds(timestamp: Any) -> int:
    if isinstance(timestamp, str):
        try:
            moment = datetime.fromisoformat(timestamp)
            if moment.tzinfo is not None:
                return int(moment.timestamp() * 1000)
        except (ValueError, OverflowError):
            pass
    raise Problem(400, 400, "timestamp: expected RFC 3339 with a zone, such as 2026-01-31T12:00:00Z")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
