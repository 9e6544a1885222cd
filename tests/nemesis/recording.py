"""The clients' side of histories, and the only module here that knows the format of `simulator.history` (JSON lines, version 1).

Each line is written to the file before its request is sent, so the history of a killed client has all of its requests. Times are
CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.
"""

import itertools
import json
import os
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Log = tuple[str, int]
Headers = Sequence[tuple[str, bytes | None]]


def now() -> int:
    """Return the history's time (ns)."""
    return time.monotonic_ns()


def digest(key: bytes | None, value: bytes | None, headers: Headers = (), timestamp_ms: int | None = None) -> str:
    """Return a digest of the parts of a record that every reader must receive unchanged."""
    return f"{zlib.crc32(repr((key, value, list(headers), timestamp_ms)).encode()):08x}"


class Recording:
    """The history of one process of one client; safe to use from several threads."""

    def __init__(self, path: Path, process: str) -> None:
        """Open the file for appending; `process` names the client in excerpts of violations."""
        self.process = process
        self._notes = path.with_suffix(".notes")
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._file).st_size:  # a killed process may have left a truncated line
            os.write(self._file, b"\n")
        self._write({"history": 1, "clock": "monotonic_ns"})

    def invoke(self, op: str, at: int | None = None, process: str = "", **call: Any) -> int:
        """Record the start of an operation; return its number. `at`: its time, if not now."""
        number = next(self._numbers)
        begun = {"e": "invoke", "i": number, "t": now() if at is None else at, "p": process or self.process, "op": op}
        self._write({**begun, **call})
        return number

    def ok(self, number: int, at: int | None = None, **answer: Any) -> None:
        """Record a positive answer. `at`: its time, if not now."""
        self._write({"e": "ok", "i": number, "t": now() if at is None else at, **answer})

    def fail(self, number: int, why: str, *, at: int | None = None) -> None:
        """Record a definitive refusal. `at`: its time, if not now."""
        self._write({"e": "fail", "i": number, "t": now() if at is None else at, "why": why})

    def unknown(self, number: int, why: str, *, is_answered: bool = False, at: int | None = None) -> None:
        """Record that the client gave up. `at`: the time, if not now."""
        event = {"e": "unknown", "i": number, "t": now() if at is None else at, "why": why}
        self._write({**event, **({"settled": True} if is_answered else {})})

    def note(self, kind: str) -> None:
        """Record an event that is not an operation, such as an error of the client library, in a separate file."""
        with self._notes.open("a", encoding="utf-8") as notes:
            notes.write(json.dumps({"t": now(), "p": self.process, "what": kind[:200]}) + "\n")

    def _write(self, event: dict[str, Any]) -> None:
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            os.write(self._file, line)
