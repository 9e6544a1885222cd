"""Limits of what other engines may do through the Iceberg REST catalog."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehouseSettings:
    """The tables as other engines see them."""

    foreign_roots: tuple[str, ...] = ()
    """Folders outside of the object store in which tables that are no stream's may lie too, as URLs (`s3://other/folder`). The server reads
    and writes metadata files there with the settings of the object store. None by default: such tables lie under `lake/` in the object
    store."""
    file_count_max: int = 1_000
    """Files that one commit may add to a stream's table; the server reads the footer of each. Commits with more are refused."""
    footer_bytes_max: int = 8 * 1024 * 1024
    """Largest footer of such a file; files with larger footers are refused. Up to 8 footers are in memory for each commit."""
    manifest_bytes_max: int = 64 * 1024 * 1024
    """Bytes of manifests by which a snapshot of a stream's table may differ from its parent; the server reads them. Other snapshots are
    refused."""
