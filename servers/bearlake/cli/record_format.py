r"""Records as text: kcat's format words, and JSON lines.

    %t stream (topic)   %p partition   %o offset   %T timestamp (ms; -1: none)   %h headers (a=1,b=2)
    %k key              %K key's length in bytes (-1: null)
    %v or %s value      %V or %S value's length in bytes (-1: null)
    %% percent          \n \t \r \0 \\ as usual

Keys and values are written as raw bytes. In JSON, they are text; bytes that are not UTF-8 are base64 under `key_base64` and
`value_base64`. Null remains null.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bearlake.cli.output import json_text, printable
from bearlake.errors import Invalid

DEFAULT = "%v\\n"
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as a client sees it."""

    stream: str
    partition: int = -1
    offset: int = -1
    timestamp_ms: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


Formatter = Callable[[Record], bytes]

_WORDS: Mapping[str, Formatter] = {
    "t": lambda record: record.stream.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "K": lambda record: _length(record.key),
    "V": lambda record: _length(record.value),
    "S": lambda record: _length(record.value),
    "h": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
    "%": lambda record: b"%",
}


def formatter(format_text: str, *, escapes: bool = False) -> Formatter:
    """The function that writes a record in this format; `json` means one JSON object per line. Raises `Invalid`.

    `escapes`: what comes from the record is safe for a terminal; only its line breaks and tabs stay as they are.
    """
    if format_text == "json":
        return as_json
    pieces = [_escaping(piece) if escapes and not isinstance(piece, bytes) else piece for piece in _pieces(format_text)]
    return lambda record: b"".join(piece if isinstance(piece, bytes) else piece(record) for piece in pieces)


def as_json(record: Record) -> bytes:
    """The record as one line of JSON."""
    document: dict[str, Any] = {
        "stream": record.stream,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text_or_base64("key", record.key),
        **_text_or_base64("value", record.value),
        "headers": [{"name": name, **_text_or_base64("value", value)} for name, value in record.headers],
    }
    return json_text(document).encode() + b"\n"


def from_json(line: bytes, stream: str) -> Record:
    """The record that a line of JSON stands for (`key`, `value`, `headers`, `partition`, `timestamp_ms`). Raises `Invalid`."""
    try:
        document = json.loads(line)
    except ValueError as error:
        raise Invalid(f"not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise Invalid("expected one JSON object per line")
    try:
        return Record(
            stream=stream,
            partition=int(document.get("partition", -1)),
            timestamp_ms=int(document.get("timestamp_ms", -1)),
            key=_bytes_of(document, "key"),
            value=_bytes_of(document, "value"),
            headers=[(header["name"], _bytes_of(header, "value")) for header in document.get("headers", ())],
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise Invalid(f"not a record in JSON: {error!r}") from error


def _pieces(text: str) -> Iterator[bytes | Formatter]:
    characters = iter(text)
    for character in characters:
        if character == "%":
            word = next(characters, "")
            if word not in _WORDS:
                raise Invalid(f"--format: %{word} is unknown; known: {' '.join('%' + known for known in _WORDS)}")
            yield _WORDS[word]
        elif character == "\\":
            letter = next(characters, "\\")
            yield _ESCAPES.get(letter, f"\\{letter}".encode())
        else:
            yield character.encode()


def _escaping(piece: Formatter) -> Formatter:
    return lambda record: printable(piece(record).decode(errors="backslashreplace"), kept="\n\t").encode()


def _length(value: bytes | None) -> bytes:
    return b"%d" % (-1 if value is None else len(value))


def _text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _bytes_of(document: Mapping[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    value = document.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value, ensure_ascii=False).encode()  # an object is produced as its JSON
