"""One log line per subject and interval, for faults that callers meet again with each retry, such as a damaged object.

    line ─ left out ─ left out ─ ── interval over ── line, `left_out_count=2` ─ …

Metrics count each of them.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

INTERVAL_S = 60.0
SUBJECT_COUNT_MAX = 1_000
"""Number of subjects that are remembered; beyond that, the oldest are logged again."""


class RepeatedError:
    """An ERROR about many subjects; used from one thread."""

    def __init__(self, logger: logging.Logger, message: str, now_s: Callable[[], float] = time.monotonic) -> None:
        """`message` is a constant text; `now_s` a monotonic clock."""
        self._logger = logger
        self._message = message
        self._now_s = now_s
        self._lines: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()
        """Of each subject: when its last line was logged, and how many were left out since."""

    def log(self, subject: Hashable, **details: object) -> None:
        """Log a line with `details`, unless the subject had one less than `INTERVAL_S` ago."""
        now_s = self._now_s()
        logged_s, left_out_count = self._lines.get(subject, (now_s - INTERVAL_S, 0))
        if now_s - logged_s < INTERVAL_S:
            self._lines[subject] = logged_s, left_out_count + 1
            return
        self._lines[subject] = now_s, 0
        self._lines.move_to_end(subject)
        if len(self._lines) > SUBJECT_COUNT_MAX:
            self._lines.popitem(last=False)
        self._logger.error(self._message, extra={**details, "left_out_count": left_out_count})
