"""Logging of a server process: readable lines on a terminal, JSON lines for collectors.

A log call has a constant message and its data in `extra`; both formats print that data after the message. Values are cut to
`VALUE_LENGTH_MAX` characters. Record contents and secrets must never be passed to a log call. As a safeguard, values with names of
secrets (`password`, `token`, …) are masked here.

Libraries that talk to stores log every broken connection with its traceback. Our own log reports each outage once. So a library's log
entry is reduced to one line with its error (`error`), and repeats during the outage are not logged.

In a line of text, a value that could look like further fields or lines is a JSON string. In a line of JSON, characters beyond ASCII are
escaped if one of them is not printable (controls, line separators, changes of the writing direction, lone surrogates).
"""

import json
import logging
import re
import sys
import time
from dataclasses import dataclass
from typing import Literal, TextIO

VALUE_LENGTH_MAX = 500
SECRET_WORDS = ("password", "secret", "token", "credential", "access_key")
FOREIGN = ("asyncpg", "pg8000", "py4j", "pyiceberg", "root", "sqlalchemy")
"""Loggers of libraries that talk to stores, and their child loggers. py4j also logs to the root logger."""
QUIET = {"sqlalchemy.pool": logging.CRITICAL}
"""Loggers without useful messages below this level: a pool drops a connection that it knows is dead."""
AUDIT = "bearlake.audit"
"""The logger of the audit log: changes as INFO, denials and failures as WARNING."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


_NEEDS_QUOTES = re.compile(r"""[\s="']""")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How the process logs."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lowest severity that is logged. DEBUG adds lines per request, which costs throughput."""
    format: Literal["auto", "text", "json"] = "auto"
    """text for people, json for log collectors; auto: text if standard error is a terminal, else json."""
    audit_changes: bool = True
    """Log each administrative change (logger bearlake.audit), whatever `level` is. false: only if `level` is INFO or DEBUG."""


def set_up(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Send the log of this process to `stream` (standard error), replacing any earlier setup."""
    target = sys.stderr if stream is None else stream
    is_text = settings.format == "text" or (settings.format == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    handler.addFilter(without_foreign_traceback)
    root = logging.getLogger()
    if not settings.audit_changes and logging.getLevelName(settings.level) > logging.INFO:
        handler.addFilter(is_no_failed_change)
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.level)
    logging.getLogger(AUDIT).setLevel(min(logging.INFO, root.level) if settings.audit_changes else root.level)
    for noisy in ("asyncio", "aiohttp.access", "botocore", "urllib3"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))


def without_foreign_traceback(record: logging.LogRecord) -> bool:
    """Filter that passes every record: in a library's record, the exception becomes the field `error`."""
    if record.exc_info and record.name.partition(".")[0] in FOREIGN:
        record.error = repr(record.exc_info[1])
        record.exc_info, record.exc_text = None, None
    return True


def is_no_failed_change(record: logging.LogRecord) -> bool:
    """Filter that leaves out administrative changes that were refused, such as a stream that exists: their caller gets the reason."""
    return not (record.name == AUDIT and getattr(record, "outcome", "") == "failed")


def extras(record: logging.LogRecord) -> dict[str, object]:
    """Return the data of a log call, masked and cut, in its original order."""
    return {key: _shown(key, value) for key, value in vars(record).items() if key not in _STANDARD}


def _shown(key: str, value: object) -> object:
    if any(word in key.lower() for word in SECRET_WORDS):
        return "***"
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= VALUE_LENGTH_MAX else text[:VALUE_LENGTH_MAX] + "…"


class TextFormatter(logging.Formatter):
    """`12:34:56.789 INFO  bearlake.app: ready  kafka=127.0.0.1:9092`, local time."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, followed by the traceback, if any."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{moment}.{int(record.msecs):03d} {record.levelname:<7} {record.name}: {record.getMessage()}"
        fields = " ".join(f"{key}={_quoted(value)}" for key, value in extras(record).items())
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{line}  {fields}{trace}" if fields else line + trace


def _quoted(value: object) -> object:
    """Return a text with spaces, quotes, equals signs or unprintable characters as a JSON string."""
    if not isinstance(value, str) or not (_NEEDS_QUOTES.search(value) or not value.isprintable()):
        return value
    return json.dumps(value, ensure_ascii=not value.isprintable())


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time` (UTC, RFC 3339), `level`, `logger`, `message`, then the call's data."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback is the string `error`."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        for key, value in extras(record).items():
            line.setdefault(key, value)
        text = json.dumps(line, ensure_ascii=False)
        # Collectors and terminals take some of these characters for the end of a line or for commands; UTF-8 has no lone surrogates.
        return text if text.isprintable() else json.dumps(line)
