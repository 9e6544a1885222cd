"""Class-data archives: Spark's 10,000 classes, parsed and verified once and mapped into memory at every later start.

An archive fits one Java, one set of flags and one class path. A digest of all three names its folder, so a JVM never finds a stale
archive (Java itself would ignore it, too). `archive.py` records archives.

Source: JEP 310 (application class-data sharing), JEP 350 (dynamic archives).
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from bearlake.compaction.spark.gateway import Command

BASE = "java.jsa"
"""Archive file of Java's own classes."""
SPARK = "spark.jsa"
"""Archive file of Spark's classes."""


def default_folder() -> Path:
    """`bearlake/spark` in the user's cache folder (XDG base directories)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bearlake" / "spark"


def place(command: Command, folder: str | None) -> Path:
    """Return the folder of the archive for the command, whether or not it exists."""
    digest = hashlib.sha256()
    for argument in (str(command.java.program), command.java.version, *command.flags):
        digest.update(argument.encode() + b"\0")
    for jar in command.class_path:
        status = jar.stat()
        digest.update(f"{jar}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return Path(folder or default_folder()) / digest.hexdigest()[:32]


def flags(command: Command, folder: str | None) -> Sequence[str]:
    """Return the flags that make a JVM use the archive for the command; empty without such an archive."""
    found = place(command, folder)
    if not (found / SPARK).is_file():
        return ()
    archives = [path for path in (found / BASE, found / SPARK) if path.is_file()]
    return [f"-XX:SharedArchiveFile={':'.join(map(str, archives))}", "-Xlog:disable", "-Xlog:all=error:stderr"]
