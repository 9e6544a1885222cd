"""The cluster's requirements on a machine, and the Debian packages that meet them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from commands import run, succeeds
from layout import BIN, STATE

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "etcd": "etcd-server",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "openssl": "openssl",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
}
"""A program, or a file that shows its presence: the Debian package."""
INSTALL_S = 600
DISK_BYTES_MIN = 24_000_000_000
"""Disk space of a first build: Go's caches, the images in three stores, and the sources of their layers."""


def install() -> None:
    """Install the missing packages, unless something else is missing; `check` lists what is missing."""
    missing = _missing()
    if missing and not _obstacles() and shutil.which("apt-get"):
        print(f"Installing {' '.join(missing)} ...", flush=True)
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "update", "-qq", env=quiet, seconds=INSTALL_S)
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing, env=quiet, seconds=INSTALL_S)


def check() -> None:
    """Exit with a list of everything that prevents a cluster on this machine; changes nothing."""
    obstacles = _obstacles()
    if missing := _missing():
        obstacles.append(f"Debian's packages {' '.join(missing)} are missing")
    if obstacles:
        sys.exit("no cluster can be made here: " + "; ".join(obstacles))


def _obstacles() -> list[str]:
    """Problems that no package can solve."""
    found = [] if _has_go() else ["Go 1.21 or newer is missing (it fetches the version of programs/go.mod by itself)"]
    if os.geteuid() != 0:
        found.append("it needs root: it makes namespaces, a bridge and cgroups")
    elif not succeeds("unshare", "--fork", "--pid", "--mount", "--mount-proc", "--net", "--uts", "true"):
        found.append("the kernel lets it make no namespaces (a container without --privileged?)")
    elif not os.access("/proc/sys/net/ipv4/ip_forward", os.W_OK):
        found.append("/proc/sys cannot be written (a container without --privileged?)")
    elif not _has_cgroups():
        found.append("no cgroup can be made below /sys/fs/cgroup")
    free = shutil.disk_usage(next(path for path in (STATE, *STATE.parents) if path.exists())).free
    if not BIN.exists() and free < DISK_BYTES_MIN:
        found.append(f"{STATE} has {free / 1e9:.1f} GB free, of {DISK_BYTES_MIN / 1e9:.0f} that it needs")
    return found


def _missing() -> list[str]:
    return [package for name, package in PACKAGES.items() if not (shutil.which(name) or Path(name).exists())]


def _has_go() -> bool:
    if (BIN / "kube").exists():
        return True
    if not shutil.which("go"):
        return False
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, cwd="/").stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    return bool(found) and (int(found[1]), int(found[2])) >= (1, 21)


def _has_cgroups() -> bool:
    kinds = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    roots = [Path(root) for root, kind in kinds if kind in ("cgroup", "cgroup2")]
    return bool(roots) and all(os.access(root, os.W_OK) for root in roots)
