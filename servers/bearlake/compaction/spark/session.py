"""One JVM, its gateway and its SparkContext as one unit, which is started, runs jobs, and is either alive or not.

Blocking; used from threads of `runner.py`. PySpark allows one context per process, so there is one session at a time. Only Spark's core is
used: no SQL session, no DataFrame, no Arrow in the JVM.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from bearlake.compaction.spark import class_archive, kubernetes
from bearlake.compaction.spark.gateway import Command, Jvm, command, find_java
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.errors import Invalid, Unavailable

log = logging.getLogger(__name__)

_IMPORTS = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.resource.*",
    "scala.Tuple2",
)
_LEAN = {
    "spark.app.name": "bearlake-compaction",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.log.level": "WARN",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "bearlake.compaction.spark.daemon",
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Avoids a lookup of this machine's name. Remote executors must find the driver by Spark's own means or by `conf`."""
_EXECUTOR_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
_LOCAL_ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1"}


def jvm_command(settings: SparkSettings) -> Command:
    """Return the JVM's command line for these settings. Raises `Unsupported`."""
    return command(find_java(settings.java_home), settings.heap_bytes)


def properties(settings: SparkSettings, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return Spark's properties: ours, then those of the settings.

    Raises:
        Invalid: an item of `settings.conf` is not `key=value`, or a value for executor pods is missing.
    """
    found = {"spark.master": settings.master, **_LEAN, **(_LOCAL if _is_local(settings) else {})}
    if kubernetes.is_kubernetes(settings):
        found |= kubernetes.properties(settings, environ)
    for entry in settings.conf:
        key, separator, value = entry.partition("=")
        if not separator or not key.startswith("spark."):
            raise Invalid(f"Spark property {entry!r}: expected spark.…=value")
        found[key] = value
    return found


class Session:
    """A running JVM, with a context after `connect`."""

    def __init__(self, settings: SparkSettings, *, more_flags: Sequence[str] | None = None) -> None:
        """Start the JVM; `more_flags` replace those of a class-data archive.

        Raises:
            Invalid, Unsupported: the settings or the installation do not allow it.
            Unavailable: the JVM did not start in time.
        """
        self._properties = properties(settings, os.environ)
        self._settings = settings
        self._is_broken = False
        self._context: Any = None  # pyspark.SparkContext, whose types do not cover what we use
        self._gateway: Any = None  # py4j has no types
        start = jvm_command(settings)
        if more_flags is None:
            more_flags = class_archive.flags(start, settings.archive_folder) if settings.archive else ()
        self.has_archive = bool(more_flags)
        """Whether the JVM started from a class-data archive."""
        self._jvm = Jvm(
            start,
            {"spark.master": settings.master},
            deadline_ms=settings.start_deadline_ms,
            more_flags=more_flags,
            environment=_LOCAL_ENVIRONMENT if _is_local(settings) else {},
        )

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._jvm.pid

    @property
    def is_alive(self) -> bool:
        """Whether the JVM is running, and no job has found the JVM or its context gone."""
        return self._jvm.is_alive and not self._is_broken

    def connect(self) -> None:
        """Create the context and register with the cluster, if there is one.

        Raises:
            Unavailable: the JVM is dead, or Spark could not start.
        """
        from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
        from py4j.java_gateway import java_import
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext

        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # py4j logs a stack trace for every broken connection
        try:
            self._gateway = ClientServer(
                java_parameters=JavaParameters(port=self._jvm.port, auth_token=self._jvm.secret, auto_convert=True),
                python_parameters=PythonParameters(port=0, eager_load=False),
            )
            for name in _IMPORTS:
                java_import(self._gateway.jvm, name)
            conf = SparkConf(loadDefaults=False)
            conf.setAll(list(self._properties.items()))
            self._context = SparkContext(conf=conf, gateway=self._gateway, environment=dict(_EXECUTOR_ENVIRONMENT))
        except (Py4JError, OSError) as error:
            raise Unavailable(f"Spark did not start: {_first_line(error)}; {self._jvm.last_words}") from error
        self._context.pythonExec = self._settings.python or sys.executable

    def collect(self, group: str, function: Callable[[str], str], payloads: Sequence[str]) -> list[str]:
        """Apply `function` to each payload, in order, each as a separate task in the job group `group`.

        Raises:
            Invalid: the job failed, even after Spark's retries.
            Unavailable: the JVM or its context is gone.
        """
        from py4j.protocol import Py4JError, Py4JJavaError

        try:
            self._context.setJobGroup(group, f"{len(payloads)} work items", interruptOnCancel=True)
            answers: list[str] = self._context.parallelize(payloads, len(payloads)).map(function).collect()
        except Py4JJavaError as error:
            if self.is_alive and not self._is_stopped():
                raise Invalid(f"Spark job failed: {_cause(error.java_exception)}") from error
            self._is_broken = True
            raise Unavailable(f"Spark's context ended during a job: {_cause(error.java_exception)}") from error
        except (
            Py4JError,
            OSError,
            EOFError,
            AttributeError,  # the gateway was closed in the meantime
        ) as error:
            self._is_broken = True  # even while the kernel is still ending the process
            raise Unavailable(f"Spark's JVM ended during a job: {_first_line(error)}") from error
        return answers

    def cancel(self, group: str) -> None:
        """Stop the group's job, even if it has not begun. No-op for a dead JVM."""
        from py4j.protocol import Py4JError

        try:
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(group)
        except (Py4JError, OSError, AttributeError) as error:
            log.warning("cannot cancel a Spark job", extra={"group": group, "error": _first_line(error)})

    def kill(self) -> None:
        """Kill the JVM; waiting callers get `Unavailable`."""
        self._jvm.kill()

    def close(self, deadline_ms: int | None = None) -> None:
        """Stop the context and the JVM, by force at the deadline (default: from the settings). Another session may start afterwards."""
        from py4j.protocol import Py4JError
        from pyspark import SparkContext

        if self._context is not None:
            with suppress(Py4JError, OSError, AttributeError):  # a dead context needs no stop
                self._context._jsc.stop()
            self._context._jsc = None
            self._context.stop()
        if self._gateway is not None:
            self._gateway.shutdown()
        if not self._jvm.close(deadline_ms or self._settings.stop_deadline_ms):
            log.warning("Spark's JVM did not end in time and was killed", extra={"pid": self.pid})
        self._context = self._gateway = None
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None

    def _is_stopped(self) -> bool:
        from py4j.protocol import Py4JError

        try:
            return bool(self._context._jsc.sc().isStopped())
        except (Py4JError, OSError, AttributeError):
            return True


def _is_local(settings: SparkSettings) -> bool:
    return settings.master.startswith("local")


def _first_line(error: object) -> str:
    """Return the first line: Java's exceptions include their whole stack."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _cause(error: object) -> str:
    """Return the cause of a failure in an executor: the last line of its Python traceback, if any, else Java's first line."""
    lines = [line for line in str(error).partition("\n\tat ")[0].splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
