"""Compiled Protobuf schemas as text: the files of a schema, and what one of its messages needs of them.

    {"message": [0], "files": ["<base64 of a FileDescriptorProto>", …]}

`files` come after those that they import; the last is the schema's own. `message` is the path to a message in it (Confluent's message
indexes); null: the files are those of the whole schema, and each value names its message. The files of one message have only the messages
and enums that its fields use, and only what decides how they are written; other messages that a path counts are empty.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
)
from google.protobuf.message import DecodeError

from bearlake.table.typed.model import SchemaError

_SCHEMAS_KEPT_COUNT: Final = 32

Indexes: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Files:
    """The parsed files of a schema; nobody changes them."""

    files: tuple[FileDescriptorProto, ...]


def text_of(files: Iterable[bytes], message: Indexes | None = None) -> str:
    """Return the text of serialized `FileDescriptorProto`s."""
    encoded = [base64.b64encode(file).decode("ascii") for file in files]
    return json.dumps({"message": message, "files": encoded}, separators=(",", ":"))


def files_of(text: str) -> tuple[list[bytes], Indexes | None]:
    """Return the serialized files of a text, and the message's path. Raises `SchemaError`."""
    try:
        fields = json.loads(text)
        files = [base64.b64decode(file, validate=True) for file in fields["files"]]
        message = fields["message"]
        return files, None if message is None else tuple(int(index) for index in message)
    except (ValueError, LookupError, TypeError, AttributeError, binascii.Error) as error:
        raise SchemaError("the text is not that of compiled descriptors") from error


def of_message(text: str, indexes: Indexes) -> str:
    """Return the text of one message of the schema with this text. Raises `SchemaError`: there is no such message."""
    files = _parsed(text).files
    path = _path(files[-1], indexes)
    try:
        return text_of(_of_message(files, path), indexes)
    except ValueError as error:  # texts that are no UTF-8
        raise SchemaError("the schema's descriptors are malformed") from error


def _of_message(files: Sequence[FileDescriptorProto], path: str) -> Iterator[bytes]:
    """Yield the serialized files with what the message needs."""
    needed = _needed(files, path)
    kept = [file for file in (_file(file, needed) for file in files) if file is not None]
    homes = {f".{name}": file.name for file in kept for name in _names(file)}
    for file in kept:
        used = {homes[name] for message in file.message_type for name in _references(message) if name in homes}
        file.dependency.extend(other.name for other in kept if other.name in used - {file.name})
    for file in kept:
        yield file.SerializeToString(deterministic=True)


@lru_cache(_SCHEMAS_KEPT_COUNT)
def _parsed(text: str) -> _Files:
    try:
        files = tuple(FileDescriptorProto.FromString(file) for file in files_of(text)[0])
    except DecodeError as error:
        raise SchemaError("the schema's descriptors are malformed") from error
    if not files:
        raise SchemaError("the schema has no descriptors")
    return _Files(files)


def _path(file: FileDescriptorProto, indexes: Indexes) -> str:
    """Return the full name of the message at a path, with a leading dot."""
    if not indexes:
        raise SchemaError("the schema has no message at []")
    inner: Sequence[DescriptorProto] = file.message_type
    name = f".{file.package}" if file.package else ""
    for index in indexes:
        if not 0 <= index < len(inner):
            raise SchemaError(f"the schema has no message at {list(indexes)}")
        name = f"{name}.{inner[index].name}"
        inner = [below for below in inner[index].nested_type if not below.options.map_entry]
    return name


def _needed(files: Sequence[FileDescriptorProto], start: str) -> frozenset[str]:
    """Return the full names of a message and of all messages and enums that its fields use, directly or indirectly."""
    messages = {name: message for file in files for name, message in _messages(file)}
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name in messages:
                waiting += (field.type_name for field in messages[name].field if field.type_name)
    return frozenset(found)


def _messages(file: FileDescriptorProto) -> Iterable[tuple[str, DescriptorProto]]:
    waiting = [(f".{file.package}" if file.package else "", message) for message in file.message_type]
    while waiting:
        prefix, message = waiting.pop()
        name = f"{prefix}.{message.name}"
        yield name, message
        waiting += ((name, below) for below in message.nested_type)


def _file(file: FileDescriptorProto, needed: frozenset[str]) -> FileDescriptorProto | None:
    """Return the file with what is needed of it, without imports; None: nothing."""
    prefix = f".{file.package}" if file.package else ""
    messages = [_message(message, prefix, needed) for message in file.message_type]
    enums = [_enum(enum) for enum in file.enum_type if f"{prefix}.{enum.name}" in needed]
    if not enums and not any(messages):
        return None
    kept = FileDescriptorProto()
    _copy(kept, file, "name", "package", "syntax", "edition")
    _keep_options(kept, file)
    for message, found in zip(file.message_type, messages, strict=True):
        kept.message_type.append(found or DescriptorProto(name=message.name))
    kept.enum_type.extend(enums)
    return kept


def _message(message: DescriptorProto, prefix: str, needed: frozenset[str]) -> DescriptorProto | None:
    """Return the message with what is needed of it; None: nothing. A message that only contains a needed one has no fields."""
    name = f"{prefix}.{message.name}"
    nested = [_message(below, name, needed) for below in message.nested_type]
    enums = [_enum(enum) for enum in message.enum_type if f"{name}.{enum.name}" in needed]
    is_needed = name in needed
    if not is_needed and not enums and not any(nested):
        return None
    kept = DescriptorProto(name=message.name)
    _keep_options(kept, message, "map_entry")
    if is_needed:
        kept.field.extend(map(_field, message.field))
        kept.oneof_decl.extend(OneofDescriptorProto(name=oneof.name) for oneof in message.oneof_decl)
    for below, found in zip(message.nested_type, nested, strict=True):
        if found is not None or not below.options.map_entry:  # the entries of maps have no index
            kept.nested_type.append(found or DescriptorProto(name=below.name))
    kept.enum_type.extend(enums)
    return kept


def _field(field: FieldDescriptorProto) -> FieldDescriptorProto:
    kept = FieldDescriptorProto()
    _copy(kept, field, "name", "number", "label", "type", "type_name", "oneof_index", "proto3_optional")
    _keep_options(kept, field, "packed")
    return kept


def _enum(enum: EnumDescriptorProto) -> EnumDescriptorProto:
    kept = EnumDescriptorProto(name=enum.name)
    kept.value.extend(EnumValueDescriptorProto(name=value.name, number=value.number) for value in enum.value)
    _keep_options(kept, enum, "allow_alias")
    return kept


def _keep_options(kept: Any, source: Any, *names: str) -> None:  # Any: descriptors with options
    """Copy options, and the features of editions, without those of single languages."""
    if source.HasField("options"):
        _copy(kept.options, source.options, *names)
    if source.options.HasField("features"):
        features = source.options.features
        _copy(kept.options.features, features, *(field.name for field in features.DESCRIPTOR.fields))


def _copy(kept: Any, source: Any, *names: str) -> None:  # Any: messages of descriptor.proto
    """Copy the fields that are set."""
    for name in names:
        if source.HasField(name):
            setattr(kept, name, getattr(source, name))


def _names(file: FileDescriptorProto) -> Iterable[str]:
    """Yield the full names of a file's messages and enums, without the leading dot."""
    prefix = f"{file.package}." if file.package else ""
    for name, message in _messages(file):
        yield name[1:]
        yield from (f"{name[1:]}.{enum.name}" for enum in message.enum_type)
    yield from (f"{prefix}{enum.name}" for enum in file.enum_type)


def _references(message: DescriptorProto) -> Iterable[str]:
    """Yield the types of the fields of a message and of those inside it."""
    yield from (field.type_name for field in message.field if field.type_name)
    for below in message.nested_type:
        yield from _references(below)
