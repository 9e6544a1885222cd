"""Resource limits of a child process. The kernel enforces them, so the code in the child need not cooperate.

Source: setrlimit(2), setitimer(2), core(5); Linux `Documentation/filesystems/proc.rst`, `oom_score_adj`.
"""

import contextlib
import math
import os
import resource
import signal
from dataclasses import dataclass
from pathlib import Path

NEVER_CORE_BYTES = 1
"""The core size limit that suppresses core files and piped core handlers; piped handlers ignore a limit of 0."""

LOWER_PRIORITY = 10
"""Niceness: a child gets a tenth of a processor next to a busy server, and all of it next to an idle one."""
EXIT_MEMORY = 3
"""Exit code of a child whose Python ran out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of one child."""

    memory_bytes_max: int
    """Address space beyond the child's address space at its start."""
    processor_ms_max: int
    """User and system time. The signal is SIGPROF."""
    wall_ms_max: int
    """Time since the start. The signal is SIGALRM."""
    answer_bytes_max: int
    """Size of each file that the child writes, the answer included. The signal is SIGXFSZ."""

    def confine(self) -> None:
        """Apply the limits to this process for the rest of its life."""
        for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)  # Python ignores some of these signals
        os.nice(LOWER_PRIORITY)  # requests without schemas have priority
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(
                "1000"
            )  # when memory is short, the kernel kills the child instead of the server
        _lower(resource.RLIMIT_CORE, NEVER_CORE_BYTES)
        _lower(resource.RLIMIT_FSIZE, self.answer_bytes_max)
        # RLIMIT_CPU has a resolution of whole seconds; it backs up the timer.
        _lower(resource.RLIMIT_CPU, math.ceil(self.processor_ms_max / 1000) + 1)
        _lower(resource.RLIMIT_AS, _address_space_bytes() + self.memory_bytes_max)
        signal.setitimer(signal.ITIMER_PROF, self.processor_ms_max / 1000)
        signal.setitimer(signal.ITIMER_REAL, self.wall_ms_max / 1000)


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError):  # macOS cannot limit address space
        resource.setrlimit(kind, (value, value))


def _address_space_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
