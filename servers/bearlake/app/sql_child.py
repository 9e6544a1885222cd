"""The process of one statement (`sql.py`), which `sql_helper.py` forks.

Reads the settings and the statement from standard input, limits itself, runs the statement, and writes the answer as JSON to standard
output: {"columns": [[name, type]], "rows": [[…]], "is_truncated": …} or {"kind": …, "error": …}.
"""

import asyncio
import base64
import contextlib
import dataclasses
import json
import math
import os
import pickle
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bearlake.app import lake
from bearlake.errors import BearlakeError, Invalid, Overloaded
from bearlake.protocols.rest.iceberg.sql_settings import SqlSettings
from bearlake.settings.document import Settings
from bearlake.streams.schemas.confined.limits import EXIT_MEMORY, VALUES_NICENESS, step_back
from bearlake.table.query import QueryResult

EXACT_MAX = 2**53 - 1
"""Readers such as browsers lose digits of larger numbers in JSON."""
_RESERVE_MS = 1_000
"""The server kills the process at the deadline; its own timer comes later, and matters only when there is no server any more."""


def main() -> None:
    """Serve one request."""
    settings, statement, names, is_live = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the server that started us
    limits = settings.catalog.sql
    confine(limits)
    code = 0
    try:
        answer = _answered(settings, limits, statement, names, is_live)
        sys.stdout.buffer.write(json.dumps(answer, allow_nan=False).encode())
        sys.stdout.buffer.flush()
    except MemoryError:
        code = EXIT_MEMORY
    os._exit(code)  # threads of the engine may still run


def confine(limits: SqlSettings) -> None:
    """Limit this process for the rest of its life."""
    step_back(VALUES_NICENESS)
    data_max = _data_bytes() + limits.process_bytes_max
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (data_max, data_max))
    signal.setitimer(signal.ITIMER_REAL, (limits.deadline_ms + _RESERVE_MS) / 1000)


def _answered(
    settings: Settings, limits: SqlSettings, statement: str, names: Sequence[str], is_live: bool
) -> dict[str, object]:
    tables = dataclasses.replace(
        settings.tables,
        query_memory_bytes_max=limits.engine_bytes_max,
        query_temporary_files=False,
        query_thread_count=1,
        query_row_count_max=limits.row_count_max,
        query_deadline_ms=limits.deadline_ms,
    )
    chosen = dataclasses.replace(settings, tables=tables)
    try:
        found = asyncio.run(lake.query(chosen, statement, is_live=is_live, names=names))
    except Overloaded as error:
        reason = str(error).partition("\n")[0].replace("tables.query_memory_bytes_max", "catalog.sql.engine_bytes_max")
        return {"kind": "Overloaded", "error": _shortened(reason)}
    except Invalid as error:
        return {"kind": "Invalid", "error": _shortened(str(error))}
    except BearlakeError as error:
        return {"kind": "Unavailable", "error": _shortened(str(error))}
    return _shown(found)


def _shown(found: QueryResult) -> dict[str, object]:
    return {
        "columns": list(zip(found.columns, found.types, strict=True)),
        "rows": [[plain(value) for value in row] for row in found.rows],
        "is_truncated": found.is_truncated,
    }


def plain(value: Any) -> Any:  # whatever SQL returns
    """Return the value as JSON has it without loss: bytes as text if they are UTF-8, else as `base64:…`; times in ISO 8601."""
    match value:
        case None | bool():
            return value
        case int():
            return value if -EXACT_MAX <= value <= EXACT_MAX else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return value.encode(errors="replace").decode()
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return "base64:" + base64.b64encode(value).decode()
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Sequence():
            return [plain(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= 2_000 else text[:2_000] + " …"


def _data_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
