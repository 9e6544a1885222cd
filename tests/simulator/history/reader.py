"""Read operations from files of events. Only pending operations are kept in memory."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from simulator.history.format import VERSION, Malformed, decode_answer, decode_call
from simulator.history.model import NOTHING, Operation, Outcome


class Events(NamedTuple):
    """The two events of one operation, as written."""

    origin: str
    """File and line of the first event."""
    begun: dict[str, Any]
    ended: dict[str, Any] | None

    def operation(self) -> Operation:
        """Decode the operation. Raises `Malformed`."""
        ended = self.ended
        return Operation(
            process=self.begun["p"],
            start=self.begun["t"],
            end=None if ended is None else ended["t"],
            outcome=Outcome.UNKNOWN if ended is None else Outcome(ended["e"]),
            call=decode_call(self.begun),
            answer=NOTHING if ended is None else decode_answer(ended),
            origin=self.origin,
        )


def read_files(paths: Iterable[Path]) -> Iterator[Operation]:
    """Yield the operations of all files, in no particular order. Raises `Malformed`."""
    for events in read_events(paths):
        yield events.operation()


def read_events(paths: Iterable[Path]) -> Iterator[Events]:
    """Yield the events of each operation, not decoded, in no particular order. Raises `Malformed`."""
    for path in paths:
        with path.open(encoding="utf-8") as lines:
            yield from pair(lines, path.name)


def pair(lines: Iterable[str], name: str) -> Iterator[Events]:
    """Yield the operations of one file in order of their ends, then those that never ended. Raises `Malformed`."""
    waiting: dict[int, Events] = {}
    has_header = False
    for number, line in enumerate(lines, start=1):
        event = _event(line, f"{name}:{number}")
        if event is None:
            continue
        if "history" in event:
            if event["history"] != VERSION:
                raise Malformed(f"{name}:{number}: version {event['history']} is not {VERSION}")
            has_header = True
            yield from waiting.values()
            waiting = {}
        elif not has_header:
            raise Malformed(f"{name}:{number}: the file does not begin with a header")
        elif event["e"] == "invoke":
            waiting[event["i"]] = Events(f"{name}:{number}", event, None)
        else:
            begun = waiting.pop(event["i"], None)
            if begun is None:
                raise Malformed(f"{name}:{number}: operation {event['i']} has not begun")
            yield begun._replace(ended=event)
    yield from waiting.values()


def _event(line: str, where: str) -> dict[str, Any] | None:
    """Decode one event; None for an empty line or a line that a killed process left truncated."""
    if not line.strip():
        return None
    try:
        event = json.loads(line)
    except json.JSONDecodeError as error:
        if error.pos >= len(line.rstrip("\n")) or not line.rstrip("\n").endswith("}"):
            return None
        raise Malformed(f"{where}: {error}") from error
    if not isinstance(event, dict) or not ("history" in event or {"e", "i", "t"} <= event.keys()):
        raise Malformed(f"{where}: not an event: {line[:200]}")
    return event
