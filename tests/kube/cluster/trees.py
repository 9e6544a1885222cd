"""Process trees: the control plane, and each node, as the first process of its own namespaces with all of its programs below it.

When a tree's first process ends, the kernel removes its processes, mounts, interfaces and iptables rules: nothing has to be cleaned up
one by one. A tree is remembered by pid and start time, since pids are reused.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from commands import wait
from layout import HERE, LOG, RUN


def start(name: str, namespaces: list[str], *command: str) -> None:
    """Start `cluster.py <command>` as the first process of new pid and mount namespaces."""
    with open(LOG / f"{name}.log", "wb") as log:
        process = subprocess.Popen(
            [
                *("unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc", *namespaces),
                *(sys.executable, str(HERE / "cluster.py"), *command),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    _path(name).write_text(f"{process.pid} {_stat(process.pid)[19]}")
    wait(f"start of {name}", lambda: first_pid(name))


def kill(name: str) -> None:
    """Kill the process tree at once; its data is discarded, so no clean shutdown is needed."""
    if pid := _owner(name):
        os.kill(pid, signal.SIGKILL)
    wait(f"end of {name}", lambda: not _owner(name))
    _path(name).unlink(missing_ok=True)


def names() -> list[str]:
    """Trees that were started and not ended by `kill`."""
    return sorted(path.stem for path in RUN.glob("*.pid"))


def first_pid(name: str) -> int | None:
    """The pid, as the host sees it, of the tree's first process; None when it does not run."""
    if pid := _owner(name):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None
    return None


def inside(name: str) -> list[str]:
    """The command prefix that enters the tree's namespaces."""
    pid = first_pid(name)
    if not pid:
        sys.exit(f"{name} does not run")
    return ["nsenter", "--target", str(pid), "--mount", "--net", "--uts", "--pid"]


def spawn(name: str, *command: str, log: Path) -> tuple[int, str]:
    """Start a program of this tree; for `supervise`."""
    with open(log / f"{name}.log", "wb") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out).pid, name


def supervise(programs: Mapping[int, str]) -> None:
    """Reap orphans, as a first process must; end the tree when one of its programs ends."""
    while True:
        pid, status = os.wait()
        if pid in programs:
            sys.exit(f"{programs[pid]} ended with status {os.waitstatus_to_exitcode(status)}")


def _owner(name: str) -> int | None:
    """The pid of the `unshare` that owns the tree, or None when it has ended."""
    try:
        pid, ticks = _path(name).read_text().split()
        stat = _stat(int(pid))
    except FileNotFoundError:
        return None
    return int(pid) if stat[19] == ticks and stat[0] != "Z" else None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on: 0 the state, 19 the start in ticks."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _path(name: str) -> Path:
    return RUN / f"{name}.pid"
