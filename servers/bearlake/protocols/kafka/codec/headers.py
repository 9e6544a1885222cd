"""The headers of requests and responses.

    request   int16 api_key | int16 version | int32 correlation_id | string? client_id | tagged fields (header version 2)
    response  int32 correlation_id | tagged fields (header version 1)

The message determines the header version: flexible versions have tagged fields in the header. There are two exceptions: the client id of
a request always has a 16-bit length, and the response of ApiVersions has header version 0 in all versions (KIP-511).

Source: Kafka protocol guide; KIP-482.
"""

import struct
from functools import cache
from typing import NamedTuple

from bearlake.errors import Corrupt
from bearlake.protocols.kafka.codec.codec import response
from bearlake.protocols.kafka.codec.keys import ApiKey
from bearlake.protocols.kafka.codec.schema import load
from bearlake.protocols.kafka.codec.wire import Malformed, skip_tags

_REQUEST = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
_NEVER = 1 << 15
"""Larger than every version: versions are signed 16-bit numbers."""


class RequestHeader(NamedTuple):
    """The header that precedes every request body."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Read the header of a request frame (without its size); returns the header and the position of the body.

    The version may have no schema: the header can still be read, because flexible versions are never followed by inflexible versions.

    Raises:
        Unsupported: the API has no schema, so the length of its header is unknown.
        Corrupt: the frame is too short, or the client id is not UTF-8.
    """
    try:
        key, version, correlation_id, length = _REQUEST.unpack_from(frame)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise Malformed(f"client id of {length} bytes announced, but only {len(frame) - 10} bytes left")
            client_id = str(frame[10:position], "utf-8")
        api_key, flexible_from = _known_api(key)
        if version >= flexible_from:
            position = skip_tags(frame, position)
    except (IndexError, ValueError, struct.error) as error:
        raise Corrupt(f"request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id), position


def read_response_header(frame: memoryview, key: int, version: int) -> tuple[int, int]:
    """Read the header of a response frame (without its size); returns the correlation id and the position of the body.

    Raises:
        Unsupported: the API or version has no schema.
        Corrupt: the frame is too short.
    """
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        position = 4
        if response(key, version).header_version == 1:
            position = skip_tags(frame, position)
    except (IndexError, ValueError, struct.error) as error:
        raise Corrupt(f"response header: {error}") from error
    return correlation_id, position


@cache
def _known_api(key: int) -> tuple[ApiKey, int]:
    """The key and its first flexible version. Raises `Unsupported` for a key without a schema."""
    flexible_from = load(ApiKey.of(key)).flexible_from
    return ApiKey.of(key), _NEVER if flexible_from is None else flexible_from
