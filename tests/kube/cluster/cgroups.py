"""One cgroup for each node: kubelets remove the cgroups of pods that they do not know.

Version 1 ("cgroup": a directory per controller), version 2 ("cgroup2"), and machines that mount both.
"""

import os
from pathlib import Path

from commands import wait

_PARENT = "bearlake"


def make(node: str) -> None:
    """Create a new cgroup for the node after removing old ones: its kubelet would ask containerd for each stale pod."""
    wait(f"removal of the old cgroups of {node}", lambda: remove(node))
    for root in _mounted("cgroup") or _mounted("cgroup2"):
        for directory in (root / _PARENT, root / _PARENT / node):
            directory.mkdir(exist_ok=True)
            parent = directory.parent
            for file in ("cpuset.cpus", "cpuset.mems"):  # version 1: empty until copied
                if (directory / file).exists() and (parent / file).exists():
                    (directory / file).write_text((parent / file).read_text())
            if (parent / "cgroup.controllers").exists():  # version 2: hand the controllers down
                controllers = (parent / "cgroup.controllers").read_text().split()
                (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))


def remove(node: str = "") -> bool:
    """Remove the cgroups of a node, or of the cluster; False while the kernel still removes their processes.

    Where both versions are mounted, runc leaves directories in both.
    """
    is_done = True
    for root in _mounted("cgroup") + _mounted("cgroup2"):
        for directory, _, _ in os.walk(root / _PARENT / node, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:
                is_done = False
    return is_done


def _mounted(kind: str) -> list[Path]:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] == kind]
