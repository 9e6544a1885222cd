"""Protobuf: compiled by protoc (in this process), kept as text, compared by our own rules (`protobuf_changes`).

A text is a `.proto` file, or the base64 of a serialized FileDescriptorProto, which is what Confluent's clients for other languages
than Java send; that one is kept as the text that it stands for. Imports are references, or files that everybody has: Google's
well-known and common types, and Confluent's own (`protos/`).

Source: Protocol Buffers language guides (proto2, proto3, editions); Confluent, "Protobuf Schema Serializer".
"""

import ast
import base64
import binascii
import hashlib
import re
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import grpc_tools
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from google.type import date_pb2
from grpc_tools import _protoc_compiler as protoc

from bearlake.streams.schemas.formats import protobuf_changes, protobuf_text
from bearlake.streams.schemas.problems import InvalidSchema

KNOWN_ROOTS = (
    Path(grpc_tools.__file__).parent / "_proto",
    Path(__file__).parent / "protos",
    Path(date_pb2.__file__).parents[2],
)
"""Folders of the files that need no reference."""


_SYNTAX = re.compile(r"\ufeff?(?:\s+|//[^\n]*\n|/\*.*?\*/)*(?:syntax|edition)\b", re.DOTALL)


@dataclass(frozen=True)
class ProtobufSchema:
    """See `parsing.Parsed`."""

    text: str
    """The author's text; of a descriptor, the canonical one."""
    canonical: str
    """The text that the descriptor stands for: no comments, one order and spacing, full names."""
    file: FileDescriptorProto
    others: tuple[FileDescriptorProto, ...]
    """What it imports, directly or not, files that everybody has excepted."""
    files: tuple[FileDescriptorProto, ...]
    """All that it imports, what they import before them, and last its own."""

    @property
    def normalized(self) -> str:
        """The canonical text."""
        return self.canonical

    @property
    def serialized(self) -> str:
        """The base64 of the descriptor."""
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode("ascii")

    @cached_property
    def types(self) -> protobuf_changes.Types:
        """Messages and enums by full name."""
        return protobuf_changes.Types([self.file, *self.others])


def parsed(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """See `parsing.parsed`."""
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
    """See `parsing.incompatibilities`."""
    return protobuf_changes.changes(writer.file, writer.types, reader.file, reader.types)


def _as_text(text: str, texts: Mapping[str, str]) -> str:
    """The text itself (the same object), or the one that a serialized descriptor stands for; `texts` are what it may import."""
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
        not name
        or path.is_absolute()
        or str(path) != name
        or {"..", "."} & set(path.parts)
        or set(name) & set('\\"\0\n')
    ):
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: {name!r} is not a path that a file can import")
    return name


def _compiled(source: str, texts: Mapping[str, str]) -> list[FileDescriptorProto]:
    """Descriptors of all that the source imports, directly or not, what they import before them, and last its own."""
    name = f"{hashlib.sha256(source.encode()).hexdigest()}.proto"
    files = {path: _with_syntax(text) for path, text in {**texts, name: source}.items()}
    warnings.simplefilter("ignore", protoc.ProtocWarning)  # what the compiler merely dislikes; the authors are not here
    with tempfile.TemporaryDirectory(prefix="bearlake-protoc-") as folder:
        try:
            for path, content in files.items():
                target = Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(content, encoding="utf-8")
            modules = protoc.get_protos(name.encode(), [folder.encode(), *(str(root).encode() for root in KNOWN_ROOTS)])
        except protoc.ProtocErrors as errors:
            problems = "; ".join(_said(one) for one in getattr(errors, "_errors", ())) or str(errors)
            raise InvalidSchema(f"Invalid schema of type PROTOBUF: {problems}") from errors
        except (OSError, ValueError, RuntimeError) as error:
            raise InvalidSchema(f"Invalid schema of type PROTOBUF: {error}") from error
    return [_descriptor(code) for _, code in modules]


def _with_syntax(text: str) -> str:
    """The text, with the default said when it says nothing, of which the compiler would complain on standard error."""
    return text if _SYNTAX.match(text) else f'syntax = "proto2"; {text}'


def _said(error: "protoc.ProtocError") -> str:
    return f"{error.message.decode(errors='replace')} (line {error.line + 1}, column {error.column + 1})"


def _descriptor(code: bytes) -> FileDescriptorProto:
    """The descriptor inside the Python module that the compiler makes of a file: the one argument of AddSerializedFile."""
    for node in ast.walk(ast.parse(code)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "AddSerializedFile"
        ):
            return FileDescriptorProto.FromString(ast.literal_eval(node.args[0]))
    raise AssertionError("protoc's module has no descriptor")
