"""Protobuf values: JSON by Protobuf's own mapping, behind the path to their message.

JSON to bytes makes the first message of the file, as Confluent's REST Proxy does; names of fields may be written as in the schema or
in lowerCamelCase. Bytes to JSON gives whichever message the path names, with names as in the schema, and every field that has no
presence, also where it holds its default.

Source: Protocol Buffers, "ProtoJSON Format"; Confluent, "Protobuf Schema Serializer", wire format.
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass
from typing_extensions import override

from bearlake.streams.schemas.values import wire
from bearlake.streams.schemas.values.model import Unfit, Values

_DEPTH_MAX = 100


class ProtobufValues(Values):
    """`Values` of a Protobuf message type."""

    def __init__(self, files: Sequence[bytes]) -> None:
        """`files`: serialized descriptors of all files that the schema imports, what they import before them, and last its own."""
        self._pool = DescriptorPool()
        for one in files:
            self._pool.AddSerializedFile(one)
        own = FileDescriptorProto.FromString(files[-1])
        file = self._pool.FindFileByName(own.name)
        self._messages: list[Descriptor] = [file.message_types_by_name[one.name] for one in own.message_type]

    @property
    def record_name(self) -> str | None:
        """The full name of the first message."""
        return self._messages[0].full_name if self._messages else None

    @override
    def is_quick(self, size_bytes: int) -> bool:
        """: always."""
        return True

    @override
    def write(self, value: Any) -> bytes:
        if not isinstance(value, dict):
            raise Unfit("expected an object, as the JSON of a message")
        try:
            message = json_format.ParseDict(
                value, self._empty([0]), descriptor_pool=self._pool, max_recursion_depth=_DEPTH_MAX
            )
            return wire.write_indexes([0]) + message.SerializeToString()
        except (json_format.Error, EncodeError, RecursionError) as error:
            raise Unfit(str(error)[:500]) from error

    @override
    def read(self, octets: bytes) -> Any:
        indexes, rest = wire.read_indexes(octets)
        message = self._empty(indexes)
        try:
            message.ParseFromString(rest)
            return json_format.MessageToDict(
                message,
                always_print_fields_with_no_presence=True,
                preserving_proto_field_name=True,
                descriptor_pool=self._pool,
            )
        except (json_format.Error, DecodeError, RecursionError, TypeError, ValueError) as error:
            raise Unfit(f"the bytes are no {message.DESCRIPTOR.full_name}: {str(error)[:500]}") from error

    def _empty(self, indexes: Sequence[int]) -> Message:
        """The message at the end of a path, without values. Raises `Unfit`."""
        found: Descriptor | None = None
        inner: Sequence[Descriptor] = self._messages
        for index in indexes:
            if not 0 <= index < len(inner):
                raise Unfit(f"the schema has no message at {list(indexes)}")
            found = inner[index]
            inner = [one for one in found.nested_types if not one.GetOptions().map_entry]  # which no author wrote
        assert found is not None
        return GetMessageClass(found)()
