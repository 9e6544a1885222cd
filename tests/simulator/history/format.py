"""The file of a history: JSON lines, version 1. One process appends one event per line; several files form one history.

    {"history": 1, "clock": "monotonic_ns"}                     header: first line, and again when a process continues the file
    {"e": "invoke", "i": 7, "t": 1200, "p": "producer-1", "op": "produce", "log": ["orders", 0, "f3a…"], …}
    {"e": "ok",     "i": 7, "t": 1900, "offset": 41}
    {"e": "fail",   "i": 8, "t": 1950, "why": "out_of_range"}
    {"e": "unknown","i": 9, "t": 2100, "settled": true}

`i` pairs the two events of an operation; it is unique in the file since the last header. `t` is the time (integer) by the clock that all
files of the history share. A killed process leaves operations without a second event, whose outcome is unknown, and may leave a
truncated last line, which is ignored.

    op         call                                                                          answer of ok
    produce    log producer kind sequence records=[[id, digest]…] session tabular            offset incarnation
    read       log start server protocol                                                     records=[[offset, id, digest]…] end
    bounds     log server protocol                                                           start end
    trim       log start
    rows       log start end engine                                                          records
    count      log start end engine                                                          count
    complete   log start
    take       log group offsets sent                                                        records
    drain      log group start                                                               end
    survey     log                                                                           records
    hold       group member generation partitions=[log…] asked patience                      (ok: given up)
    confirm    group member generation
    commit     group log offset
    committed  group log                                                                     offset
    create     topic                                                                         incarnation
    delete     topic incarnation
    describe   topic                                                                         incarnation
    transact   topic producer sequence writes=[[partition, id]…] source
    scan       topic partition start whole                                                   records=[[offset, id, digest]…]

`log` is [topic, partition] or [topic, partition, incarnation]. Fields with a default may be omitted; `model.py` documents the fields.
Unknown fields are ignored; unknown operations are an error. A format with a different meaning gets a new version number.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulator.history.model import (
    NOTHING,
    Answer,
    Bounds,
    Call,
    Commit,
    Committed,
    Complete,
    Confirm,
    Count,
    Create,
    Delete,
    Describe,
    Drain,
    Hold,
    Kind,
    Log,
    Outcome,
    Produce,
    Read,
    Record,
    Rows,
    Scan,
    Seen,
    Survey,
    Take,
    Transact,
    Trim,
    Write,
)

VERSION = 1

Json = Mapping[str, Any]
"""A decoded line. Any: JSON."""


class Malformed(ValueError):
    """A line does not have this format."""


CALLS: Mapping[str, type[Call]] = {
    "produce": Produce,
    "read": Read,
    "bounds": Bounds,
    "trim": Trim,
    "rows": Rows,
    "count": Count,
    "complete": Complete,
    "take": Take,
    "drain": Drain,
    "survey": Survey,
    "hold": Hold,
    "confirm": Confirm,
    "commit": Commit,
    "committed": Committed,
    "create": Create,
    "delete": Delete,
    "describe": Describe,
    "transact": Transact,
    "scan": Scan,
}
NAMES = {kind: name for name, kind in CALLS.items()}
RENAMED = {"is_tabular": "tabular", "is_whole": "whole", "is_answered": "settled", "timeout": "patience"}

_ABSENT = object()
_NAMES: Mapping[type, Sequence[tuple[str, str, object]]] = {
    kind: [(name, RENAMED.get(name, name), field.default) for name, field in kind.__dataclass_fields__.items()]
    for kind in (*CALLS.values(), Answer)
}
"""The fields of each kind of operation: name, key in the file, default."""
_DECODE: Mapping[str, Callable[[Any], Any]] = {
    "log": lambda value: Log(*value),
    "kind": Kind,
    "offsets": tuple,
    "partitions": lambda value: tuple(Log(*item) for item in value),
    "writes": lambda value: tuple(Write(*item) for item in value),
}


def header(clock: str) -> str:
    """Return the first line of a file."""
    return _line({"history": VERSION, "clock": clock})


def invoke(number: int, time: int, process: str, call: Call) -> str:
    """Return the line that begins an operation."""
    return _line({"e": "invoke", "i": number, "t": time, "p": process, "op": NAMES[type(call)], **_fields(call)})


def completion(number: int, time: int, outcome: Outcome, answer: Answer = NOTHING) -> str:
    """Return the line that ends an operation."""
    return _line({"e": outcome.value, "i": number, "t": time, **_fields(answer)})


def decode_call(event: Json) -> Call:
    """Decode the call of an `invoke` event. Raises `Malformed`."""
    kind = CALLS.get(event["op"])
    if kind is None:
        raise Malformed(f"unknown operation {event['op']!r}")
    return kind(**_decoded(event, kind, Record))


def decode_answer(event: Json) -> Answer:
    """Decode the answer of any other event. Raises `Malformed`."""
    return Answer(**_decoded(event, Answer, Seen))


def _fields(value: Call | Answer) -> dict[str, object]:
    """Return the fields that differ from their default."""
    found = {}
    for name, key, default in _NAMES[type(value)]:
        present = getattr(value, name)
        if present != default:
            found[key] = present
    return found


def _decoded(event: Json, kind: type[Call] | type[Answer], record: type[Record] | type[Seen]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        for name, key, _ in _NAMES[kind]:
            value = event.get(key, _ABSENT)
            if value is _ABSENT:
                continue
            if name == "records":
                value = tuple([record(*item) for item in value])
            elif name in _DECODE:
                value = _DECODE[name](value)
            found[name] = value
    except (TypeError, ValueError) as error:
        raise Malformed(f"{error} in {dict(event)}") from error
    return found


def _line(event: Json) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False) + "\n"
