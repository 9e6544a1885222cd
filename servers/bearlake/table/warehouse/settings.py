"""Limits of what other engines may do through the Iceberg REST catalog."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSettings:
    """The tables as other engines see them."""

    foreign_roots: tuple[str, ...] = ()
    """Folders outside of the object store in which tables that are no stream's may lie too, as URLs (`s3://other/folder`). The server reads
    and writes metadata files there with the settings of the object store. None by default: such tables lie under `lake/` in the object
    store."""
    update_count_max: int = 10_000
    """Updates and requirements of one commit. The server applies one after the other to a copy of the table's metadata, so the time grows
    with the square of their number: 10,000 take a few seconds."""
    file_count_max: int = 1_000
    """Files that one commit may add to a stream's table; the server reads the footer of each. Commits with more are refused."""
    footer_bytes_max: int = 8 * 1024 * 1024
    """Largest footer of such a file; files with larger footers are refused. Up to 8 footers are in memory for each commit."""
    footers_bytes_max: int = 64 * 1024 * 1024
    """Bytes of the footers of all files of one commit. 64 MiB take 8 to 15 s of CPU time, in which no other commit is checked. A row group
    takes about 120 bytes for each column. Commits with more are refused."""
    manifest_bytes_max: int = 64 * 1024 * 1024
    """Bytes of the manifest lists, and of the manifests by which snapshots differ from their parents, that the server reads to check one
    commit to a stream's table. Commits with more are refused, as for the other limits of manifests."""
    manifest_expanded_bytes_max: int = 128 * 1024 * 1024
    """Bytes of these files, uncompressed."""
    manifest_value_count_max: int = 5_000_000
    """Values in these files: fields, elements and entries. 5,000,000 take up to 500 MB of memory and 10 s. An entry of a table with 9
    columns has about 150."""
    metadata_bytes_max: int = 16 * 1024 * 1024
    """Largest metadata file of a table after a commit of another engine. Every commit writes the whole file, so columns, properties and
    snapshots that make it large would slow compaction down. Larger ones are refused."""
    metadata_value_count_max: int = 250_000
    """JSON values of such a file, and of the metadata file of a table that is no stream's: a snapshot has about 20. The server needs up to
    100 bytes of memory for each while it reads the file. Files with more are refused."""
    check_count_max: int = 1
    """Commits to the tables of streams that a server checks at the same time. Each may take the memory of the limits above; others wait."""
    check_wait_ms: int = 30_000
    """Longest such wait (ms); then the commit is refused with 503, and nothing was done."""
