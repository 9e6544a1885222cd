"""Avro: Apache Avro's library parses and compares schemas; this module writes them in the attribute order of Avro's Java library.

Source: Avro specification 1.12, "Schema Declaration", "Names", "Schema Resolution"; Confluent, "Avro Schema Serializer", references.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.name import Names
from avro.schema import Schema, make_avsc_object

from bearlake.streams.schemas.formats import avro_defaults, documents
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge

FIELD_PAIR_COUNT_MAX = 16_000_000
"""Limit on comparison work: the library searches all fields of a record for each field; 4,000 fields take four seconds."""

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
LIBRARY_ERRORS = (AvroException, RecursionError, TypeError, ValueError, KeyError, AttributeError)
"""Errors that the library raises for invalid schemas; it does not check the type of every attribute before using it."""

ATTRIBUTES = {
    "record": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "error": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default", "aliases"),
    "fixed": ("type", "name", "namespace", "doc", "size", "aliases"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
FIELD_ATTRIBUTES = ("name", "type", "doc", "default", "order", "aliases")


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSchema:
    """A parsed Avro schema."""

    text: str
    normalized: str
    schema: Schema

    @property
    def canonical(self) -> str:
        """The text; this module writes equal schemas in only one way."""
        return self.text

    @property
    def record_name(self) -> str | None:
        """The full name of a record, enum or fixed."""
        return getattr(self.schema, "fullname", None) if hasattr(self.schema, "namespace") else None

    @property
    def resolved(self) -> str:
        """The text with each referenced type written out at its first use."""
        return documents.dump(_written(self.schema.to_json(), ""))


def parsed(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parse an Avro schema."""
    names = Names()
    for name, referenced in references.items():
        _made(documents.load(referenced, f"the reference {name!r}"), names)
    document = documents.load(text, "the text")
    schema = _made(document, names)
    written = _written(document, "")
    normalized = _written(document, "", is_sorted=True)
    return AvroSchema(text=documents.dump(written), normalized=documents.dump(normalized), schema=schema)


def incompatibilities(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Return why `reader` cannot read data written with `writer`."""
    pair_count = sum(len(getattr(type_, "fields", ())) ** 2 for type_ in avro_defaults.types_of(reader.schema))
    if pair_count > FIELD_PAIR_COUNT_MAX:
        raise SchemaTooLarge("The records of the schema have too many fields to compare with an earlier version")
    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    result = checker.get_compatibility(reader.schema, writer.schema)
    if result.compatibility is not SchemaCompatibilityType.incompatible:
        return []
    kinds = "".join(sorted({f"errorType:'{kind.name.upper()}', " for kind in result.incompatibilities}))
    places = ", ".join(sorted(result.locations))
    return [f"{{{kinds}description:'{'; '.join(sorted(result.messages))}', location:'{places}'}}"]


def _made(document: Any, names: Names) -> Schema:
    try:
        schema = make_avsc_object(_without_logical_types(document), names)
        avro_defaults.check(schema)
        return schema
    except LIBRARY_ERRORS as error:
        raise InvalidSchema(f"Invalid schema of type AVRO: {error}") from error


def _without_logical_types(document: Any) -> Any:
    """Remove logical types: they never decide whether a schema is valid or compatible."""
    if isinstance(document, dict):
        return {key: _without_logical_types(value) for key, value in document.items() if key != "logicalType"}
    if isinstance(document, list):
        return [_without_logical_types(element) for element in document]
    return document


def _written(document: Any, namespace: str, *, is_sorted: bool = False) -> Any:
    """Write a valid schema in its normal form; `namespace` is the enclosing namespace."""
    if isinstance(document, str):
        return _short(document, namespace) if document not in PRIMITIVES else document
    if isinstance(document, list):
        return [_written(branch, namespace, is_sorted=is_sorted) for branch in document]
    kind = document["type"]
    known = ATTRIBUTES.get(kind, ("type",)) if isinstance(kind, str) else ("type",)
    written: dict[str, Any] = {"type": kind}
    inner = namespace
    if kind in NAMED:
        inner, name = _names_of(document, namespace)
        written["name"] = name
        if inner != namespace:
            written["namespace"] = inner
    for key in known:
        if key in document and key not in ("type", "name", "namespace"):
            written[key] = _attribute(key, document[key], inner, is_sorted)
    others = [key for key in document if key not in known]
    for key in sorted(others) if is_sorted else others:
        written[key] = document[key]
    return kind if kind in PRIMITIVES and len(written) == 1 else written


def _attribute(key: str, value: Any, namespace: str, is_sorted: bool) -> Any:
    if key in ("items", "values"):
        return _written(value, namespace, is_sorted=is_sorted)
    if key == "fields":
        return [_field(field, namespace, is_sorted) for field in value]
    return value


def _field(field: dict[str, Any], namespace: str, is_sorted: bool) -> dict[str, Any]:
    written = {key: field[key] for key in FIELD_ATTRIBUTES if key in field}
    written["type"] = _written(field["type"], namespace, is_sorted=is_sorted)
    if written.get("order") == "ascending":
        del written["order"]
    others = [key for key in field if key not in FIELD_ATTRIBUTES]
    return written | {key: field[key] for key in (sorted(others) if is_sorted else others)}


def _names_of(document: dict[str, Any], namespace: str) -> tuple[str, str]:
    """Return the namespace and short name of a named type."""
    space, dot, name = document["name"].rpartition(".")
    if dot:
        return space, name
    own = document.get("namespace")
    return (own if isinstance(own, str) else namespace), name


def _short(name: str, namespace: str) -> str:
    space, dot, short = name.rpartition(".")
    return short if dot and space == namespace else name
