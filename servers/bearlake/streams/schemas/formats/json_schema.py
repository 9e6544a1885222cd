"""JSON Schema: `jsonschema` checks schemas, `referencing` resolves references, and `json_changes` compares schemas.

Supports drafts 4, 6, 7, 2019-09 and 2020-12; a schema that names no draft is draft 7. Nothing is ever fetched: a `$ref` points into the
schema itself, or to a reference registered under that name.

Source: JSON Schema core and validation; Confluent, "JSON Schema Serializer", references.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema import exceptions as schema_errors
from referencing import Registry, Resource, Specification
from referencing import exceptions as reference_errors
from referencing import jsonschema as specifications

from bearlake.streams.schemas.formats import documents
from bearlake.streams.schemas.formats.json_changes import Comparison
from bearlake.streams.schemas.formats.json_nodes import Node
from bearlake.streams.schemas.problems import InvalidSchema

_DRAFTS = {
    specifications.DRAFT4: jsonschema.Draft4Validator,
    specifications.DRAFT6: jsonschema.Draft6Validator,
    specifications.DRAFT7: jsonschema.Draft7Validator,
    specifications.DRAFT201909: jsonschema.Draft201909Validator,
    specifications.DRAFT202012: jsonschema.Draft202012Validator,
}
_BROKEN_REFERENCES = (reference_errors.Unresolvable, reference_errors.NoSuchResource, ValueError, TypeError, KeyError)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchema:
    """A parsed JSON Schema."""

    text: str
    normalized: str
    root: Node
    references: Mapping[str, Any]
    """The referenced documents, by name."""

    @property
    def canonical(self) -> str:
        """The compact text, with keys in the author's order."""
        return self.text

    @property
    def record_name(self) -> str | None:
        """The title."""
        title = self.root.schema.get("title") if isinstance(self.root.schema, dict) else None
        return title if isinstance(title, str) else None


def parsed(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parse a JSON Schema."""
    loaded = {name: documents.load(reference, f"the reference {name!r}") for name, reference in references.items()}
    resources = {name: _resource(referenced) for name, referenced in loaded.items()}
    document = documents.load(text, "the text")
    specification = _specification(document)
    root = specification.create_resource(document)
    try:
        registry: Registry[Any] = Registry(retrieve=lambda uri: _named(uri, resources))  # type: ignore[call-arg]
        resolver = registry.with_resources(resources.items()).resolver_with_root(root)
        _check(root, resolver, specification)
    except schema_errors.SchemaError as error:
        raise InvalidSchema(f"Invalid schema of type JSON: {error.message} at {error.json_path}") from error
    except _BROKEN_REFERENCES as error:
        raise InvalidSchema(f"Invalid schema of type JSON: a reference cannot be resolved: {error}") from error
    except RecursionError as error:
        raise InvalidSchema("Invalid schema of type JSON: it is nested too deeply") from error
    return JsonSchema(
        text=documents.dump(document),
        normalized=documents.dump(document, is_sorted=True),
        root=Node(document, resolver, is_modern=specification in _MODERN),
        references=loaded,
    )


def incompatibilities(reader: JsonSchema, writer: JsonSchema) -> list[str]:
    """Return why `reader` rejects values that `writer` allows. Raises `SchemaTooLarge` if the comparison exceeds its bound."""
    return [str(change) for change in Comparison().changes(writer.root, reader.root)]


_MODERN = (specifications.DRAFT201909, specifications.DRAFT202012)
"""Drafts in which keywords next to `$ref` apply."""


def _specification(document: Any) -> Specification[Any]:
    """Return the draft that a schema names. Raises `InvalidSchema` if the document is not a schema."""
    if not isinstance(document, dict | bool):
        raise InvalidSchema("Invalid schema of type JSON: expected an object, true or false")
    dialect = document.get("$schema") if isinstance(document, dict) else None
    try:
        found = specifications.specification_with(dialect) if isinstance(dialect, str) else specifications.DRAFT7
    except specifications.UnknownDialect:
        return specifications.DRAFT7
    return found if found in _DRAFTS else specifications.DRAFT7


def _resource(document: Any) -> Resource[Any]:
    return _specification(document).create_resource(document)


def _named(uri: str, resources: Mapping[str, Resource[Any]]) -> Resource[Any]:
    """Find the reference for a URI; if the schema has an `$id`, the URI is the reference's name resolved against that `$id`."""
    for name, resource in resources.items():
        if uri.endswith(f"/{name}"):
            return resource
    raise reference_errors.NoSuchResource(ref=uri)  # type: ignore[call-arg]


def _check(root: Resource[Any], root_resolver: Any, specification: Specification[Any]) -> None:
    """Raise unless the schema and all targets of its references are valid. (Any: the resolver's type is private to its library.)"""
    validator = _DRAFTS[specification]
    validator.check_schema(root.contents)
    seen = {id(root.contents)}
    waiting = [(root, root_resolver)]
    while waiting:
        resource, resolver = waiting.pop()
        waiting += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
        reference = resource.contents.get("$ref") if isinstance(resource.contents, dict) else None
        if isinstance(reference, str):
            found = resolver.lookup(reference)
            if id(found.contents) not in seen:
                seen.add(id(found.contents))
                validator.check_schema(found.contents)
                waiting.append((specification.create_resource(found.contents), found.resolver))
