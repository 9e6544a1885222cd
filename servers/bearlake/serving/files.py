"""Files that may be replaced while the process runs: Secrets mounted by Kubernetes, renewed certificates.

A file counts as changed if its inode, size or time differs. This also works for Kubernetes, which replaces all files of a mount at
once by a new target of one symbolic link. A file that cannot be opened counts as missing: while a process has no file descriptors left,
its readers fail too, and must read again afterwards.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

LOOK_PAUSE_MS = 1_000

_Stamp = tuple[int, int, int, int] | None


class FollowedFiles:
    """Detects changes of a set of files. A check costs a few microseconds per file, and runs at most once per pause."""

    def __init__(
        self, paths: Sequence[str], *, pause_ms: int = LOOK_PAUSE_MS, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the current files as known."""
        self._paths = [Path(path) for path in paths]
        self._pause_s = pause_ms / 1000
        self._now_s = now_s
        self._looked_s = now_s()
        self._stamps = [_stamp(path) for path in self._paths]

    def have_changed(self) -> bool:
        """Return whether any file differs from the last check; False within the pause. A missing file counts as a difference."""
        now_s = self._now_s()
        if now_s - self._looked_s < self._pause_s:
            return False
        self._looked_s = now_s
        stamps = [_stamp(path) for path in self._paths]
        changed, self._stamps = stamps != self._stamps, stamps
        return changed


def _stamp(path: Path) -> _Stamp:
    try:
        opened = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )  # without waiting for a writer of a named pipe
    except OSError:
        return None
    try:
        found = os.fstat(opened)
    finally:
        os.close(opened)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
