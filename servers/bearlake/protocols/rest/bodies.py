"""Reads request bodies within a size limit, decompresses gzip and zstd, and parses JSON into models (`serving.http.models`).

Large bodies are decompressed and parsed in a thread. The parser holds the interpreter's lock, so the values of a body are counted before
it makes an object of each.

Source: RFC 9110 (Content-Encoding), RFC 8878 (zstd).
"""

import asyncio
from contextlib import suppress
from typing import TypeVar

from aiohttp import web

from bearlake.errors import Corrupt, TooLarge
from bearlake.protocols.rest.problems import Problem
from bearlake.records import compression
from bearlake.records.batch import Compression
from bearlake.serving.http.models import Malformed, Mismatch, Reader
from bearlake.streams.reservations import SMALL_BYTES, Reservation

T = TypeVar("T")

AT_ONCE_BYTES = 64 * 1024
"""Larger bodies are parsed in a thread; this many bytes take about 10 ms at most."""
_DECOMPRESSED_AT_ONCE_BYTES = 1024 * 1024
_PIECE_BYTES = 1024 * 1024

_CODECS = {"gzip": Compression.GZIP, "x-gzip": Compression.GZIP, "zstd": Compression.ZSTD}


def codec_of(request: web.Request) -> Compression:
    """Return the body's compression. Raises `Problem` (415) for an unsupported compression."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return Compression.NONE
    if encoding not in _CODECS:
        raise Problem(415, 415, f"Content-Encoding {encoding[:40]!r}: expected gzip, zstd or identity")
    return _CODECS[encoding]


async def read(request: web.Request, bytes_max: int, room: Reservation | None = None) -> bytes:
    """Return the whole body, decompressed. `room` counts the bytes as they arrive, and in the end those of the body.

    Raises:
        TooLarge: the body has more than `bytes_max` bytes, before or after decompression.
        Overloaded: there was no room for the next bytes in time.
        Problem: 415 for an unsupported compression, 400 for a damaged body.
    """
    codec = codec_of(request)
    length = request.content_length
    if length is not None and length > bytes_max:
        raise TooLarge("request body", length, bytes_max)
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > bytes_max:
            raise TooLarge("request body", len(body), bytes_max)
        if room is not None:
            await room.hold(len(body))
    if codec is Compression.NONE:
        return bytes(body)
    try:
        return await _decompressed(codec, body, bytes_max, room)
    except Corrupt as error:
        raise Problem(400, 400, f"the body is not {codec.name.lower()}: {error}") from error


async def _decompressed(codec: Compression, body: bytearray, bytes_max: int, room: Reservation | None) -> bytes:
    """Decompress. Nobody knows the size before, so `room` counts the largest one meanwhile, unless the body is small."""
    with suppress(TooLarge):
        return bytes(compression.decompress(codec, body, min(bytes_max, SMALL_BYTES)))
    if room is not None:
        await room.hold(len(body) + bytes_max)
    try:
        found = bytes(compression.decompress(codec, body, min(bytes_max, _DECOMPRESSED_AT_ONCE_BYTES)))
    except TooLarge:
        found = bytes(await asyncio.to_thread(compression.decompress, codec, body, bytes_max))
    if room is not None:
        await room.hold(len(found))
    return found


def parse(reader: Reader[T], body: bytes, *, status: int = 422, code: int = 422, prefix: str = "") -> T:
    """Parse JSON into a model. Raises `Problem`: 400 for malformed JSON, `status` and `code` for JSON that does not fit the model.

    `prefix` precedes the reason in the message.
    """
    try:
        return reader.read(body)
    except Malformed as error:
        raise Problem(400, 400, str(error)) from error
    except Mismatch as error:
        raise Problem(status, code, f"{prefix}{error}") from error


async def parse_many(
    reader: Reader[T],
    body: bytes,
    value_count_max: int,
    *,
    status: int = 422,
    code: int = 422,
) -> T:
    """Parse as `parse` does a body that may be large. Raises also `TooLarge` for more than `value_count_max` values."""
    if len(body) <= AT_ONCE_BYTES:
        return parse(reader, body, status=status, code=code)
    return await asyncio.to_thread(_parse_counted, reader, body, value_count_max, status, code)


def check_values(body: bytes, value_count_max: int) -> None:
    """Raise `TooLarge` if a JSON text has more than `value_count_max` values, before a parser makes an object of each."""
    separators = sum(map(body.count, _SEPARATORS))
    if separators > value_count_max and has_more_values(body, value_count_max):
        raise TooLarge("JSON values of the request body", separators, value_count_max)


def _parse_counted(reader: Reader[T], body: bytes, value_count_max: int, status: int, code: int) -> T:
    check_values(body, value_count_max)
    return parse(reader, body, status=status, code=code)


_SEPARATORS = (b",", b"[", b"{")
"""Outside texts, each of these characters adds at most one value."""


def has_more_values(body: bytes, count_max: int) -> bool:
    """Return whether a JSON text has more values than that, without parsing it. Separators inside texts do not count."""
    at = count = 0
    while at < len(body):
        quote = body.find(b'"', at, at + _PIECE_BYTES)
        end = min(len(body), at + _PIECE_BYTES) if quote < 0 else quote
        count += sum(body.count(character, at, end) for character in _SEPARATORS)
        if count > count_max:
            return True
        at = end if quote < 0 else _after_text(body, quote + 1)
    return False


def _after_text(body: bytes, start: int) -> int:
    """Return where a text ends whose first character is at `start`."""
    at = start
    while True:
        quote = body.find(b'"', at)
        if quote < 0:
            return len(body)
        escapes = quote
        while escapes > at and body[escapes - 1] == _BACKSLASH:
            escapes -= 1
        at = quote + 1
        if (quote - escapes) % 2 == 0:
            return at


_BACKSLASH = ord("\\")


def parse_optional(reader: Reader[T], body: bytes, *, status: int = 422, code: int = 422, prefix: str = "") -> T:
    """Parse as `parse` does; an empty body counts as an empty object."""
    return parse(reader, body if body.strip() else b"{}", status=status, code=code, prefix=prefix)
