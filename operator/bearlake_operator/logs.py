"""Logs as JSON lines on standard error, for all processes of the package."""

import json
import logging

_RECORD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _JsonFormatter(logging.Formatter):
    """One JSON object per line; the keys of `extra` become fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": self.formatTime(record), "level": record.levelname, "message": record.getMessage()}
        line |= {key: value for key, value in vars(record).items() if key not in _RECORD_ATTRIBUTES}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure() -> None:
    """Log at INFO and above."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
