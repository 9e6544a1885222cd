"""The messages of a compiled Protobuf schema as the tables of `kernel.check_protobuf`.

A text must be UTF-8 where Protobuf's parsers ask for it: in proto3, and in editions unless a feature says otherwise. All messages of the
schema's own file are found by their path (Confluent's message indexes), and all that their fields use.

Source: Protocol Buffers, "Feature Settings for Editions", `features.utf8_validation`.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FeatureSet, FileDescriptorProto

from bearlake.kernel import NODES_MAX, ProtoCheck
from bearlake.table.typed.model import SchemaError
from bearlake.table.typed.protobuf import opened

TYPE_COUNT_MAX: Final = 10_000
"""Messages of a schema with all that it imports: the kernel reads their tables in each call."""

Indexes: TypeAlias = tuple[int, ...]

_I32: Final = (FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32, FieldDescriptor.TYPE_FLOAT)
_I64: Final = (FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64, FieldDescriptor.TYPE_DOUBLE)


class MessageTypes:
    """The types of a schema's messages. Threads may share it."""

    def __init__(self, files: Sequence[bytes]) -> None:
        """`files` are serialized `FileDescriptorProto`s, each after those that it imports; the last one is the schema's own.

        Raises:
            SchemaError: the files are malformed, or have too many messages or fields.
        """
        own, inner = opened(files)
        self._unverified = {field for file in map(FileDescriptorProto.FromString, files) for field in _unverified(file)}
        self._numbers: dict[str, int] = {}
        self._types: list[Descriptor] = []
        self.roots: dict[Indexes, int] = {}
        """The type of the message at each path."""
        for path, message in _messages(inner, ()):
            self.roots[path] = self._number(message)
        starts, parts = [0], list[int]()
        for type_ in self._types:  # grows meanwhile
            for field in sorted(type_.fields, key=lambda field: field.number):
                parts += self._part(type_.full_name, field)
            starts.append(len(parts) // 3)
        if len(parts) // 3 > NODES_MAX:
            raise SchemaError(f"the schema {own} has more than {NODES_MAX} fields")
        self.names = tuple(type_.full_name for type_ in self._types)
        """The full name of each type."""
        self.starts = memoryview(array("i", starts)).cast("B")
        self.parts = memoryview(array("i", parts)).cast("B")

    def _number(self, message: Descriptor) -> int:
        found = self._numbers.setdefault(message.full_name, len(self._types))
        if found == len(self._types):
            if found >= TYPE_COUNT_MAX:
                raise SchemaError(f"the schema has more than {TYPE_COUNT_MAX} messages")
            self._types.append(message)
        return found

    def _part(self, name: str, field: FieldDescriptor) -> Sequence[int]:
        """Return the numbers of the part of a field of the message `name`; none if its content is not looked into."""
        message, type_ = field.message_type, field.type
        if message is not None:
            check = ProtoCheck.GROUP if type_ == FieldDescriptor.TYPE_GROUP else ProtoCheck.MESSAGE
            return field.number, check, self._number(message)
        if type_ == FieldDescriptor.TYPE_STRING:
            is_unverified = (name, field.number) in self._unverified
            return () if is_unverified else (field.number, ProtoCheck.TEXT, 0)
        if type_ == FieldDescriptor.TYPE_BYTES or not field.is_repeated:
            return ()
        return (
            field.number,
            ProtoCheck.I32 if type_ in _I32 else ProtoCheck.I64 if type_ in _I64 else ProtoCheck.VARINTS,
            0,
        )


def _unverified(file: FileDescriptorProto) -> Iterator[tuple[str, int]]:
    """Yield message and number of the texts of a file that may be any bytes. Descriptors of a pool do not tell the features of editions."""
    if file.syntax == "proto3":
        return
    default = file.syntax == "editions" and _asks(file, is_asked=True)
    waiting: list[tuple[str, bool, dict[str, bool], DescriptorProto]]
    waiting = [(file.package, default, {}, message) for message in file.message_type]
    while waiting:
        prefix, is_asked, maps, message = waiting.pop()
        name = f"{prefix}.{message.name}" if prefix else message.name
        if message.options.map_entry:
            is_asked = maps.get(f".{name}", is_asked)
        is_asked = _asks(message, is_asked=is_asked)
        asked = {field.number: _asks(field, is_asked=is_asked) for field in message.field}
        yield from ((name, number) for number, is_text in asked.items() if not is_text)
        inner = {
            field.type_name: asked[field.number] for field in message.field
        }  # the entries of a map are as its field
        waiting += [(name, is_asked, inner, below) for below in message.nested_type]


def _asks(described: Any, *, is_asked: bool) -> bool:  # Any: descriptors with options
    """Whether texts must be UTF-8 here; `is_asked`: around it."""
    features = described.options.features
    return features.utf8_validation == FeatureSet.VERIFY if features.HasField("utf8_validation") else is_asked


def _messages(inner: Sequence[Descriptor], path: Indexes) -> Iterator[tuple[Indexes, Descriptor]]:
    """Yield messages with their paths. The types of maps' entries, which the compiler makes, have no index."""
    for at, message in enumerate(inner):
        yield (*path, at), message
        yield from _messages([below for below in message.nested_types if not below.GetOptions().map_entry], (*path, at))
