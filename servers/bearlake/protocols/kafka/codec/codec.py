"""The codec of one message in one version: converts frame bytes to a message and back.

The functions are generated from the schema at first use (about 1 ms each) and cached. This module contains only cold paths.
"""

import struct
from functools import cache, cached_property
from traceback import walk_tb
from typing import Any

from bearlake.errors import Corrupt, Invalid, Unsupported
from bearlake.protocols.kafka.codec.classes import Message, message_class
from bearlake.protocols.kafka.codec.decoding import Decode, build_decode
from bearlake.protocols.kafka.codec.encoding import Encode, build_encode
from bearlake.protocols.kafka.codec.keys import ApiKey
from bearlake.protocols.kafka.codec.schema import Schema, load
from bearlake.protocols.kafka.codec.wire import Buffer, chunks

_SIZE_AND_CORRELATION = struct.Struct(">ii")
_SIZE_AND_REQUEST_HEADER = struct.Struct(">ihhih")


class Codec:
    """Decodes and encodes one message in one version."""

    is_exact = True
    """Whether trailing bytes after the message raise `Corrupt`."""

    def __init__(self, key: ApiKey, kind: str, version: int) -> None:
        api = load(key)
        if version not in api.versions:
            raise Unsupported(f"{api.name} version {version}: expected version {api.versions[0]} to {api.versions[-1]}")
        self.key = key
        self.version = version
        self.is_flexible = api.is_flexible(version)
        self._kind = kind
        self._title = f"{api.name} {kind} version {version}"
        self._schema: Schema = getattr(api, kind)

    def decode(self, view: memoryview, position: int = 0) -> Any:
        """Decode the message that fills `view` from `position` to its end.

        `records` fields are slices of `view`, valid as long as its memory; all other fields are copied.
        Any: the class depends on the API, e.g. `messages.ProduceRequest` for `request(ApiKey.PRODUCE, 9)`.

        Raises:
            Corrupt: the bytes violate the schema, or more bytes follow the message; names the field and the position.
        """
        decode, places = self._decode
        try:
            message, end = decode(view, position, len(view))
        except (IndexError, ValueError, struct.error) as error:
            raise Corrupt(f"{self._title}, {_place(error, places)}") from error
        if end != len(view) and self.is_exact:
            raise Corrupt(f"{self._title}: {len(view) - end} bytes follow the message, at byte {end}")
        return message

    def encode(self, message: Message) -> list[Buffer]:
        """Encode `message` as a list of chunks; larger `records` are the caller's own buffers, not copies.

        Omits fields that this version does not have.

        Raises:
            Invalid: a value does not fit its field; names the field.
        """
        return self._chunks(bytearray(), message)

    def _chunks(self, out: bytearray, message: Message) -> list[Buffer]:
        """Append `message` to `out`, which may start with a frame header; fills in the size of the frame if it does."""
        cuts: list[tuple[int, Buffer]] = []
        encode, places = self._encode
        start = len(out)
        try:
            encode(message, out, cuts)
        except (AttributeError, TypeError, ValueError, struct.error) as error:
            raise Invalid(f"{self._title}, {_place(error, places)}") from error
        if start:
            size = len(out) - 4
            for _, buffer in cuts:
                size += len(buffer)
            out[:4] = size.to_bytes(4, "big")
        return chunks(out, cuts)

    @cached_property
    def _decode(self) -> tuple[Decode, list[str]]:
        message = message_class(self.key, self._kind)
        return build_decode(self._schema, message, self.version, self.is_flexible, f"<decode {self._title}>")

    @cached_property
    def _encode(self) -> tuple[Encode, list[str]]:
        return build_encode(self._schema, self.version, self.is_flexible, f"<encode {self._title}>")


class RequestCodec(Codec):
    """The codec of a request.

    Ignores trailing bytes, as Apache Kafka does: librdkafka 2.16 sends three extra bytes with Metadata version 13 for all topics.
    """

    is_exact = False

    def frame(self, correlation_id: int, client_id: str | None, message: Message) -> list[Buffer]:
        """The complete request frame: size, header, `message`."""
        name = b"" if client_id is None else client_id.encode()
        length = -1 if client_id is None else len(name)
        out = bytearray(_SIZE_AND_REQUEST_HEADER.pack(0, self.key, self.version, correlation_id, length))
        out += name
        if self.is_flexible:
            out.append(0)
        return self._chunks(out, message)


class ResponseCodec(Codec):
    """The codec of a response.

    `header_version` is 1 (with tagged fields) in flexible versions, else 0; for ApiVersions always 0 (KIP-511).
    """

    def __init__(self, key: ApiKey, kind: str, version: int) -> None:
        super().__init__(key, kind, version)
        self.header_version = int(self.is_flexible and key != ApiKey.API_VERSIONS)

    def frame(self, correlation_id: int, message: Message) -> list[Buffer]:
        """The complete response frame: size, header, `message`; a list of chunks, as from `encode`."""
        out = bytearray(_SIZE_AND_CORRELATION.pack(0, correlation_id))
        if self.header_version:
            out.append(0)
        return self._chunks(out, message)


@cache
def _request(key: int, version: int) -> RequestCodec:
    return RequestCodec(ApiKey.of(key), "request", version)


@cache
def _response(key: int, version: int) -> ResponseCodec:
    return ResponseCodec(ApiKey.of(key), "response", version)


def request(key: int, version: int) -> RequestCodec:
    """Return the codec of a request.

    Raises:
        Unsupported: the API or version has no schema.
    """
    return _request(key, version)


def response(key: int, version: int) -> ResponseCodec:
    """Return the codec of a response.

    Raises:
        Unsupported: the API or version has no schema.
    """
    return _response(key, version)


def _place(error: Exception, places: list[str]) -> str:
    """The field, cause and position of an error in a generated function, read from the function's stack frame."""
    frame, line = next(step for step in walk_tb(error.__traceback__) if step[0].f_code.co_filename.startswith("<"))
    field, position = places[line - 1] or "tagged fields", frame.f_locals.get("p")
    if position is None:  # while encoding
        return f"{field}: {error}"
    cause = "the bytes end here" if isinstance(error, IndexError | struct.error) else error
    return f"{field}: {cause}, at byte {position}"
