"""Values of a JSON Schema: compact JSON, validated on write.

`jsonschema_rs` validates them, and never fetches anything.

Source: Confluent, "JSON Schema Serializer"; a schema that names no draft is draft 7, `format` is an annotation.
"""

import json
from functools import cached_property
from typing import Any

import jsonschema_rs
from typing_extensions import override

from bearlake.streams.schemas.formats.json_schema import JsonSchema
from bearlake.streams.schemas.problems import InvalidSchema
from bearlake.streams.schemas.values.model import Unfit, Values

PATTERN_STEP_COUNT_MAX = 100_000
"""Backtracking limit of patterns with look-around or back-references; beyond the limit, a pattern does not match."""

_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_VALIDATORS = {
    "draft-04": jsonschema_rs.Draft4Validator,
    "draft-06": jsonschema_rs.Draft6Validator,
    "2019-09": jsonschema_rs.Draft201909Validator,
    "2020-12": jsonschema_rs.Draft202012Validator,
}


class JsonValues(Values):
    """`Values` of a JSON Schema."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema

    @override
    def write(self, value: Any) -> bytes:
        self._validate(value)
        try:
            return _compact(value).encode()
        except (ValueError, RecursionError) as error:
            raise Unfit(f"not valid JSON: {error}") from error

    @override
    def check(self, octets: bytes) -> None:
        """Check bytes that another program wrote: JSON in UTF-8, without a byte order mark, that the schema allows."""
        try:
            value = json.loads(octets.decode(), parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise Unfit(f"not valid JSON: {error}"[:500]) from error
        self._validate(value)

    def _validate(self, value: Any) -> None:
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
            raise Unfit(error.message[:500], place[:500]) from error
        except (ValueError, RecursionError) as error:
            raise Unfit(f"not valid JSON: {error}") from error

    @override
    def read(self, octets: bytes) -> Any:
        """Parse the JSON; values were validated on write."""
        try:
            return json.loads(octets, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise Unfit(f"the bytes are not JSON: {error}") from error

    @cached_property
    def _validator(self) -> Any:
        # Any: each draft has its own class, without a common base class.
        document = self._schema.root.schema
        dialect = document.get("$schema", "") if isinstance(document, dict) else ""
        named = (made for part, made in _VALIDATORS.items() if part in str(dialect))
        try:
            return next(named, jsonschema_rs.Draft7Validator)(
                document,
                retriever=self._retrieve,
                validate_formats=False,
                mask="the value",
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=PATTERN_STEP_COUNT_MAX),
            )
        except (ValueError, RecursionError) as error:
            raise InvalidSchema(f"Invalid schema of type JSON: {error}") from error

    def _retrieve(self, uri: str) -> Any:
        """Return the referenced schema for a `$ref`; if the schema has an `$id`, the URI is the reference's name resolved against it."""
        for name, document in self._schema.references.items():
            if uri == name or uri.endswith(f"/{name}"):
                return document
        raise ValueError(f"{uri} is not one of the references")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
