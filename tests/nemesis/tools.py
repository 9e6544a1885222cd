"""Third-party programs that a run needs, each obtained as an ordinary package; `ToolMissing` names what is missing."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from conformance import packages
from conformance.packages import ToolMissing
from fixtures.postgresql import ABSENT, find_program

CACHE = Path.home() / ".cache" / "bearlake"
FRANZ_GO = Path(__file__).parent / "franz_go_load"


def obtain_franz_go() -> Path:
    """Return the producer program that uses franz-go. Raises `ToolMissing`, `ObtainFailed`, `BuildFailed`."""
    return packages.obtain_go_program(FRANZ_GO)


def require_postgresql() -> None:
    """Raises `ToolMissing` without PostgreSQL's server programs, including `pg_basebackup`."""
    initdb = find_program("initdb")
    if initdb is None or not Path(initdb).resolve().with_name("pg_basebackup").exists():
        raise ToolMissing(ABSENT)


def find_faketime() -> str | None:
    """Return libfaketime's library: installed, or unpacked from Debian's package on first use; None if neither is possible."""
    unpacked = CACHE / "libfaketime"
    if not _library_in(Path("/")) and not _library_in(unpacked):
        with contextlib.suppress(OSError, subprocess.SubprocessError), tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["apt-get", "download", "libfaketime"], cwd=folder, check=True, capture_output=True, timeout=60
            )
            for package in Path(folder).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, unpacked], check=True, capture_output=True, timeout=60)
    return _library_in(Path("/")) or _library_in(unpacked)


def _library_in(root: Path) -> str | None:
    return next(map(str, root.glob("usr/lib/*/faketime/libfaketime.so.1")), None)


def can_mount() -> bool:
    """Return whether this process may mount a tmpfs, which can become full."""
    return os.geteuid() == 0 and shutil.which("mount") is not None
