"""Kafka's messages: requests of every API and version as clients send them, and responses.

What can be decoded can be encoded in the same version, and decodes to the same again.
"""

import struct
from functools import cache
from random import Random
from typing import Any

from bearlake.errors import Corrupt
from bearlake.protocols.kafka import codec
from bearlake.protocols.kafka.codec import ApiKey, Message
from bearlake.protocols.kafka.codec.classes import message_class, struct_class
from bearlake.protocols.kafka.codec.schema import Field, Struct, load
from fuzz.target import Target, exact

KEYS = sorted(ApiKey)
TEXTS = ("", "t", "topic-1", "größe", "g" * 40)
VALUES: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "int8": (0, 1, -1, 127),
    "int16": (0, 1, -1, 300),
    "uint16": (0, 1, 9092, 65_535),
    "int32": (0, 1, -1, 70_000),
    "int64": (0, 1, -1, 2**40),
    "float64": (0.0, 0.5, -1.0, 1e300, float("inf")),
    "uuid": (bytes(16), bytes(range(16))),
    "string": TEXTS,
    "bytes": (b"", b"\0\1x"),
    "records": (b"", b"records"),
}


@cache
def versions() -> list[tuple[int, int]]:
    """Every API and version with a schema."""
    return [(key, version) for key in KEYS for version in codec.versions(key)]


def message(key: ApiKey, kind: str, version: int, random: Random) -> Message:
    """A message with values of all fields that the version has."""
    schema = getattr(load(key), kind)
    root = message_class(key, kind)
    return _filled(root, schema.root, schema.structs, version, random)


def _filled(root: type[Message], struct_: Struct, structs: dict[str, Struct], version: int, random: Random) -> Message:
    values = {}
    for field in struct_.fields:
        if version in field.versions and not (field.tag is not None and random.random() < 0.5):
            values[field.name] = _value(root, field, structs, version, random)
    return struct_class(root, struct_)(**values)


def _value(root: type[Message], field: Field, structs: dict[str, Struct], version: int, random: Random) -> Any:
    if version in field.null_versions and random.random() < 0.2:
        return None
    if field.is_array:
        return [_single(root, field, structs, version, random) for _ in range(random.choice((0, 1, 1, 2)))]
    return _single(root, field, structs, version, random)


def _single(root: type[Message], field: Field, structs: dict[str, Struct], version: int, random: Random) -> Any:
    if field.is_struct:
        return _filled(root, structs[field.type], structs, version, random)
    return random.choice(VALUES[field.type])


def _header(key: int, version: int) -> bytes:
    flexible = load(ApiKey.of(key)).is_flexible(version)
    return struct.pack(">hhih", key, version, 7, 1) + b"c" + (b"\0" if flexible else b"")


def requests() -> list[bytes]:
    """Frames without their size: two of each API and version."""
    random = Random("requests")
    made = []
    for key, version in versions():
        for _ in range(2):
            body = codec.request(key, version).encode(message(ApiKey(key), "request", version, random))
            made.append(_header(key, version) + b"".join(body))
    return made


def responses() -> list[bytes]:
    """A response of each API and version, after the two numbers."""
    random = Random("responses")
    made = []
    for key, version in versions():
        body = codec.response(key, version).encode(message(ApiKey(key), "response", version, random))
        made.append(struct.pack(">hh", key, version) + b"".join(body))
    return made


def request(data: bytes) -> object:
    """Read a request's header and its body."""
    view = exact(data)
    header, position = codec.read_request_header(view)
    request_codec = codec.request(header.api_key, header.version)
    decoded = request_codec.decode(view, position)
    _check_again(request_codec, decoded)
    return header.api_key, header.version


def response(data: bytes) -> object:
    """Read a response."""
    if len(data) < 4:
        return None
    key, version = struct.unpack_from(">hh", data)
    response_codec = codec.response(key, version)
    _check_again(response_codec, response_codec.decode(exact(data[4:])))
    return key, version


def _check_again(message_codec: codec.Codec, decoded: Message) -> None:
    """Assert that the message is the same after it was encoded and decoded."""
    encoded = b"".join(part if isinstance(part, bytes) else bytes(part) for part in message_codec.encode(decoded))
    try:
        again = message_codec.decode(memoryview(encoded))
    except Corrupt as error:
        raise AssertionError(f"what was encoded cannot be decoded: {error}") from error
    assert b"".join(map(bytes, message_codec.encode(again))) == encoded


def other_version(random: Random, data: bytearray) -> None:
    """Give the message another version or API, which reads its fields in another way."""
    if len(data) < 4:
        return
    key, version = random.choice(versions())
    if random.random() < 0.7:
        struct.pack_into(">h", data, 2, random.choice((version, *range(19))))
    else:
        struct.pack_into(">hh", data, 0, key, version)


TARGETS = [
    Target(
        name="Kafka requests",
        seeds=requests,
        run=request,
        change=other_version,
        change_share=0.1,
        memory_factor=120,
        share=3,
        short_inputs=2000,
    ),
    Target(
        name="Kafka responses", seeds=responses, run=response, change=other_version, change_share=0.1, memory_factor=120
    ),
]
