"""Reads request bodies within a size limit, decompresses gzip and zstd, and parses JSON into models (`serving.http.models`).

Source: RFC 9110 (Content-Encoding), RFC 8878 (zstd).
"""

from typing import TypeVar

from aiohttp import web

from bearlake.errors import Corrupt, TooLarge
from bearlake.protocols.rest.problems import Problem
from bearlake.records import compression
from bearlake.records.batch import Compression
from bearlake.serving.http.models import Malformed, Mismatch, Reader

T = TypeVar("T")

_CODECS = {"gzip": Compression.GZIP, "x-gzip": Compression.GZIP, "zstd": Compression.ZSTD}


def codec_of(request: web.Request) -> Compression:
    """Return the body's compression. Raises `Problem` (415) for an unsupported compression."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return Compression.NONE
    if encoding not in _CODECS:
        raise Problem(415, 415, f"Content-Encoding {encoding[:40]!r}: expected gzip, zstd or identity")
    return _CODECS[encoding]


async def read(request: web.Request, bytes_max: int) -> bytes:
    """Return the whole body, decompressed.

    Raises:
        TooLarge: the body has more than `bytes_max` bytes, before or after decompression.
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
    if codec is Compression.NONE:
        return bytes(body)
    try:
        return bytes(compression.decompress(codec, body, bytes_max))
    except Corrupt as error:
        raise Problem(400, 400, f"the body is not {codec.name.lower()}: {error}") from error


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


def parse_optional(reader: Reader[T], body: bytes, *, status: int = 422, code: int = 422, prefix: str = "") -> T:
    """Parse as `parse` does; an empty body counts as an empty object."""
    return parse(reader, body if body.strip() else b"{}", status=status, code=code, prefix=prefix)
