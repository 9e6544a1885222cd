"""Reads request bodies within a size limit, decompresses gzip and zstd, and parses JSON into models (`serving.http.models`).

Large bodies are decompressed and parsed in a thread. The parser holds the interpreter's lock, so the values of a body are counted before
it makes an object of each (`records/json_values.py`).

Source: RFC 9110 (Content-Encoding), RFC 8878 (zstd).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from aiohttp import web

from bearlake.errors import Corrupt, TooLarge
from bearlake.protocols.rest.problems import Problem
from bearlake.records import compression
from bearlake.records.batch import Compression
from bearlake.records.json_values import check_values
from bearlake.serving.http.models import Malformed, Mismatch, Reader
from bearlake.streams.reservations import SMALL_BYTES, Reservation

T = TypeVar("T")

AT_ONCE_BYTES = 64 * 1024
"""Larger bodies are parsed in a thread; this many bytes take about 10 ms at most."""
_DECOMPRESSED_AT_ONCE_BYTES = 1024 * 1024

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
    prefix: str = "",
) -> T:
    """Parse as `parse` does a body that may be large. Raises also `TooLarge` for more than `value_count_max` values."""
    return await off_the_loop(
        body, value_count_max, lambda: parse(reader, body, status=status, code=code, prefix=prefix)
    )


async def off_the_loop(body: bytes, value_count_max: int, parsed: Callable[[], T]) -> T:
    """Return what `parsed` makes of a JSON body, in a thread if the body is large. Raises also `TooLarge`, as `parse_many` does."""
    if len(body) <= AT_ONCE_BYTES:
        return parsed()

    def counted() -> T:
        check_values("the request body", body, value_count_max)
        return parsed()

    return await asyncio.to_thread(counted)


async def parse_optional(
    reader: Reader[T],
    body: bytes,
    value_count_max: int,
    *,
    status: int = 422,
    code: int = 422,
    prefix: str = "",
) -> T:
    """Parse as `parse_many` does; an empty body counts as an empty object."""
    given = b"{}" if not body or body.isspace() else body
    return await parse_many(reader, given, value_count_max, status=status, code=code, prefix=prefix)
