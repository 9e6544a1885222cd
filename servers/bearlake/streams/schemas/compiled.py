"""A compiled schema as the server keeps it: texts and bytes only, so that it can come from another process."""

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
    """What is kept and given back to clients."""
    canonical: str
    """The same for texts that mean the same but for spelling: what makes two schemas one."""
    normalized: str
    """The text to keep when a client asks for normalization."""
    exports: Mapping[str, str] = field(default_factory=dict)
    """Other forms that clients may ask for, by the name of the form."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Texts of what it names, by name, what they name themselves before them."""
    files: tuple[bytes, ...] = ()
    """Protobuf: serialized descriptors of all files that it imports, what they import before them, and last its own."""

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
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
        """The schema of these fields."""
        return Compiled(**{**fields, "files": tuple(base64.b64decode(one) for one in fields["files"])})
