"""Parts of lists: which versions a list has, and which of its entries a page shows."""

from collections.abc import Sequence
from typing import TypeVar

from bearlake.metadata.schemas import Deletion, VersionRow

T = TypeVar("T")

PAGE_COUNT = 1_000
"""Rows of one read of the store."""

LOADED_COUNT = 16
"""Schemas of one read of the store, each up to `schema_bytes_max` large."""


def is_listed(row: VersionRow, deletion: Deletion) -> bool:
    """Return whether a list of versions with this `deletion` has the version."""
    return deletion is Deletion.ALL or row.is_deleted is (deletion is Deletion.DELETED)


def bounded(limit: int, limit_max: int) -> int:
    """Return the length of a page; a limit below 0 asks for the longest."""
    return limit_max if limit < 0 else min(limit, limit_max)


def sliced(found: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """Return the page that begins at `offset`; a limit below 0 asks for all."""
    return found[offset:] if limit < 0 else found[offset : offset + limit]
