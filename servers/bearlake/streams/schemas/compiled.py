"""A compiled schema: texts and bytes only, so that a child process can send it to the server."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from bearlake.errors import Invalid
from bearlake.streams.schemas.budget import Budget


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A schema that a compiler accepted."""

    type: str
    """The name of its `SchemaType`."""
    text: str
    """The text that is stored and returned to clients."""
    canonical: str
    """The canonical text: two schemas with equal canonical texts are the same schema."""
    normalized: str
    """The text to store if a client requests normalization."""
    record_name: str | None = None
    """The record name for subject names: full name of the record or message, or the title."""
    exports: Mapping[str, str] = field(default_factory=dict)
    """Other forms that clients may request, by name of the form."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Texts of the referenced schemas, by name; each comes after the schemas that it references."""
    files: tuple[bytes, ...] = ()
    """Protobuf: serialized descriptors of all imported files, each after its own imports, then the schema's own file."""

    @property
    def size_bytes(self) -> int:
        """Approximate size in memory."""
        texts = [self.text, self.canonical, self.normalized, *self.exports.values(), *self.references.values()]
        return sum(map(len, texts)) + sum(map(len, self.files))

    @cached_property
    def digest(self) -> str:
        """Identifies the schema to the processes that read and write its values."""
        named = [text for pair in self.references.items() for text in pair]
        found = hashlib.sha256()
        for text in (self.type, self.text, *named):
            octets = text.encode()
            found.update(len(octets).to_bytes(8, "big") + octets)
        return found.hexdigest()

    def as_parts(self) -> tuple[dict[str, Any], list[bytes]]:
        """The schema as a head (Any: JSON) and parts of a message; see `confined/frames.py`."""
        head = {
            "type": self.type,
            "record_name": self.record_name,
            "exports": [*self.exports],
            "references": [*self.references],
            "files": len(self.files),
        }
        texts = [self.text, self.canonical, self.normalized, *self.exports.values(), *self.references.values()]
        return head, [*(text.encode() for text in texts), *self.files]

    @staticmethod
    def from_parts(head: Mapping[str, Any], parts: Sequence[bytes]) -> "Compiled":
        """Create the schema from the head and parts that `as_parts` returns."""
        count = 3 + len(head["exports"]) + len(head["references"])
        text, canonical, normalized, *others = (part.decode() for part in parts[:count])
        exports, references = others[: len(head["exports"])], others[len(head["exports"]) :]
        return Compiled(
            type=head["type"],
            record_name=head["record_name"],
            text=text,
            canonical=canonical,
            normalized=normalized,
            exports=dict(zip(head["exports"], exports, strict=True)),
            references=dict(zip(head["references"], references, strict=True)),
            files=tuple(parts[count : count + head["files"]]),
        )


class SchemaCompiler(Protocol):
    """Compiles schemas; `confined/pool.py` is one."""

    async def compiled(self, type_name: str, text: str, references: Mapping[str, str]) -> Compiled:
        """Compile a schema. `references`: texts by name, each after those that it references.

        Raises:
            InvalidSchema: the text or a reference is invalid.
            SchemaTooLarge: it needs more time or memory than allowed.
            Unavailable: nothing was compiled; try again.
        """


class CheckedValues(NamedTuple):
    """What is wrong with which of the first `checked_count` values (at least one), by their places."""

    unfit: Mapping[int, Invalid]
    checked_count: int
    exceeds_limit: bool = False
    """Whether the last checked value exceeded a limit. If not, and there are more values, the answer for all would be too large."""


class ValueChecker(Protocol):
    """Checks values outside of this process; `confined/pool.py` is one."""

    def budget(self) -> Budget:
        """Return the processor time that the values of one batch may need."""

    async def checked_values(self, schema: Compiled, values: Sequence[bytes], budget: Budget) -> CheckedValues:
        """Check serialized values, up to the first one that exceeds a limit, or fewer if the answer would exceed one.

        Raises:
            InvalidSchema, SchemaTooLarge: no value of the schema can be checked, or the budget is used up.
            Overloaded, Unavailable: nothing was checked; try again.
        """
