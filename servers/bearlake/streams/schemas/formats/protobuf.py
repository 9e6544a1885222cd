"""Protobuf: protoc compiles schemas, the registry stores text, and `protobuf_changes` compares schemas.

A text is a `.proto` file, or a base64-encoded FileDescriptorProto, as Confluent's clients for languages other than Java send it; the
registry stores a descriptor as the equivalent text. Imports are references, or files that are always available: Google's well-known and
common types, and Confluent's types (`protos/`).

Source: Protocol Buffers language guides (proto2, proto3, editions); Confluent, "Protobuf Schema Serializer".
"""

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError
from google.type import date_pb2
from grpc_tools import _protoc_compiler as protoc

from bearlake.streams.schemas.formats import protobuf_changes, protobuf_text
from bearlake.streams.schemas.memory_files import memory_file, path_of
from bearlake.streams.schemas.problems import InvalidSchema

_ROOTS = (
    (Path(grpc_tools.__file__).parent / "_proto", "google/protobuf"),
    (Path(__file__).parent / "protos", "."),
    (Path(date_pb2.__file__).parents[2], "google"),
)
"""Folder and subfolder of files that a schema can import without a reference."""

_SPACE = re.compile(r"\s*")
_SYNTAX = re.compile(r"(?:syntax|edition)\b")
_PROBLEM = re.compile(r"(?:/dev/fd/(\d+):)?(?:(\d+):(\d+):)? ?(.*)", re.DOTALL)
"""Format of protoc's messages: file, line, column and message."""

PROBLEM_BYTES_MAX = 64 * 1024
"""Limit on the compiler messages returned to the client."""


@dataclass(frozen=True)
class ProtobufSchema:
    """A parsed Protobuf schema."""

    text: str
    """The author's text; for a descriptor, the canonical text."""
    canonical: str
    """The text rendered from the descriptor: no comments, fixed order and spacing, full names."""
    file: FileDescriptorProto
    others: tuple[FileDescriptorProto, ...]
    """Files that it imports, directly or indirectly, except those that are always available."""
    files: tuple[FileDescriptorProto, ...]
    """Descriptors of all imported files, each after its own imports, then the schema's own file."""

    @property
    def normalized(self) -> str:
        """The canonical text."""
        return self.canonical

    @property
    def serialized(self) -> str:
        """The base64 of the descriptor."""
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode("ascii")

    @property
    def record_name(self) -> str | None:
        """The full name of the file's first message."""
        if not self.file.message_type:
            return None
        return f"{self.file.package}.{self.file.message_type[0].name}".lstrip(".")

    @cached_property
    def types(self) -> protobuf_changes.Types:
        """Messages and enums by full name."""
        return protobuf_changes.Types([self.file, *self.others])


def parsed(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Parse a Protobuf schema."""
    texts: dict[str, str] = {}
    for name, referenced in references.items():
        texts[_checked_name(name)] = _as_text(referenced, texts)
    source = _as_text(text, texts)
    *others, file = _compiled(source, texts)
    canonical = protobuf_text.rendered(file, others)
    return ProtobufSchema(
        text=source if source is text else canonical,
        canonical=canonical,
        file=file,
        others=tuple(other for other in others if other.name in texts),
        files=(*others, file),
    )


def incompatibilities(reader: ProtobufSchema, writer: ProtobufSchema) -> list[str]:
    """Return why `reader` cannot read data written with `writer`."""
    return protobuf_changes.changes(writer.file, writer.types, reader.file, reader.types)


def restored(files: Sequence[bytes], names: Container[str]) -> ProtobufSchema:
    """Rebuild a schema, without texts, from descriptors (see `ProtobufSchema.files`); `names` are the references' names."""
    *others, file = (FileDescriptorProto.FromString(serialized) for serialized in files)
    own = tuple(other for other in others if other.name in names)
    return ProtobufSchema(text="", canonical="", file=file, others=own, files=(*others, file))


def _as_text(text: str, texts: Mapping[str, str]) -> str:
    """Return the text itself (the same object), or the text for a serialized descriptor; `texts` are the files that it may import."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True)) if text else None
    except (binascii.Error, ValueError, DecodeError):
        return text
    if file is None:
        return text
    imports = "".join(f'import "{_checked_name(name)}";\n' for name in file.dependency)
    others = _compiled(f'syntax = "proto3";\n{imports}', texts)[:-1] if imports else []
    return protobuf_text.rendered(file, others)


def _checked_name(name: str) -> str:
    path = PurePosixPath(name)
    if (
        not path.parts
        or path.is_absolute()
        or str(path) != name
        or {"..", "."} & set(path.parts)
        or set(name) & set('\\"\0\n=:')  # protoc uses = and : as separators in its arguments
    ):
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: {name!r} is not a path that a file can import")
    return name


@cache
def known_files() -> Mapping[str, Path]:
    """Return the files that are always available, by import name."""
    return {
        path.relative_to(root).as_posix(): path
        for root, part in reversed(_ROOTS)  # the first root wins
        for path in sorted((root / part).rglob("*.proto"))
    }


def _compiled(source: str, texts: Mapping[str, str]) -> list[FileDescriptorProto]:
    """Compile; returns descriptors of all direct and indirect imports, each after its own imports, then of the source."""
    name = f"{hashlib.sha256(source.encode()).hexdigest()}.proto"
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for path, text in {**texts, name: source}.items():
            files[path] = stack.enter_context(memory_file(_with_syntax(text).encode()))
        made = stack.enter_context(memory_file())
        # Map each import path to exactly one file, so that an import cannot open any other file.
        tree = {path: path_of(file) for path, file in files.items()}
        tree |= {path: str(file) for path, file in known_files().items() if path not in tree}
        places = [f"-I{path}={place}" for path, place in tree.items()]
        errors = _run([*places, "--include_imports", f"--descriptor_set_out={path_of(made)}", name])
        if errors is not None:
            shown = {str(file.fileno()): path for path, file in files.items() if path != name}
            problems = "; ".join(
                _client_message(line, shown) for line in errors.splitlines() if ": warning: " not in line
            )
            raise InvalidSchema(f"Invalid schema of type PROTOBUF: {problems or 'it cannot be compiled'}")
        found = list(FileDescriptorSet.FromString(made.read()).file)
    for file in found:
        _drop_default_json_names(file.message_type, file.extension)
    return found


def _run(arguments: Sequence[str]) -> str | None:
    """Run protoc. Returns None on success, else its standard error, which is the only place where it reports errors."""
    with memory_file() as output:
        before = os.dup(2)
        try:
            os.dup2(output.fileno(), 2)
            code = protoc.run_main([b"protoc", *(argument.encode() for argument in arguments)])
        finally:
            os.dup2(before, 2)
            os.close(before)
        output.seek(0)
        return output.read(PROBLEM_BYTES_MAX).decode(errors="replace") if code else None


def _with_syntax(text: str) -> str:
    """Add the default syntax to a text that declares none, because protoc warns about a missing declaration."""
    return text if says_syntax(text) else f'syntax = "proto2"; {text}'


def says_syntax(text: str) -> bool:
    """Whether the first word after spaces and comments is `syntax` or `edition`. Reads each character at most once."""
    at = 1 if text.startswith("\ufeff") else 0
    while True:
        found = _SPACE.match(text, at)
        assert found is not None
        at = found.end()
        end = "\n" if text.startswith("//", at) else "*/" if text.startswith("/*", at) else None
        if end is None:
            return _SYNTAX.match(text, at) is not None
        closed = text.find(end, at + 2)
        if closed < 0:
            return False
        at = closed + len(end)


def _client_message(line: str, shown: Mapping[str, str]) -> str:
    """Rewrite a compiler message for the client; `shown` maps file descriptor numbers to names of referenced files."""
    found = _PROBLEM.fullmatch(line)
    assert found is not None
    descriptor, row, column, message = found.groups()
    place = f" (line {row}, column {column})" if row else ""
    return f"{shown[descriptor]}: {message}{place}" if descriptor in shown else f"{message}{place}"


def _drop_default_json_names(messages: Iterable[DescriptorProto], extensions: Iterable[FieldDescriptorProto]) -> None:
    """Remove the JSON names that the compiler added."""
    for field in extensions:
        field.ClearField("json_name")  # extensions cannot declare a JSON name
    for message in messages:
        for field in message.field:
            if field.json_name == protobuf_text.json_name(field.name):
                field.ClearField("json_name")
        _drop_default_json_names(message.nested_type, message.extension)
