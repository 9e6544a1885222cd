"""Class-data archives: Spark's 10,000 classes parsed and verified once, mapped into memory at every later start.

An archive belongs to one Java, one set of flags and one class path. Its folder is named by a digest of all three, so no JVM finds a
stale archive (and Java itself would ignore it). `archive.py` records archives.

Source: JEP 310 (application class-data sharing), JEP 350 (dynamic archives).
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from bearlake.compaction.spark.gateway import Command

BASE = "java.jsa"
"""File of Java's own classes."""
SPARK = "spark.jsa"
"""File of Spark's classes."""


def default_folder() -> Path:
    """`bearlake/spark` in the user's cache folder (XDG base directories)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bearlake" / "spark"


def place(command: Command, folder: str | None) -> Path:
    """The folder of the archive that fits the command, whether it exists or not."""
    digest = hashlib.sha256()
    for word in (str(command.java.program), command.java.version, *command.flags):
        digest.update(word.encode() + b"\0")
    for jar in command.class_path:
        status = jar.stat()
        digest.update(f"{jar}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return Path(folder or default_folder()) / digest.hexdigest()[:32]


def flags(command: Command, folder: str | None) -> Sequence[str]:
    """Flags that make a JVM start from the archive that fits it; none without such an archive."""
    found = place(command, folder)
    if not (found / SPARK).is_file():
        return ()
    archives = [path for path in (found / BASE, found / SPARK) if path.is_file()]
    return [f"-XX:SharedArchiveFile={':'.join(map(str, archives))}", "-Xlog:disable", "-Xlog:all=error:stderr"]
