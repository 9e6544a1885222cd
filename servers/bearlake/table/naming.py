"""Names of a stream's table: its identifiers in the catalog and its folder in the object store. Pure; needs no table libraries."""

import re
from typing import Final

from bearlake.metadata.model import Stream

NAMESPACE_CONFIG: Final = "table.namespace"
NAME_CONFIG: Final = "table.name"
NAMESPACE_DEFAULT: Final = "streams"
_CUT_LENGTH: Final = 246
"""Characters of a name before `-` or `_` and 8 digits of the stream's id: parts of object keys and SQL catalogs' names have at most 255."""


def table_identifiers(stream: Stream) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the table's (namespace, name), and the alternative if another table has the first."""
    namespace, name = _names(stream)
    return (namespace, name), (namespace, f"{name[:_CUT_LENGTH]}_{stream.id.hex[:8]}")


def location_key(stream: Stream) -> str:
    """Return the key prefix of the table's folder, without a trailing slash. Every incarnation of a stream has its own.

    The prefix of an existing table does not follow config changes: ask the table (`TableState.location_key`) if there is one.
    """
    namespace, name = _names(stream)
    return f"table/{_part(namespace)}/{_part(name)[:_CUT_LENGTH]}-{stream.id.hex[:8]}"


def is_own_folder(key: str, stream: Stream) -> bool:
    """Return whether `key` is a folder of this incarnation's table, under its name of today or an earlier one."""
    return re.fullmatch(rf"table/[A-Za-z0-9_-]+/[A-Za-z0-9_-]+-{stream.id.hex[:8]}", key) is not None


def stream_suffix(key: str) -> str | None:
    """Return the first 8 digits of the id of the stream whose table may lie in the folder `key`; None: no stream's table lies there."""
    found = re.fullmatch(r"table/[^/]+/[^/]+-([0-9a-f]{8})", key)
    return None if found is None else found[1]


def _names(stream: Stream) -> tuple[str, str]:
    namespace = stream.configs.get(NAMESPACE_CONFIG) or NAMESPACE_DEFAULT
    return namespace, stream.configs.get(NAME_CONFIG) or stream.name.replace(".", "_")


def _part(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)
