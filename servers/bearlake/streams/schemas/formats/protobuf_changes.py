"""Breaking changes between two Protobuf schemas: changes after which a reader with the new one misreads data of the old one.

On the wire, a field is a number and a wire type; names are not sent. So fields may be added, removed and renamed; a type may change to
another type with the same encoding; an enum may change freely. A message type must stay, because the prefix of a serialized value
identifies message types by their position.

| change | why it breaks |
|---|---|
| MESSAGE_REMOVED | readers of records with that message find no type |
| FIELD_KIND_CHANGED, FIELD_SCALAR_KIND_CHANGED, FIELD_NAMED_TYPE_CHANGED | other wire type, or other meaning of the same bytes |
| FIELD_NUMERIC_LABEL_CHANGED | repeated numbers are packed; only strings, bytes and messages may change between single and repeated |
| REQUIRED_FIELD_ADDED, REQUIRED_FIELD_REMOVED | one side refuses messages without the field |
| ONEOF_FIELD_REMOVED | a reader sees a oneof as unset although it was set |
| MULTIPLE_FIELDS_MOVED_TO_ONEOF, FIELD_MOVED_TO_EXISTING_ONEOF | if several of the fields were set, all but one are lost |
| PACKAGE_CHANGED | full names change, also in references and in Any |

Source: Protocol Buffers, "Updating A Message Type" (proto2 and proto3 language guides); Confluent, "Protobuf compatibility rules".
"""

from collections.abc import Iterator, Mapping, Sequence

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

F = FieldDescriptorProto
_ENCODINGS: tuple[frozenset[int], ...] = (
    frozenset({F.TYPE_INT32, F.TYPE_INT64, F.TYPE_UINT32, F.TYPE_UINT64, F.TYPE_BOOL, F.TYPE_ENUM}),
    frozenset({F.TYPE_SINT32, F.TYPE_SINT64}),
    frozenset({F.TYPE_STRING, F.TYPE_BYTES}),
    frozenset({F.TYPE_FIXED32, F.TYPE_SFIXED32}),
    frozenset({F.TYPE_FIXED64, F.TYPE_SFIXED64}),
)
"""Groups of types with compatible encodings. Source: "Updating A Message Type"."""

_LENGTH_DELIMITED = frozenset({F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE})


class Types:
    """Messages of several files, by full name (with a leading dot, as in descriptors)."""

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        for file in files:
            self._add(f".{file.package}" if file.package else "", file.message_type)

    def _add(self, scope: str, messages: Sequence[DescriptorProto]) -> None:
        for message in messages:
            name = f"{scope}.{message.name}"
            self.messages[name] = message
            self._add(name, message.nested_type)


def changes(old: FileDescriptorProto, old_types: Types, new: FileDescriptorProto, new_types: Types) -> list[str]:
    """Return all breaking changes from `old` to `new`, one sentence each."""
    comparison = _Comparison(old_types.messages, new_types.messages)
    if old.package != new.package:
        comparison.found("PACKAGE_CHANGED", "#/", "the packages differ")
        return comparison.sentences
    scope = f".{old.package}" if old.package else ""
    comparison.compare_scopes(scope, old.message_type, new.message_type, "#/")
    return comparison.sentences


class _Comparison:
    def __init__(self, olds: Mapping[str, DescriptorProto], news: Mapping[str, DescriptorProto]) -> None:
        self._olds = olds
        self._news = news
        self._seen: set[tuple[str, str]] = set()
        self.sentences: list[str] = []

    def found(self, kind: str, path: str, what: str) -> None:
        """Record a breaking change."""
        self.sentences.append(
            f'{{errorType:"{kind}", description:"{what}: at path \'{path}\' of the reader\'s schema"}}'
        )

    def compare_scopes(
        self, scope: str, olds: Sequence[DescriptorProto], news: Sequence[DescriptorProto], path: str
    ) -> None:
        """Compare the messages of a file or of a message."""
        present = {message.name for message in news}
        for message in olds:
            if message.options.map_entry:
                continue
            name = f"{scope}.{message.name}"
            if message.name in present:
                self._compare_messages(name, name, f"{path}{message.name}/")
            else:
                self.found("MESSAGE_REMOVED", f"{path}{message.name}", "the message was removed")

    def _compare_messages(self, old_name: str, new_name: str, path: str) -> None:
        if (old_name, new_name) in self._seen:
            return
        self._seen.add((old_name, new_name))
        old, new = self._olds.get(old_name), self._news.get(new_name)
        if old is None or new is None:  # a type from an always available file
            return
        self.compare_scopes(old_name, old.nested_type, new.nested_type, path)
        before, after = {field.number: field for field in old.field}, {field.number: field for field in new.field}
        for number in sorted(before.keys() | after.keys()):
            place = f"{path}{number}"
            if number not in after:
                self._removed(old, before[number], place)
            elif number not in before:
                if after[number].label == F.LABEL_REQUIRED:
                    self.found("REQUIRED_FIELD_ADDED", place, "a required field was added")
            else:
                self._compare_fields(before[number], after[number], place)
        self._compare_oneofs(old, new, before, path)

    def _removed(self, old: DescriptorProto, field: FieldDescriptorProto, path: str) -> None:
        if field.label == F.LABEL_REQUIRED:
            self.found("REQUIRED_FIELD_REMOVED", path, "a required field was removed")
        elif (oneof := _oneof(field)) is not None:
            self.found("ONEOF_FIELD_REMOVED", path, f"a field of the oneof {old.oneof_decl[oneof].name} was removed")

    def _compare_fields(self, old: FieldDescriptorProto, new: FieldDescriptorProto, path: str) -> None:
        kinds = _kind(old), _kind(new)
        if F.LABEL_REQUIRED in (old.label, new.label) and old.label != new.label:
            is_added = new.label == F.LABEL_REQUIRED
            word = "ADDED" if is_added else "REMOVED"
            self.found(f"REQUIRED_FIELD_{word}", path, f"required was {word.lower()}")
        elif (old.label == F.LABEL_REPEATED) is not (
            new.label == F.LABEL_REPEATED
        ) and old.type not in _LENGTH_DELIMITED:
            self.found("FIELD_NUMERIC_LABEL_CHANGED", path, "a number became repeated, or single")
        if kinds[0] != kinds[1]:
            self.found("FIELD_KIND_CHANGED", path, f"the kind of the field changed from {kinds[0]} to {kinds[1]}")
        elif old.type in (F.TYPE_MESSAGE, F.TYPE_GROUP):
            self._compare_types(old.type_name, new.type_name, path)
        elif not _reads(old.type, new.type):
            self.found("FIELD_SCALAR_KIND_CHANGED", path, "the type of the field changed to one of another encoding")

    def _compare_types(self, old_name: str, new_name: str, path: str) -> None:
        are_maps = [
            message is not None and message.options.map_entry
            for message in (self._olds.get(old_name), self._news.get(new_name))
        ]
        if all(are_maps):
            self._compare_messages(old_name, new_name, f"{path}/")
        elif any(are_maps):
            self.found("FIELD_KIND_CHANGED", path, "a map became a message, or a message a map")
        elif old_name != new_name:
            self.found("FIELD_NAMED_TYPE_CHANGED", path, f"the type changed from {old_name} to {new_name}")
        else:
            self._compare_messages(old_name, new_name, f"{path}/")

    def _compare_oneofs(
        self, old: DescriptorProto, new: DescriptorProto, before: Mapping[int, FieldDescriptorProto], path: str
    ) -> None:
        old_names = {old.oneof_decl[at].name for at in (_oneof(field) for field in old.field) if at is not None}
        for index, declared in enumerate(new.oneof_decl):
            moved = [number for number in _members(new, index) if number in before and _oneof(before[number]) is None]
            if len(moved) > 1:
                self.found(
                    "MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}{declared.name}", "several fields became one oneof"
                )
            elif moved and declared.name in old_names:
                self.found("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}{declared.name}", "a field moved into a oneof")


def _kind(field: FieldDescriptorProto) -> str:
    if field.type == F.TYPE_GROUP:
        return "group"
    return "message" if field.type == F.TYPE_MESSAGE else "scalar"


def _reads(old: int, new: int) -> bool:
    return old == new or any(old in group and new in group for group in _ENCODINGS)


def _oneof(field: FieldDescriptorProto) -> int | None:
    """Return the index of the field's declared oneof; None if there is none or it is synthetic."""
    return field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None


def _members(message: DescriptorProto, index: int) -> Iterator[int]:
    return (field.number for field in message.field if _oneof(field) == index)
