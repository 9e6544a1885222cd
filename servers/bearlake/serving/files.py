"""Files that somebody may replace while we run: Secrets mounted by Kubernetes, certificates that are renewed.

A file counts as changed when its inode, size or time is another. That holds also for Kubernetes, which replaces all files of a mount at
once by another target of one symbolic link.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

LOOK_PAUSE_MS = 1_000

_Stamp = tuple[int, int, int] | None


class FollowedFiles:
    """Tells when one of some files has changed. A look costs some microseconds per file, and there is one per pause at most."""

    def __init__(
        self, paths: Sequence[str], *, pause_ms: int = LOOK_PAUSE_MS, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Takes the present files as known."""
        self._paths = [Path(path) for path in paths]
        self._pause_s = pause_ms / 1000
        self._now_s = now_s
        self._looked_s = now_s()
        self._stamps = [_stamp(path) for path in self._paths]

    def have_changed(self) -> bool:
        """Whether there is another file somewhere than at the last look; False within the pause. An absent file is another one, too."""
        now_s = self._now_s()
        if now_s - self._looked_s < self._pause_s:
            return False
        self._looked_s = now_s
        stamps = [_stamp(path) for path in self._paths]
        changed, self._stamps = stamps != self._stamps, stamps
        return changed


def _stamp(path: Path) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
