"""Names of a stream's table: its identifiers in the catalog and its folder in the object store. Pure; needs no table libraries."""

import re
from dataclasses import replace
from typing import Final
from uuid import uuid5

from bearlake.metadata.model import Stream

NAMESPACE_CONFIG: Final = "table.namespace"
NAME_CONFIG: Final = "table.name"
NAMESPACE_DEFAULT: Final = "streams"
CURRENT_SUFFIX: Final = "_current"
CURRENT_PROPERTY: Final = "bearlake.current_of"
"""Property of a current table: the UUID of the stream whose table it is. Also marks, among its configs, the stream derived for it."""
BUCKETS_CONFIG: Final = "table.current.buckets"
BUCKETS_DEFAULT: Final = "16"
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


def current_stream(stream: Stream, *, is_enabled: bool) -> Stream:
    """Return the stream derived for the current table of `stream`; `is_enabled`: whether there should be one.

    The code that finds, creates, expires, fences and drops tables knows a table by its stream. The derived stream exists nowhere else: its
    id comes from the real one, and its number is negative. So a current table has its own folder, permit of creation, and owner.
    """
    namespace, name = _names(stream)
    return replace(
        stream,
        id=uuid5(stream.id, CURRENT_SUFFIX),
        number=-stream.number,
        name=f"{stream.name}{CURRENT_SUFFIX}",
        configs={
            NAMESPACE_CONFIG: namespace,
            NAME_CONFIG: f"{name[: _CUT_LENGTH - len(CURRENT_SUFFIX)]}{CURRENT_SUFFIX}",
            BUCKETS_CONFIG: stream.configs.get(BUCKETS_CONFIG, BUCKETS_DEFAULT),
            CURRENT_PROPERTY: str(stream.id),
            "table.enable": str(is_enabled).lower(),
            "table.on_delete": stream.configs.get("table.on_delete", "keep"),
        },
    )


def is_current(stream: Stream) -> bool:
    """Return whether this is a stream derived for a current table."""
    return CURRENT_PROPERTY in stream.configs


def _names(stream: Stream) -> tuple[str, str]:
    namespace = stream.configs.get(NAMESPACE_CONFIG) or NAMESPACE_DEFAULT
    return namespace, stream.configs.get(NAME_CONFIG) or stream.name.replace(".", "_")


def _part(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)
