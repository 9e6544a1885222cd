"""What a run needs of other people's programs, each obtained as an ordinary package; `ToolMissing` says what is not there."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from conformance import packages
from conformance.packages import ToolMissing
from fixtures.postgresql import ABSENT, find_program

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw"
VERSITYGW_VERSION = "v1.8.0"
"""Apache-2.0. Its posix store answers `If-None-Match: *` for an object that exists with 412, as S3 does (`test_nemesis_short.py`)."""
CACHE = Path.home() / ".cache" / "bearlake"
FRANZ_GO = Path(__file__).parent / "franz_go_load"


def obtain_s3() -> str:
    """The S3 server's program, built by Go's module proxy on first use (two minutes). Raises `ToolMissing`, `ObtainFailed`."""
    kept = CACHE / "bin" / f"versitygw-{VERSITYGW_VERSION}"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        built = packages.obtain_go_tool(VERSITYGW, VERSITYGW_VERSION)
        shutil.copy2(built, kept.with_suffix(".part"))
        kept.with_suffix(".part").replace(kept)
    return str(kept)


def obtain_franz_go() -> Path:
    """The producer program with franz-go. Raises `ToolMissing`, `ObtainFailed`, `BuildFailed`."""
    return packages.obtain_go_program(FRANZ_GO)


def require_postgresql() -> None:
    """Raises `ToolMissing` without PostgreSQL's server programs, `pg_basebackup` among them."""
    initdb = find_program("initdb")
    if initdb is None or not Path(initdb).resolve().with_name("pg_basebackup").exists():
        raise ToolMissing(ABSENT)


def find_faketime() -> str | None:
    """libfaketime's library: installed, or unpacked from Debian's package on first use; None where there is neither."""
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


def may_mount() -> bool:
    """Whether this process may mount a tmpfs, to make a disk full."""
    return os.geteuid() == 0 and shutil.which("mount") is not None
