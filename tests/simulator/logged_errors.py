"""What the code under test logs: an error is a finding."""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.deployment import Deployment

_OF_FULL_DISKS = (
    "the metadata store is out of room; commits wait",
    "commit outcome unknown for too long; stopping this server",
)
"""Errors that servers log when stores run out of room; the second one also needs a lost reply."""


class LoggedErrors(logging.Handler):
    """Treats each ERROR record (a human must look) of the code under test as a finding; adds other records to the trace.

    A disk that is full is the one thing of a scenario for which a human is needed.
    """

    def __init__(self, deployment: "Deployment") -> None:
        super().__init__()
        self._deployment = deployment
        self._logger = logging.getLogger("bearlake")
        self._before = (self._logger.propagate, self._logger.level)

    def emit(self, record: logging.LogRecord) -> None:
        """Handle one record."""
        details = {
            key: value for key, value in vars(record).items() if key in ("key", "error", "partition", "position")
        }
        self._deployment.trace(record.getMessage(), **details)
        is_expected = self._deployment.lake is not None and self._deployment.lake.is_expected(record)
        if self._deployment.settings.network.disks.fill_rate and record.msg in _OF_FULL_DISKS:
            is_expected = True
        if record.levelno >= logging.ERROR and not is_expected:
            self._deployment.fail(f"logged as an error: {record.getMessage()} {details} {record.exc_info or ''}")

    def __enter__(self) -> None:
        self._logger.addHandler(self)
        self._logger.propagate = False
        self._logger.setLevel(logging.INFO)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate, level = self._before
        self._logger.setLevel(level)
