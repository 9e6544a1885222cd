"""Query parameters of HTTP requests, as typed models: the model checks a request, and describes the parameters in the OpenAPI document.

A parameter is a field with a default; a parameter that may be repeated is a list. Parameters that the model does not have are ignored,
as in the APIs that we are compatible with.
"""

from typing import Any, Generic, TypeVar

import msgspec
from aiohttp import web
from msgspec import inspect

from bearlake.serving.http.mismatches import mismatch
from bearlake.serving.http.models import components
from bearlake.serving.http.openapi.model import Schema, query

T = TypeVar("T")


class Query(Generic[T]):
    """Reads the query parameters of one model."""

    def __init__(self, model: type[T], *, is_empty_absent: bool = False) -> None:
        """With `is_empty_absent`, a parameter without a value (`limit=`) has its default, as in Confluent's APIs."""
        self._model = model
        self._is_empty_absent = is_empty_absent
        described = inspect.type_info(model)
        assert isinstance(described, inspect.StructType), model
        self._fields = described.fields

    def read(self, request: web.Request) -> T:
        """Return the request's parameters. Raises `Mismatch`: a parameter has a wrong value; its message says what is expected."""
        given = request.query
        values: dict[str, Any] = {}
        for field in self._fields:
            name = field.encode_name
            if name in given and (given[name] or not self._is_empty_absent):
                values[name] = given.getall(name) if isinstance(field.type, inspect.ListType) else given[name]
        try:
            return msgspec.convert(values, type=self._model, strict=False)
        except msgspec.ValidationError as error:
            raise mismatch(self._model, str(error), values) from error

    def parameters(self) -> tuple[Schema, ...]:
        """Return the parameters as the OpenAPI document describes them. Their types must not refer to named schemas."""
        (_, named) = components([self._model])
        ((_, model),) = named.items()
        return tuple(query(name, schema) for name, schema in model["properties"].items())
