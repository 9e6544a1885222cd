"""Names of a stream's table: its identifiers in the catalog and its folder in the object store. Pure; needs no table libraries."""

import re
from typing import Final

from bearlake.metadata.model import Stream

NAMESPACE_CONFIG: Final = "table.namespace"
NAME_CONFIG: Final = "table.name"
NAMESPACE_DEFAULT: Final = "streams"


def table_identifiers(stream: Stream) -> tuple[tuple[str, str], tuple[str, str]]:
    """(namespace, name) that the stream's table has, and the one it has when the first is taken by another."""
    namespace, name = _names(stream)
    return (namespace, name), (namespace, f"{name}_{stream.id.hex[:8]}")


def location_key(stream: Stream) -> str:
    """Key prefix of the table's folder, without a slash at the end. Every incarnation of a stream has its own.

    It stays what it was when configs change: ask the table (`TableState.location_key`) where there is one.
    """
    namespace, name = _names(stream)
    return f"table/{_part(namespace)}/{_part(name)}-{stream.id.hex[:8]}"


def _names(stream: Stream) -> tuple[str, str]:
    namespace = stream.configs.get(NAMESPACE_CONFIG) or NAMESPACE_DEFAULT
    return namespace, stream.configs.get(NAME_CONFIG) or stream.name.replace(".", "_")


def _part(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)
