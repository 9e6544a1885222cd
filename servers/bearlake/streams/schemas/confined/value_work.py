"""Requests to the child that reads and writes values with the schemas that it keeps.

    head    {"work": "write" | "read" | "check", "schema": digest, "answer_bytes_max": …, "depth_max": …,
             "processor_ms": …, "compiled": head of the schema or null}
    parts   those of the compiled schema, if it is there; then a JSON text (write) or the bytes after the schema's id per value

The answer has one of these keys in its head:

    results   per value: the reason and place of an `Unfit`, or null; each null has a part. A list that is too short says that the next
              value would have made the answer too large; at least one value is read
    unfit     of a check: the reason and place of an `Unfit`, by the place of the value among the values
    needs     the child does not know the schema: the server sends the request again, with the schema
    refused   the name of an error of `problems`, and its message
    error     an unexpected error of a schema
"""

import json
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined import frames
from bearlake.streams.schemas.confined.boundary import answered
from bearlake.streams.schemas.nesting import is_deeper
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge
from bearlake.streams.schemas.values.by_schema import values_of
from bearlake.streams.schemas.values.model import Unfit, Values

SCHEMA_COUNT_MAX = 128
SCHEMA_BYTES_MAX = 4 * 1024 * 1024
"""Schemas that a child keeps: their number and the size of their texts, which take some ten times as much as values."""

REASON_BYTES_MAX = 64 * 1024
"""Size of the reasons and places in one answer: the server parses them on its event loop. Later reasons are short."""
_NO_ROOM = ["it does not fit the schema", ""]

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Known:
    """The schemas that this process keeps, least recently used first."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, tuple[Values, int]] = OrderedDict()
        self._size_bytes = 0

    def get(self, digest: str) -> Values | None:
        """Return the reader and writer of a schema's values; None: unknown."""
        found = self._values.get(digest)
        if found is None:
            return None
        self._values.move_to_end(digest)
        return found[0]

    def put(self, digest: str, schema: Compiled) -> Values:
        """Keep a schema. Raises `InvalidSchema`."""
        values = values_of(schema)
        self._values[digest] = (values, schema.size_bytes)
        self._size_bytes += schema.size_bytes
        while len(self._values) > SCHEMA_COUNT_MAX or (self._size_bytes > SCHEMA_BYTES_MAX and len(self._values) > 1):
            _, (_, size_bytes) = self._values.popitem(last=False)
            self._size_bytes -= size_bytes
        return values


def answer(request: bytes, known: Known, restart: Callable[[int], None], done: Callable[[int], None]) -> bytes:
    """Answer a request. Raises `MemoryError`.

    Calls `restart` with the processor time for the values, in milliseconds, after it made a schema ready; and `done` with the number of
    values after each one.
    """
    return answered(lambda: _answer(request, known, restart, done))


def _answer(request: bytes, known: Known, restart: Callable[[int], None], done: Callable[[int], None]) -> bytes:
    head, parts = frames.unpacked(request)
    values = known.get(head["schema"])
    compiled = head["compiled"]
    count = 0 if compiled is None else head["compiled_parts"]
    if values is None:
        if compiled is None:
            return frames.NEEDS_SCHEMA
        values = known.put(head["schema"], Compiled.from_parts(compiled, parts[:count]))
        restart(head["processor_ms"])
    if head["work"] == "check":
        return frames.packed({"unfit": _unfit(values, parts[count:], done)})
    convert = _written if head["work"] == "write" else _read
    results: list[list[str] | None] = []
    found: list[bytes] = []
    size_bytes = reason_bytes = 0
    for value in parts[count:]:
        try:
            octets = convert(values, value, head["depth_max"])
        except Unfit as error:
            reason_bytes += len(error.reason) + len(error.place)
            results.append([error.reason, error.place] if reason_bytes <= REASON_BYTES_MAX else _NO_ROOM)
        else:
            size_bytes += len(octets)
            if size_bytes > head["answer_bytes_max"]:
                return _too_large(head, results, found)
            found.append(octets)
            results.append(None)
        done(len(results))
    return frames.packed({"results": results}, found)


def _unfit(values: Values, parts: Sequence[bytes], done: Callable[[int], None]) -> dict[int, list[str]]:
    """Return what is wrong with which value."""
    found: dict[int, list[str]] = {}
    reason_bytes = 0
    for at, octets in enumerate(parts):
        try:
            _evaluated(partial(_check, values, octets))
        except Unfit as error:
            reason_bytes += len(error.reason) + len(error.place)
            found[at] = [error.reason, error.place] if reason_bytes <= REASON_BYTES_MAX else _NO_ROOM
        done(at + 1)
    return found


def _check(values: Values, octets: bytes) -> bytes:
    values.check(octets)
    return b""


def _too_large(head: dict[str, Any], results: list[list[str] | None], found: Sequence[bytes]) -> bytes:
    reason = f"the values become larger than {head['answer_bytes_max']} bytes"
    if head["work"] == "write":
        raise SchemaTooLarge(f"records[{len(results)}]: {reason}")
    return frames.packed({"results": results or [[reason, ""]]}, found)


def _written(values: Values, text: bytes, depth_max: int) -> bytes:
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise Unfit(f"it is not JSON: {error}") from error
    _check_depth(text, value, depth_max)
    return _evaluated(lambda: values.write(value))


def _read(values: Values, octets: bytes, depth_max: int) -> bytes:
    def read() -> bytes:
        value = values.read(octets)
        text = _encode(value).encode("ascii")
        _check_depth(text, value, depth_max)
        return text

    return _evaluated(read)


def _evaluated(work: Callable[[], bytes]) -> bytes:
    try:
        return work()
    except RecursionError as error:
        raise Unfit("it is nested too deeply") from error
    except (Unfit, InvalidSchema, SchemaTooLarge, MemoryError):
        raise
    except Exception as error:  # libraries raise other errors for values that they did not expect
        raise Unfit(f"it cannot be evaluated: {type(error).__name__}") from error


def _check_depth(text: bytes, value: Any, depth_max: int) -> None:
    """Raise `Unfit` if the value (Any: JSON) is nested too deeply for the servers and clients that parse it."""
    if text.count(b"{") + text.count(b"[") > depth_max and is_deeper(value, depth_max):
        raise Unfit(f"it is nested more than {depth_max} levels deep")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:32]} is too large")
    return number
