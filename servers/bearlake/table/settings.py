"""Settings of tables and their catalog.

By default, tables are in a SQLite catalog next to the embedded metadata store. A REST catalog's token or credential is read
from a file, not from a setting. PostgreSQL's password may be in the URL, which is masked wherever settings are shown.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """The tables: the catalog, how commits wait, what is kept, and how large a query may be."""

    catalog_url: str = ""
    """`sqlite:///path/to/catalog.db`, `postgresql://user:password@host/database` or `http(s)://host/path` (Iceberg REST). Empty: a SQLite
    file next to the embedded metadata store. A PostgreSQL URL may name several hosts: the primary among them is used."""

    catalog_password_file: str = ""
    """File with the password of a PostgreSQL catalog; overrides a password in the URL, and is read for every new connection. Empty:
    none."""

    catalog_name: str = "bearlake"
    """Name of the catalog. SQL catalogs store it with every table, so other engines must use the same name to see the tables."""

    catalog_warehouse: str = ""
    """Warehouse to request from a REST catalog. It does not affect where tables lie: in the object store, under their own keys."""

    catalog_properties: tuple[str, ...] = ()
    """Additional properties of the catalog as `name=value`, with PyIceberg's names."""

    catalog_credentials_file: str = ""
    """File with lines `name=value`: secret properties of the catalog such as `token` or `credential`. Empty: none."""

    location_url: str = ""
    """The URL of the object store as other engines write it, if it differs from `object_store.url` (`abfss://…` for `az://…`). Empty: the
    same."""

    thread_count: int = 4
    """Threads that call the catalog, since its libraries block. With more threads, more streams commit at once. Tables that did not answer
    take at most half of them."""

    pending_count_max: int = 256
    """Calls that run or wait for a thread; further callers wait."""

    deadline_ms: int = 120_000
    """Longest time of a call with its retries."""

    close_deadline_ms: int = 10_000
    """Longest wait for running threads when the tables are closed."""

    catalog_deadline_ms: int = 20_000
    """Longest time of one statement or request to the catalog, and longest wait for a lock of a SQLite catalog. Of several hosts in the
    URL, each has its part of it."""

    catalog_answer_bytes_max: int = 67_108_864
    """Largest answer of a REST catalog. The metadata of a table with 500 snapshots has about 1 MB."""

    file_deadline_ms: int = 60_000
    """Longest read or write of one metadata file, with the retries of the object store."""

    commit_attempt_count_max: int = 20
    """Attempts of one commit against concurrent writers and failures. Each attempt is conditional, so more attempts do no harm but take
    longer."""

    commit_unavailable_count_max: int = 3
    """Attempts that may fail because the catalog or the object store did not answer. After that the caller waits, longer each time, without
    a thread. Conflicts with concurrent writers are more frequent (`commit_attempt_count_max`)."""

    commit_pause_max_ms: int = 1_000
    """Longest pause between two attempts; drawn at random, so that concurrent writers do not retry in step."""

    snapshot_keep_ms: int = 3_600_000
    """Snapshots are kept this long after their replacement, for readers and time travel. More snapshots make every commit slower, because
    the metadata file lists all of them."""

    snapshot_count_min: int = 10
    """Newest snapshots that are kept regardless of their age."""

    snapshot_count_max: int = 500
    """Snapshots beyond this number expire regardless of their age, so that commits to a busy table stay below 100 ms."""

    metadata_versions_max: int = 10
    """Older metadata files that a table keeps, so that engines that use one of them can continue. Each is as large as the list of
    snapshots."""

    metadata_grace_ms: int = 3_600_000
    """Age at which an unreferenced metadata file is deleted. The deletion adds a snapshot (decision 96). If the age is too short,
    concurrent commits are retried, but nothing is lost."""

    manifests_merged_count_min: int = 50
    """Number of manifests at which a commit merges them. More manifests make commits cheaper and query planning slower."""

    manifest_bytes_max: int = 1_048_576
    """Size up to which manifests are merged (about 5,000 data files); also the most that a merge rewrites."""

    metadata_cache_bytes_max: int = 33_554_432
    """Bytes of immutable metadata files cached in memory. Saves about six requests to the object store per commit."""

    metadata_parsed_bytes_max: int = 4_194_304
    """Bytes of the metadata files of streams' tables that are kept parsed, the newest version of each table. They take about seven times as
    much memory. Saves 2 ms of CPU time for each 100 snapshots of a table, with each load and each commit."""

    metadata_names_cached_count_max: int = 200_000
    """Names in manifests that upkeep caches (about 200 bytes each). Manifests are immutable, so caching saves reading them in each
    round."""

    query_memory_bytes_max: int = 536_870_912
    """Memory of one `bearlake sql` query; beyond it, the engine writes temporary files."""

    query_temporary_files: bool = True
    """Whether the engine of `bearlake sql` writes temporary files beyond that memory; otherwise such a query fails."""

    query_thread_count: int = 2
    """Threads of one `bearlake sql` query."""

    query_row_count_max: int = 100_000
    """Rows that a query returns at most; further rows are omitted, and the result says so."""

    query_deadline_ms: int = 600_000
    """Longest time of a query; then it is interrupted."""
