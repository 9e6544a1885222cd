"""How clients here write their histories: the one place that knows the format of `simulator.history` (JSON lines, version 1).

A line is handed to the operating system before the request leaves, so a client that is killed leaves no request that its history does
not know. Times are CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.
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
    """The history's clock (ns)."""
    return time.monotonic_ns()


def digest(key: bytes | None, value: bytes | None, headers: Headers = (), timestamp_ms: int | None = None) -> str:
    """What a reader must find unchanged of a record."""
    return f"{zlib.crc32(repr((key, value, list(headers), timestamp_ms)).encode()):08x}"


class Recording:
    """The history of one process of one client; safe to use from several threads."""

    def __init__(self, path: Path, process: str) -> None:
        """Appends; `process` names the client, for the excerpts of violations."""
        self.process = process
        self._notes = path.with_suffix(".notes")
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if os.fstat(self._file).st_size:  # a killed process may have left half a line
            os.write(self._file, b"\n")
        self._write({"history": 1, "clock": "monotonic_ns"})

    def invoke(self, op: str, at: int | None = None, process: str = "", **call: Any) -> int:
        """An operation begins; its number. `at`: when, if not now."""
        number = next(self._numbers)
        begun = {"e": "invoke", "i": number, "t": now() if at is None else at, "p": process or self.process, "op": op}
        self._write({**begun, **call})
        return number

    def ok(self, number: int, **answer: Any) -> None:
        """A positive answer has arrived."""
        self._write({"e": "ok", "i": number, "t": now(), **answer})

    def fail(self, number: int, why: str, *, at: int | None = None) -> None:
        """A definitive refusal has arrived. `at`: when, if not now."""
        self._write({"e": "fail", "i": number, "t": now() if at is None else at, "why": why})

    def unknown(self, number: int, why: str, *, settled: bool = False, at: int | None = None) -> None:
        """The client has given up. `at`: when, if not now."""
        told = {"e": "unknown", "i": number, "t": now() if at is None else at, "why": why}
        self._write({**told, **({"settled": True} if settled else {})})

    def note(self, kind: str) -> None:
        """Something to count that is no operation, such as an error that the client's library reported; in a file of its own."""
        with self._notes.open("a", encoding="utf-8") as notes:
            notes.write(json.dumps({"t": now(), "p": self.process, "what": kind[:200]}) + "\n")

    def _write(self, event: dict[str, Any]) -> None:
        line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            os.write(self._file, line)
