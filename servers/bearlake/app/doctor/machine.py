"""Examines this machine: versions, disk space, file systems, permissions and limits."""

import os
import platform
import resource
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bearlake import __version__, kernel
from bearlake.app.compaction_needs import lacking
from bearlake.app.disks import Room, store_folders, usage_of
from bearlake.metadata.inspection import Finding, failure, ok, skipped, warning
from bearlake.settings.document import Settings
from bearlake.urls import split_store_url

FREE_BYTES_MIN = 1024**3

OPEN_FILES_MIN = 4_096
"""A server takes up to 10,000 connections by default; the usual soft limit of 1,024 files is reached long before that."""

NETWORK_TYPES = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs"})
MEMORY_TYPES = frozenset({"tmpfs", "ramfs"})
_GIB = 1024**3


def examine(settings: Settings) -> Sequence[Finding]:
    """Return the findings."""
    folders = local_folders(settings)
    temporary = Path(tempfile.gettempdir())
    is_elsewhere = all(folder.stat().st_dev != temporary.stat().st_dev for folder in folders)
    return [
        *_versions(),
        *(finding for folder in folders for finding in _of_folder(folder)),
        *([_space(temporary, "temporary files")] if is_elsewhere else []),
        _open_files(),
        _compaction(settings),
    ]


def local_folders(settings: Settings) -> Sequence[Path]:
    """Return the folders on this machine that hold metadata or objects; a folder inside another one is left out."""
    unique = sorted(set(store_folders(settings).values()))
    return [path for path in unique if not any(other in path.parents for other in unique)]


def _versions() -> Iterator[Finding]:
    text = f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    yield ok("Bearlake", text)
    if kernel.IS_NATIVE:
        yield ok("record kernel", "compiled")
    else:
        yield warning(
            "record kernel",
            "the slower Python version",
            "install a C compiler and Python's headers (Debian: gcc, python3-dev), then install Bearlake again",
        )


def _of_folder(folder: Path) -> Iterator[Finding]:
    yield _space(folder, str(folder))
    kind = file_system(folder)
    if kind in NETWORK_TYPES:
        yield failure(
            "file system",
            f"{folder} is on {kind}",
            "use a local file system, whose fsync and locks work; for several machines, PostgreSQL and an object store",
        )
    elif kind in MEMORY_TYPES:
        yield warning("file system", f"{folder} is in memory ({kind}): a restart of the machine loses it", "use a disk")
    else:
        yield ok("file system", f"{folder} is on {kind or 'an unknown file system'}")
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not os.access(folder, os.W_OK | os.X_OK):
        yield failure("permissions", f"this user cannot write {folder}", f"run as the owner, or: chown $USER {folder}")
    elif mode & 0o007:
        yield warning(
            "permissions", f"all users of this machine can read {folder} (mode {mode:o})", f"chmod o-rwx {folder}"
        )
    else:
        yield ok("permissions", f"{folder} has mode {mode:o}")


def _space(folder: Path, what: str) -> Finding:
    usage = usage_of(folder)
    detail = f"{usage.free_bytes / _GIB:,.1f} GiB free of {usage.size_bytes / _GIB:,.1f} GiB ({what})"
    figures = {"free_bytes": usage.free_bytes, "total_bytes": usage.size_bytes}
    advice = (
        "free space, or enlarge the disk: servers cannot write on a full disk; retention.ms bounds what a stream keeps"
    )
    if usage.free_bytes < FREE_BYTES_MIN or usage.room is Room.FULL:
        return failure("disk space", detail, advice, **figures)
    if usage.room is Room.LOW:
        return warning("disk space", detail, advice, **figures)
    return ok("disk space", detail, **figures)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    detail = (
        "unlimited" if soft == unlimited else f"{soft:,} (hard limit {'none' if hard == unlimited else f'{hard:,}'})"
    )
    if soft == unlimited or soft >= OPEN_FILES_MIN:
        return ok("open files", detail)
    return warning("open files", detail, "ulimit -n 65536, or LimitNOFILE=65536 in the unit: each connection is a file")


def _compaction(settings: Settings) -> Finding:
    """Say whether a compaction worker can start here. With SQLite it has to: all processes are on this machine."""
    missing = lacking(settings.spark)
    if missing is None:
        return ok("compaction", "Java and Spark are here")
    if split_store_url(settings.metadata.url).scheme != "sqlite":
        return skipped("compaction", f"only machines with compaction workers need this: {missing}")
    return warning("compaction", "a worker cannot start here, and no table gets its files", missing)


def file_system(path: Path) -> str:
    """Return the type of the file system that holds the path, such as `ext4`; empty if this system does not tell (Linux does)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    target = str(path.resolve())
    best, kind = "", ""
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split()
        if not separator or len(fields) < 5:
            continue
        mount = _unescaped(fields[4])
        is_above = target == mount or target.startswith(mount.rstrip("/") + "/")
        if is_above and len(mount) >= len(best):
            best, kind = mount, after.split()[0]
    return kind


def _unescaped(text: str) -> str:
    r"""Return the path that mountinfo writes with `\040` for a space. Source: proc_pid_mountinfo(5)."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
