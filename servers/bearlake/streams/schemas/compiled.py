"""A compiled schema: texts and bytes only, so that a child process can send it to the server."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON."""
        return {
            "type": self.type,
            "text": self.text,
            "canonical": self.canonical,
            "normalized": self.normalized,
            "exports": dict(self.exports),
            "references": dict(self.references),
            "files": [base64.b64encode(one).decode("ascii") for one in self.files],
        }

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> "Compiled":
        """Create the schema from these fields."""
        return Compiled(**{**fields, "files": tuple(base64.b64decode(one) for one in fields["files"])})
