"""Usage of processes and of the machine, from the operating system: CPU seconds, resident memory, other load.

Everything is read from /proc (Linux). A server is measured with all its descendants, because one of the servers may run as
several processes. The CPU seconds of a descendant that ended between two readings are included in its parent's figures.
"""

import os
import platform
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Usage of a process and its descendants so far: `cpu_s` seconds, `rss_bytes` resident now (shared pages
    count once per process)."""

    cpu_s: float
    rss_bytes: int


def usage(*pids: int) -> Usage:
    """Usage of `pids` and their descendants; zero for processes that are gone."""
    stats = {child: fields for child in _tree(*pids) if (fields := _stat(child))}
    # utime, stime, cutime, cstime: the last two are the times of ended children, which are no longer in the tree
    ticks = sum(sum(int(field) for field in fields[11:15]) for fields in stats.values())
    return Usage(cpu_s=ticks / TICKS_PER_S, rss_bytes=sum(int(fields[21]) for fields in stats.values()) * PAGE_BYTES)


def cores_used(*pids: int, seconds: float) -> float:
    """Cores that `pids` and their descendants use during the next `seconds`."""
    before, start = usage(*pids).cpu_s, time.monotonic()
    time.sleep(seconds)
    return (usage(*pids).cpu_s - before) / (time.monotonic() - start)


def proportional_bytes(*pids: int) -> int:
    """Resident memory of `pids` and their descendants, where pages that several processes share count once (Linux: PSS)."""
    total = 0
    for child in _tree(*pids):
        try:
            lines = Path(f"/proc/{child}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # the process ended during the read
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def busy_s() -> float:
    """Total CPU seconds of all cores and all processes since boot."""
    with Path("/proc/stat").open() as lines:
        fields = [int(field) for field in lines.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def is_alive(pid: int) -> bool:
    """Whether `pid` runs (a zombie does not)."""
    fields = _stat(pid)
    return bool(fields) and fields[0] != "Z"


def is_listening(port: int) -> bool:
    """Whether a process accepts connections at this port of the loopback address."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def stop(process: subprocess.Popen[bytes], *, timeout_s: float = 20) -> None:
    """End `process`: SIGTERM to it, and SIGKILL to its whole session when it has not ended within `timeout_s`.

    The process must have been started with `start_new_session=True`.
    """
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout_s)


def directory_bytes(directory: Path) -> int:
    """Bytes that the files below `directory` occupy (not their length: files may have holes)."""
    total = 0
    for path, _directories, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # deleted during the walk
    return total


def free_memory_bytes() -> int:
    """Memory that programs could have now without swapping."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def machine() -> dict[str, str]:
    """Describe the machine in a few words, for the head of a result table."""
    with Path("/proc/cpuinfo").open() as lines:
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False, timeout=60).stderr
    memory = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "cpu": models[0] if models else platform.machine(),
        "memory": f"{memory / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "python": f"{platform.python_version()}, {python_build()}",
        "java": java.splitlines()[0] if java else "none",
        "load average": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def python_build() -> str:
    """Whether this Python was built with profile-guided optimization (PGO), in the words of `tools/python-build`."""
    program = Path(__file__).resolve().parents[1] / "tools" / "python-build"
    return subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, timeout=60
    ).stdout.strip()


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state (field 3 of proc(5)) on; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _tree(*roots: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found = list(roots)
    for pid in found:
        found.extend(children.get(pid, ()))
    return found
