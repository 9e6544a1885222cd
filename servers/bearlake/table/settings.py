"""Settings of tables and their catalog.

By default, tables are in a SQLite catalog next to the embedded metadata store. A REST catalog's token or credential is read
from a file, not from a setting. PostgreSQL's password may be in the URL, which is masked wherever settings are shown.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """Settings of the tables: the catalog that lists them, how commits wait, what is kept, and how large a query may get."""

    catalog_url: str = ""
    """`sqlite:///path/to/catalog.db`, `postgresql://user:password@host/database` or `http(s)://host/path` (Iceberg REST). Empty: a
    SQLite file beside the embedded metadata store."""

    catalog_password_file: str = ""
    """File with the password of a PostgreSQL catalog, read anew for every new connection; it wins over one in the URL. Empty: none."""

    catalog_name: str = "bearlake"
    """Name of the catalog. SQL catalogs keep it with every table, so other engines must use the same name to see the tables."""

    catalog_warehouse: str = ""
    """Warehouse that a REST catalog is asked for. Tables lie in the object store under their own keys, whatever it says."""

    catalog_properties: tuple[str, ...] = ()
    """Further properties of the catalog as `name=value`, as PyIceberg names them."""

    catalog_credentials_file: str = ""
    """File with lines `name=value`: secret properties of the catalog such as `token` or `credential`. Empty: none."""

    location_url: str = ""
    """The object store's URL as other engines write it, when it differs from ours (`abfss://…` for `az://…`). Empty: the same."""

    thread_count: int = 4
    """Threads that talk to the catalog, since its libraries block. More let more streams commit at once."""

    pending_count_max: int = 256
    """Calls that run or wait for a thread; further callers wait for a place."""

    deadline_ms: int = 120_000
    """A whole call, with its retries."""

    close_deadline_ms: int = 10_000
    """How long closing waits for what the threads are doing."""

    catalog_deadline_ms: int = 20_000
    """One statement or request of the catalog, and the longest wait for a lock of a SQLite catalog."""

    file_deadline_ms: int = 60_000
    """One metadata file's read or write, with the object store's own retries."""

    commit_attempt_count_max: int = 20
    """Tries of one commit against other writers and failures. Each try is conditional, so more do no harm but take longer."""

    commit_unavailable_count_max: int = 3
    """Tries that may fail because the catalog or the object store did not answer. Then the caller waits, longer each time, without a
    thread; rivals are met more often than that (`commit_attempt_count_max`)."""

    commit_pause_max_ms: int = 1_000
    """Longest pause between two tries; drawn at random, so that rivals do not try in step."""

    snapshot_keep_ms: int = 3_600_000
    """Snapshots younger than this are kept for readers and time travel. More make every commit slower: each is in the metadata file."""

    snapshot_count_min: int = 10
    """The newest snapshots that are kept whatever their age."""

    snapshot_count_max: int = 500
    """Snapshots beyond this number are expired whatever their age, so that a busy table's commits stay below 100 ms."""

    metadata_versions_max: int = 10
    """Older metadata files that a table keeps. They let engines go on that hold one; each is as large as the list of snapshots."""

    metadata_grace_ms: int = 3_600_000
    """A metadata file that nothing names is deleted at this age, and costs a snapshot then (decision 96). If it is too short, commits under
    way are tried again, but nothing is lost."""

    manifests_merged_count_min: int = 50
    """Manifests that gather before a commit merges them. More make commits cheaper and planning of queries slower."""

    manifest_bytes_max: int = 1_048_576
    """Size up to which manifests are merged (some 5,000 data files). A merge rewrites that much at most."""

    metadata_cache_bytes_max: int = 33_554_432
    """Metadata files kept in memory, which never change: saves about six requests to the object store per commit."""

    metadata_names_cached_count_max: int = 200_000
    """Names in manifests that upkeep remembers (some 200 bytes each), since manifests never change: saves reading them in each round."""

    query_memory_bytes_max: int = 536_870_912
    """Memory of one `bearlake sql` query; beyond it, the engine writes temporary files."""

    query_thread_count: int = 2
    """Threads of one `bearlake sql` query."""

    query_row_count_max: int = 100_000
    """Rows that a query returns at most; the rest is cut off, and the result says so."""

    query_deadline_ms: int = 600_000
    """A whole query; it is interrupted then."""
