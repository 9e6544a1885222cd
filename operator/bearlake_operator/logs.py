"""Logs as JSON lines on standard error, for all processes of the package."""

import json
import logging

_WORDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _JsonLines(logging.Formatter):
    """One JSON object per line; `extra` becomes fields."""

    def format(self, record: logging.LogRecord) -> str:
        shown = {"time": self.formatTime(record), "level": record.levelname, "message": record.getMessage()}
        shown |= {key: value for key, value in vars(record).items() if key not in _WORDS}
        if record.exc_info:
            shown["error"] = self.formatException(record.exc_info)
        return json.dumps(shown, default=str)


def start() -> None:
    """Write logs from INFO on."""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
