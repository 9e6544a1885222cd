"""Requests to a child: compile a schema, compare two schemas, or write values.

    {"work": "compile", "type": …, "text": …, "references": {name: text}}
    {"work": "compare", "reader": …, "writer": …}        two compiled schemas as JSON
    {"work": "write", "schema": …, "values": […]}        result per value: bytes in base64, null, or reason and place of an `Unfit`

The answer is JSON with one of three keys:

    result    the result
    refused   the name of an error of `problems`, and its message
    fault     an unexpected error: a bug
"""

import base64
import json
from typing import Any

from bearlake.streams.schemas import parsing
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge
from bearlake.streams.schemas.values.by_schema import values_of
from bearlake.streams.schemas.values.model import Unfit, Values


def answer(request: bytes) -> bytes:
    """Answer a request. Raises `MemoryError`."""
    return json.dumps(_answer(request)).encode("ascii")


def _answer(request: bytes) -> dict[str, object]:
    try:
        return {"result": _result(json.loads(request))}
    except (InvalidSchema, SchemaTooLarge) as error:
        return {"refused": [type(error).__name__, str(error)]}
    except RecursionError:
        return {"refused": [SchemaTooLarge.__name__, "The schema is nested too deeply"]}
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the boundary of the process: the server raises it again
        return {"fault": f"{type(error).__name__}: {error}"}


def _result(request: dict[str, Any]) -> object:
    if request["work"] == "compile":
        return parsing.compiled(SchemaType(request["type"]), request["text"], request["references"]).as_json()
    if request["work"] == "write":
        values = values_of(Compiled.from_json(request["schema"]))
        return [_written(values, one) for one in request["values"]]
    reader, writer = (Compiled.from_json(request[one]) for one in ("reader", "writer"))
    return parsing.incompatibilities(reader, writer)


def _written(values: Values, value: Any) -> str | list[str] | None:
    try:
        return None if value is None else base64.b64encode(values.write(value)).decode("ascii")
    except Unfit as error:
        return [error.reason, error.place]
