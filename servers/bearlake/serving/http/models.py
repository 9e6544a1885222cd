"""Bodies as typed models: one declaration gives both the check of a body and its JSON Schema. Only this package imports msgspec.

A `Model` names its fields and their types; `Meta` adds ranges, lengths and descriptions. `Reader` turns JSON into a model, or raises

    Malformed   the bytes are not JSON
    Mismatch      the JSON does not fit the model; the message names the field, what was expected, and what was found:
                records[2].partition: expected a whole number from 0 to 2147483647, found -1

`components` gives the schemas for an OpenAPI document. Each API translates the two errors into its own status and code.

Source: RFC 8259 (JSON), JSON Schema 2020-12, RFC 4648 (base64: how JSON carries the type `bytes`).
"""

import json
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from bearlake.errors import Invalid
from bearlake.serving.http.mismatches import NOTHING, Mismatch, mismatch

__all__ = ["UNSET", "Meta", "Mismatch", "Raw", "UnsetType", "field"]

T = TypeVar("T")

EXPLAINED_BYTES_MAX = 64 * 1024
"""Largest body whose mismatch shows the value found: to parse a larger one would stop the event loop, for 16 MiB for seconds."""
_HALF_PAIR = "the body: an unpaired surrogate cannot be encoded as UTF-8"


class Model(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A JSON object. A field that the model does not have is refused."""


class OpenModel(msgspec.Struct, kw_only=True):
    """A JSON object. Fields that the model does not have are ignored."""


class Malformed(Invalid):
    """A body is not JSON."""


class Reader(Generic[T]):
    """Reads bodies of one model."""

    def __init__(self, model: Any) -> None:
        """`model` is the type `T` (Any: unions and generic models are types that `type[T]` does not cover)."""
        self._model = model
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(model)

    def read(self, body: bytes | Raw) -> T:
        """The model in a JSON text. Raises `Malformed`, `Mismatch`."""
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise mismatch(self._model, str(error), _whole(body)) from error
        except RecursionError as error:
            raise _malformed(error) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _whole(body)
            # The body is JSON by its grammar. msgspec refuses it because a text has half a surrogate pair (RFC 8259, 8.2).
            raise Mismatch(_HALF_PAIR) from error

    def convert(self, value: Any) -> T:
        """The model of a JSON value that is parsed already (Any: JSON). Raises `Mismatch`."""
        try:
            converted: T = msgspec.convert(value, type=self._model)
        except msgspec.ValidationError as error:
            raise mismatch(self._model, str(error), value) from error
        except UnicodeEncodeError as error:
            raise Mismatch(_HALF_PAIR) from error
        return converted


def _whole(body: bytes | Raw) -> Any:
    """The JSON value of a body that does not fit its model (Any: JSON); `NOTHING` for a large body.

    Raises `Malformed`: the decoder stopped at the mismatch.
    """
    octets = bytes(body)
    try:
        text = octets.decode()
        if len(octets) <= EXPLAINED_BYTES_MAX:
            return json.loads(text, parse_constant=_refuse)
        msgspec.json.decode(octets, type=Raw)  # checks the grammar without making values
        return NOTHING
    except (ValueError, RecursionError) as error:
        raise _malformed(error) from error


def _malformed(error: Exception) -> Malformed:
    return Malformed(f"Malformed JSON: {str(error).removeprefix('JSON is malformed: ')[:200]}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


ANY: Reader[Any] = Reader(Any)
"""Reads any JSON value; one with a number that no double can hold, or with half a surrogate pair, is a `Mismatch`."""


def components(models: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A schema for each model, which may refer to the named schemas that come second; names are `#/components/schemas/…`."""
    schemas, named = msgspec.json.schema_components(models, ref_template="#/components/schemas/{name}")
    return list(schemas), dict(named)


def fields_given(model: msgspec.Struct) -> dict[str, Any]:
    """The fields that a body gave, by their names in JSON; those that are `UNSET` are left out (Any: JSON)."""
    builtins: dict[str, Any] = msgspec.to_builtins(model)
    return builtins
