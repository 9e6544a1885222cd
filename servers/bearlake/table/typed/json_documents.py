"""JSON Schema documents, and what a schema's references point to.

A `$ref` points into its own document (`#`, `#/definitions/Line`, an anchor), or into a document that was registered under a name.
Nothing is ever fetched. A reference that cannot be found is None: the schema there allows anything.

Source: JSON Schema core, drafts 4 to 2020-12, "Schema References"; RFC 6901 (JSON Pointer); Confluent, "JSON Schema Serializer".
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from bearlake.table.typed.model import SchemaError

_PARTS_MAX = 100_000
"""Limit of the values of a document that are searched for anchors."""


class Place(NamedTuple):
    """A schema and its document. (Any: JSON.)"""

    schema: Any
    document: "Document"


@dataclass(slots=True, eq=False)
class Document:
    """A document, and the documents that it may refer to by name."""

    root: Any
    named: Mapping[str, "Document"]
    _anchors: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        """The document's own name; empty: it has none."""
        found = next((self.root[key] for key in ("$id", "id") if key in self.root), "") if _is_object(self.root) else ""
        return found.partition("#")[0] if isinstance(found, str) else ""

    def place_of(self, reference: Any) -> Place | None:
        """Return what a reference of this document points to, None if there is no such schema."""
        if not isinstance(reference, str):
            return None
        name, _, fragment = reference.partition("#")
        document = self._named(name)
        if document is None:
            return None
        schema = document._part(unquote(fragment))
        return Place(schema, document) if isinstance(schema, dict | bool) else None

    def _named(self, name: str) -> "Document | None":
        if not name or name == self.id:
            return self
        name = name.removeprefix("./")
        if name in self.named:
            return self.named[name]
        return next((document for own, document in self.named.items() if name.endswith(f"/{own}")), None)

    def _part(self, fragment: str) -> Any:
        if not fragment:
            return self.root
        if not fragment.startswith("/"):
            if self._anchors is None:
                self._anchors = dict(_anchors(self.root))
            return self._anchors.get(fragment)
        found = self.root
        for escaped in fragment[1:].split("/"):
            key = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(key)
            elif (
                isinstance(found, list) and key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(found)
            ):
                found = found[int(key)]
            else:
                return None
        return found


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _anchors(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield the schemas of a document that have a name."""
    waiting = [root]
    for _ in range(_PARTS_MAX):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, dict):
            anchor, id_ = value.get("$anchor"), value.get("$id", value.get("id"))
            if isinstance(anchor, str):
                yield anchor, value
            if isinstance(id_, str) and id_.startswith("#"):
                yield id_[1:], value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def reference_texts(named: Mapping[str, str]) -> tuple[str, ...]:
    """Return the documents that a schema refers to, by name, as the `references` of `mapping.columns_of`."""
    return tuple(json.dumps([name, text], separators=(",", ":")) for name, text in named.items())


def load(text: str, references: Sequence[str]) -> Place:
    """Return a schema with its documents; `references` are those of `reference_texts`. Raises `SchemaError`."""
    named: dict[str, Document] = {}
    for reference in references:
        name, referred = _loaded(reference, "a reference")
        named[name] = Document(_loaded(referred, f"the reference {name!r}"), named)
    document = Document(_loaded(text, "the schema"), named)
    if not isinstance(document.root, dict | bool):
        raise SchemaError("a JSON schema is an object, true or false")
    return Place(document.root, document)


def _loaded(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SchemaError(f"{what} is not JSON") from error
    except RecursionError as error:
        raise SchemaError(f"{what} is nested too deeply") from error
