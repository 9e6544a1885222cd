"""Request bodies: whole ones within the limit, gzip or zstd undone, and the JSON in them.

Source: RFC 9110 (Content-Encoding), RFC 8878 (zstd).
"""

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from bearlake.errors import Corrupt, TooLarge
from bearlake.protocols.rest.problems import Problem
from bearlake.records import compression
from bearlake.records.batch import Compression

_CODECS = {"gzip": Compression.GZIP, "x-gzip": Compression.GZIP, "zstd": Compression.ZSTD}


def codec_of(request: web.Request) -> Compression:
    """How the body is compressed. Raises `Problem` (415) for a way that is not spoken here."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return Compression.NONE
    if encoding not in _CODECS:
        raise Problem(415, 415, f"Content-Encoding {encoding[:40]!r}: expected gzip, zstd or identity")
    return _CODECS[encoding]


async def read(request: web.Request, bytes_max: int) -> bytes:
    """The whole body, uncompressed.

    Raises:
        TooLarge: it has more than `bytes_max` bytes, or would have.
        Problem: 415 for an unknown compression, 400 for a damaged body.
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


def parse(body: bytes) -> Any:
    """The JSON value in a body (Any: of whatever shape). Raises `Problem` (400)."""
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Problem(400, 400, f"Malformed JSON: {error}") from error


async def read_object(request: web.Request, bytes_max: int) -> Mapping[str, Any]:
    """The JSON object in the body; an empty body is an empty object. Raises as `read` and `parse`."""
    return parse_object(await read(request, bytes_max))


def parse_object(body: bytes) -> Mapping[str, Any]:
    """The JSON object in a body; an empty body is an empty object. Raises `Problem` (400, 422)."""
    value = parse(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise Problem(422, 422, "the body: expected a JSON object")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
