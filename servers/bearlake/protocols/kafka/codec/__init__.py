"""Kafka's messages on the wire: decodes and encodes requests and responses of every API and version that has a schema.

    header, position = codec.read_request_header(frame)                        # a memoryview, without its 4 bytes of size
    request = codec.request(header.api_key, header.version).decode(frame, position)
    response = messages.ProduceResponse(responses=[messages.ProduceResponse.Topic(name="logs")])
    transport.writelines(codec.response(header.api_key, header.version).frame(header.correlation_id, response))

`records` are passed by reference: decoded records are slices of the frame; encoded records become separate chunks, and may be a list
of buffers that belong together. UUIDs are 16 raw bytes (reading a `uuid.UUID` costs 10 times as much); `bytes(16)` means no UUID.
An absent tagged struct is None. Malformed bytes raise `errors.Corrupt`; an API or version without a schema raises `errors.Unsupported`.

The server decides which versions it advertises; `versions(key)` returns the versions to choose from. Each codec is generated at its
first use from the schemas in `protocols/kafka/messages/` (notation: `schema`).
"""

from bearlake.protocols.kafka.codec.classes import Message
from bearlake.protocols.kafka.codec.codec import Codec, RequestCodec, ResponseCodec, request, response
from bearlake.protocols.kafka.codec.headers import RequestHeader, read_request_header, read_response_header
from bearlake.protocols.kafka.codec.keys import ApiKey
from bearlake.protocols.kafka.codec.schema import UUID_ZERO, load
from bearlake.protocols.kafka.codec.wire import Buffer, Records

__all__ = [
    "UUID_ZERO",
    "ApiKey",
    "Buffer",
    "Codec",
    "Message",
    "Records",
    "RequestCodec",
    "RequestHeader",
    "ResponseCodec",
    "read_request_header",
    "read_response_header",
    "request",
    "response",
    "versions",
]


def versions(key: int) -> range:
    """The versions of an API that have a schema.

    Raises:
        Unsupported: the API has no schema.
    """
    return load(ApiKey.of(key)).versions
