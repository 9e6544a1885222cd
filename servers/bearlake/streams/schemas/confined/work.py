"""Requests to a child of its own: compile a schema, or compare two schemas.

    compile   head {"work": "compile", "type": …, "references": [name, …]}; parts: the text, then the texts of the references
    compare   head {"work": "compare", "schemas": [head, head], "counts": [parts, parts]}: reader and writer; parts: theirs

The answer's head has one of four keys:

    compiled  the head of the compiled schema; the parts are the schema's
    reasons   why the reader cannot read what the writer wrote
    refused   the name of an error of `problems`, and its message
    error     an unexpected error of a compiler
"""

from collections.abc import Sequence
from typing import Any

from bearlake.streams.schemas import parsing
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined import frames
from bearlake.streams.schemas.confined.boundary import answered
from bearlake.streams.schemas.model import SchemaType


def answer(request: bytes) -> bytes:
    """Answer a request. Raises `MemoryError`."""
    return answered(lambda: _answer(*frames.unpacked(request)))


def _answer(head: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    return _compiled(head, parts) if head["work"] == "compile" else _compared(head, parts)


def _compiled(head: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    text, *others = (part.decode() for part in parts)
    references = dict(zip(head["references"], others, strict=True))
    made, found = parsing.compiled(SchemaType(head["type"]), text, references).as_parts()
    return frames.packed({"compiled": made}, found)


def _compared(head: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    count = head["counts"][0]
    reader, writer = (
        Compiled.from_parts(schema, texts)
        for schema, texts in zip(head["schemas"], (parts[:count], parts[count:]), strict=True)
    )
    return frames.packed({"reasons": parsing.incompatibilities(reader, writer)})
