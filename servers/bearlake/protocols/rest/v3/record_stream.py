"""Parses concatenated JSON objects from a body that arrives in pieces, and the record that each object describes.

    {"partition_id": 0, "key": {"type": "STRING", "data": "k"}, "value": {"type": "JSON", "data": {…}},
     "headers": [{"name": "h", "value": "base64"}], "timestamp": "2026-01-31T12:00:00Z"}

Keys and values: see `parts.py`. Source: Confluent, "REST Proxy API Reference v3", Produce Records.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bearlake.errors import TooLarge
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.v3 import models
from bearlake.protocols.rest.v3.parts import Part, part
from bearlake.records.json_values import check_values
from bearlake.serving.http.models import Mismatch

_SPACE = " \t\r\n"
_CUT_LENGTH_MAX = 12
"""Largest distance to the end of the input at which a decoder error may just mean truncation (a number, a word, an escape)."""


_PUNCTUATION = re.compile(r'\\.|["{}\[\]]', re.DOTALL)
"""An escape, a quotation mark or a bracket."""


class ProduceItem(NamedTuple):
    """A record to write, with its partition if given."""

    partition: int | None
    key: Part
    value: Part
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


class Objects:
    """Parses objects from pieces. One object may have up to `bytes_max` bytes, and a large object up to `value_count_max` values."""

    def __init__(self, bytes_max: int, value_count_max: int) -> None:
        self._bytes_max = bytes_max
        self._value_count_max = value_count_max
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder(parse_constant=_refuse)
        self._text = ""
        self._brackets = _Brackets()
        self.count = 0
        """Values that are complete."""

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Yield the values completed by this piece (Any: JSON). Raises `Problem` (400), `TooLarge`."""
        try:
            text = self._utf8.decode(piece)
        except UnicodeDecodeError as error:
            raise Problem(400, 400, f"Malformed JSON: {error}") from error
        self._text += text
        if self._brackets.close(text):
            if len(self._text) > bodies.AT_ONCE_BYTES:
                check_values("the record", self._text.encode(), self._value_count_max)
            yield from self._whole()
        if len(self._text) > self._bytes_max:
            raise TooLarge("record", len(self._text), self._bytes_max)

    @property
    def is_inside(self) -> bool:
        """Whether an object has begun that is not complete yet."""
        return bool(self._text) and not self._text.isspace()

    @property
    def size_bytes(self) -> int:
        """Bytes of the object that is not complete yet, if its text is ASCII."""
        return len(self._text)

    def end(self) -> None:
        """End the body. Raises `Problem` (400) if an object is incomplete."""
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
                self.count += 1
                yield value
        finally:
            self._text = text[at:]


class _Brackets:
    """Says when an object may be complete, so that a long object is not parsed again with each piece."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_text = False
        self._rest = ""

    def close(self, piece: str) -> bool:
        """Whether a bracket of this piece closes an outermost object or list, or one that was not open."""
        text = self._rest + piece
        is_closed, end = False, 0
        for found in _PUNCTUATION.finditer(text):
            character, end = found[0], found.end()
            if character == '"':
                self._is_text = not self._is_text
            elif self._is_text:
                continue
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth = max(0, self._depth - 1)
                is_closed = is_closed or self._depth == 0
        self._rest = "\\" if text.endswith("\\") and end < len(text) else ""
        return is_closed


def parse_item(item: Any, now_ms: int) -> ProduceItem:
    """Parse the record that an object describes (Any: JSON). Raises `Problem` (400, 422)."""
    try:
        asked = models.RECORD.convert(item)
    except Mismatch as error:
        code = 422 if error.place.endswith(".type") else 400
        raise Problem(code, code, str(error)) from error
    return ProduceItem(
        asked.partition_id,
        part(asked.key, "key"),
        part(asked.value, "value"),
        tuple((header.name, header.value) for header in asked.headers or ()),
        now_ms if asked.timestamp is None else int(asked.timestamp.timestamp() * 1000),
    )


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
