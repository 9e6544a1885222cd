"""Resource limits of a child process. The kernel enforces them, so the code in the child need not cooperate.

Source: setrlimit(2), setitimer(2), core(5); Linux `Documentation/filesystems/proc.rst`, `oom_score_adj`.
"""

import contextlib
import math
import os
import resource
import signal
import time
from dataclasses import dataclass
from pathlib import Path

NEVER_CORE_BYTES = 1
"""The core size limit that suppresses core files and piped core handlers; piped handlers ignore a limit of 0."""

COMPILING_NICENESS = 10
"""A child that compiles gets a tenth of a processor next to a busy server, and all of it next to an idle one."""
VALUES_NICENESS = 5
"""A child that reads and writes values gets a third of a processor next to a busy server, and all of it next to an idle one."""
EXIT_MEMORY = 3
"""Exit code of a child whose Python ran out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of the children of one helper. Processor time is a limit of each request."""

    memory_bytes_max: int
    """Address space beyond the child's address space at its start."""
    wall_ms_max: int
    """Time for one request. The signal is SIGALRM."""
    answer_bytes_max: int
    """Size of each file that the child writes, the answer included. The signal is SIGXFSZ."""

    def confine(self, niceness: int) -> None:
        """Apply the limits to this process for the rest of its life, and close its standard files."""
        for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)  # Python ignores some of these signals
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        step_back(niceness)  # requests without schemas have priority
        _lower(resource.RLIMIT_FSIZE, self.answer_bytes_max)
        _lower(resource.RLIMIT_AS, _address_space_bytes() + self.memory_bytes_max)

    def start_request(self, processor_ms: int) -> None:
        """Let the kernel kill this process after that much processor time, or after `wall_ms_max`."""
        # RLIMIT_CPU has a resolution of whole seconds and counts from the start of the process; it backs up the timer.
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = math.ceil(time.process_time() + processor_ms / 1000) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
        signal.setitimer(signal.ITIMER_PROF, processor_ms / 1000)
        signal.setitimer(signal.ITIMER_REAL, self.wall_ms_max / 1000)

    def end_request(self) -> None:
        """Stop the timers."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def step_back(niceness: int) -> None:
    """Let the server go before this process, a child, for the rest of its life, and write no core files."""
    os.nice(niceness)
    with contextlib.suppress(OSError):  # when memory is short, the kernel kills the child instead of the server
        Path("/proc/self/oom_score_adj").write_text("1000")
    _lower(resource.RLIMIT_CORE, NEVER_CORE_BYTES)


def is_time(code: int) -> bool:
    """Whether a child with this exit code needed too much processor time."""
    return -code in (signal.SIGPROF, signal.SIGXCPU)


def is_memory(code: int) -> bool:
    """Whether a child with this exit code needed too much memory, or more stack than there is."""
    return -code in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT) or code == EXIT_MEMORY


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
