"""Renders a file descriptor as `.proto` text; equal descriptors give equal texts.

Types have their full names; options are in the order of their numbers. Custom options appear only if their extensions are known.

Source: Protocol Buffers language specification (proto2, proto3, editions); `descriptor.proto`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
Nested = Mapping[str, DescriptorProto]
"""The types nested in a message, by name."""

FIELD_NUMBER_MAX = 536_870_911
ENUM_NUMBER_MAX = 2_147_483_647


def rendered(file: FileDescriptorProto, others: Sequence[FileDescriptorProto]) -> str:
    """Render a valid descriptor; `others` are files with extensions that it may use as options, each after its own imports."""
    return "\n".join(_Renderer(file, others).lines()) + "\n"


class _Renderer:
    def __init__(self, file: FileDescriptorProto, others: Sequence[FileDescriptorProto]) -> None:
        self._file = file
        self._others = others
        self._pool: descriptor_pool.DescriptorPool | None = None
        # Protobuf resolves a name in the nearest scope with its first part, unless a leading dot marks a full name.
        self._nearer = {
            *file.package.split(".")[1:],
            *_names(file.message_type),
            *(enum.name for enum in file.enum_type),
        }

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{descriptor_pb2.Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        yield ""
        for at, name in enumerate(file.dependency):
            word = "public " if at in file.public_dependency else "weak " if at in file.weak_dependency else ""
            yield f"import {word}{_quoted(name)};"
        yield from self._option_lines(file.options, "")
        for message in file.message_type:
            yield from self._message(message, "", file.package)
        for enum in file.enum_type:
            yield from self._enum(enum, "")
        yield from self._extensions(file.extension, "")
        for service in file.service:
            yield from self._service(service)

    # -- types ---------------------------------------------------------------------------------------------------

    def _message(self, message: DescriptorProto, indent: str, scope: str, head: str = "") -> Iterator[str]:
        yield f"{indent}{head or f'message {message.name}'} {{"
        inner, scope = f"{indent}  ", f"{scope}.{message.name}".lstrip(".")
        yield from self._option_lines(message.options, inner, skipped=("map_entry",))
        yield from self._reserved(message, inner, FIELD_NUMBER_MAX + 1)
        groups, oneofs = _groups(message), _oneofs(message)
        nested_types = {nested.name: nested for nested in message.nested_type}
        for field in message.field:
            members = oneofs.get(field.oneof_index, [])
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field, nested_types, inner, scope)
            elif field.number == members[0].number:
                yield from self._oneof(message.oneof_decl[field.oneof_index], members, nested_types, inner, scope)
        for extent in message.extension_range:
            last = "max" if extent.end > FIELD_NUMBER_MAX else extent.end - 1
            options = self._bracketed(self._options(extent.options))
            yield f"{inner}extensions {extent.start} to {last}{options};"
        yield from self._extensions(message.extension, inner)
        for nested in message.nested_type:
            if not nested.options.map_entry and nested.name not in groups:
                yield from self._message(nested, inner, scope)
        for enum in message.enum_type:
            yield from self._enum(enum, inner)
        yield f"{indent}}}"

    def _oneof(
        self,
        oneof: OneofDescriptorProto,
        members: Sequence[FieldDescriptorProto],
        nested: Nested,
        indent: str,
        scope: str,
    ) -> Iterator[str]:
        yield f"{indent}oneof {oneof.name} {{"
        yield from self._option_lines(oneof.options, f"{indent}  ")
        for field in members:
            yield from self._field(field, nested, f"{indent}  ", scope, is_labelled=False)
        yield f"{indent}}}"

    def _field(
        self,
        field: FieldDescriptorProto,
        nested: Nested,
        indent: str,
        scope: str,
        *,
        is_labelled: bool = True,
    ) -> Iterator[str]:
        name = field.type_name.rpartition(".")[2]
        inside = nested.get(name) if field.type_name == f".{scope}.{name}" else None
        entry = inside if inside is not None and inside.options.map_entry else None
        label = "" if entry is not None or not is_labelled else self._label(field)
        options = self._bracketed(self._field_options(field))
        if field.type == FieldDescriptorProto.TYPE_GROUP and inside is not None:
            yield from self._message(
                inside, indent, scope, head=f"{label}group {inside.name} = {field.number}{options}"
            )
            return
        kind = self._type(field)
        if entry is not None:
            kind = f"map<{self._type(entry.field[0])}, {self._type(entry.field[1])}>"
        yield f"{indent}{label}{kind} {field.name} = {field.number}{options};"

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return "repeated "
        if field.label == FieldDescriptorProto.LABEL_REQUIRED:
            return "required "
        is_written = field.proto3_optional or self._file.syntax in ("", "proto2")
        return "optional " if is_written else ""

    def _type(self, field: FieldDescriptorProto) -> str:
        return SCALARS.get(field.type) or self._name(field.type_name)

    def _name(self, full: str) -> str:
        name = full.lstrip(".")
        return full if name.partition(".")[0] in self._nearer and "." in name else name

    def _field_options(self, field: FieldDescriptorProto) -> list[str]:
        options = self._options(field.options)
        if field.HasField("json_name") and field.json_name != json_name(field.name):
            options.insert(0, f"json_name = {_quoted(field.json_name)}")
        if field.HasField("default_value"):
            options.insert(0, f"default = {_default(field)}")
        return options

    def _extensions(self, extensions: Sequence[FieldDescriptorProto], indent: str) -> Iterator[str]:
        for field in extensions:
            yield f"{indent}extend {self._name(field.extendee)} {{"
            yield from self._field(field, {}, f"{indent}  ", "")
            yield f"{indent}}}"

    def _enum(self, enum: EnumDescriptorProto, indent: str) -> Iterator[str]:
        yield f"{indent}enum {enum.name} {{"
        yield from self._option_lines(enum.options, f"{indent}  ")
        yield from self._reserved(enum, f"{indent}  ", ENUM_NUMBER_MAX)
        for value in enum.value:
            yield f"{indent}  {value.name} = {value.number}{self._bracketed(self._options(value.options))};"
        yield f"{indent}}}"

    def _reserved(self, type_: DescriptorProto | EnumDescriptorProto, indent: str, end_max: int) -> Iterator[str]:
        inclusive = isinstance(type_, EnumDescriptorProto)
        for extent in type_.reserved_range:
            last = extent.end if inclusive else extent.end - 1
            upto = "" if last == extent.start else " to max" if extent.end >= end_max else f" to {last}"
            yield f"{indent}reserved {extent.start}{upto};"
        for name in type_.reserved_name:
            yield f"{indent}reserved {name if self._file.syntax == 'editions' else _quoted(name)};"

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from self._option_lines(service.options, "  ")
        for method in service.method:
            request = f"{'stream ' * method.client_streaming}{self._name(method.input_type)}"
            response = f"{'stream ' * method.server_streaming}{self._name(method.output_type)}"
            options = list(self._option_lines(method.options, "    "))
            yield f"  rpc {method.name} ({request}) returns ({response}){' {' if options else ';'}"
            yield from options
            if options:
                yield "  }"
        yield "}"

    # -- options -------------------------------------------------------------------------------------------------

    def _option_lines(self, options: Message, indent: str, skipped: Sequence[str] = ()) -> Iterator[str]:
        for option in self._options(options):
            if not option.startswith(tuple(f"{name} =" for name in skipped)):
                yield f"{indent}option {option};"

    @staticmethod
    def _bracketed(options: Sequence[str]) -> str:
        return f" [{', '.join(options)}]" if options else ""

    def _options(self, options: Message) -> list[str]:
        if not options.ByteSize():
            return []
        if len(UnknownFieldSet(options)):
            kind = self._known().FindMessageTypeByName(options.DESCRIPTOR.full_name)
            options = message_factory.GetMessageClass(kind).FromString(options.SerializeToString())
        found: list[str] = []
        for field, value in options.ListFields():
            name = f"({field.full_name})" if field.is_extension else field.name
            found += [
                f"{name} = {self._option_value(field, element)}"
                for element in (value if field.is_repeated else [value])
            ]
        return found

    def _option_value(self, field: FieldDescriptor, value: Any) -> str:
        if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP):
            return f"{{ {text_format.MessageToString(value, as_one_line=True, descriptor_pool=self._known())} }}"
        if field.enum_type is not None:
            return str(field.enum_type.values_by_number[value].name)
        if isinstance(value, bool):
            return "true" if value else "false"
        return _quoted(value) if isinstance(value, str | bytes) else str(value)

    def _known(self) -> descriptor_pool.DescriptorPool:
        """A pool of all files with their extensions."""
        if self._pool is None:
            self._pool = descriptor_pool.DescriptorPool()
            base = FileDescriptorProto()
            descriptor_pb2.DESCRIPTOR.CopyToProto(base)
            for file in (base, *(other for other in self._others if other.name != base.name), self._file):
                _add(self._pool, file)
        return self._pool


def _add(pool: descriptor_pool.DescriptorPool, file: FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError:  # an import is missing: the compiler reports that; the file's options stay unknown
        return


def _names(messages: Sequence[DescriptorProto]) -> Iterator[str]:
    for message in messages:
        yield message.name
        yield from (enum.name for enum in message.enum_type)
        yield from _names(message.nested_type)


def _groups(message: DescriptorProto) -> set[str]:
    return {
        field.type_name.rpartition(".")[2] for field in message.field if field.type == FieldDescriptorProto.TYPE_GROUP
    }


def _oneofs(message: DescriptorProto) -> dict[int, list[FieldDescriptorProto]]:
    """Return the members of each declared (not synthetic) oneof, by index."""
    found: dict[int, list[FieldDescriptorProto]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(field.oneof_index, []).append(field)
    return found


def json_name(name: str) -> str:
    """Return a field's default JSON name. Source: "ProtoJSON Format"; `ToJsonName` of protoc."""
    first, *others = name.split("_")
    return first + "".join(other[:1].upper() + other[1:] for other in others)


def _default(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_STRING:
        return _quoted(field.default_value)
    if field.type == FieldDescriptorProto.TYPE_BYTES:
        return f'"{field.default_value}"'  # already escaped
    return field.default_value


def _quoted(text: str | bytes) -> str:
    octets = text.encode() if isinstance(text, str) else text
    escapes = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
    return (
        '"'
        + "".join(escapes.get(octet) or (chr(octet) if 0x20 <= octet < 0x7F else f"\\{octet:03o}") for octet in octets)
        + '"'
    )
