"""What the mappings of all formats share: a node that was added, and as many levels as fit into the limit of columns."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from bearlake.table.typed.model import TypedColumns, TypedField


class TooWide(Exception):
    """There are more columns than allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A node that was added, and its column."""

    index: int
    type: str
    arrow: pa.DataType
    is_nullable: bool
    children: tuple[TypedField, ...] = ()
    is_json: bool = False
    """As `TypedField.is_json`."""


def most_levels(mapped: Callable[[int], TypedColumns], levels_max: int) -> TypedColumns | None:
    """Return the columns with the most levels that fit, None if not even one level does.

    `mapped` returns the columns with at most so many levels, and raises `TooWide`.
    """
    columns = _or_none(mapped, levels_max)
    if columns is not None:
        return columns
    enough, levels = 0, levels_max
    while levels - enough > 1:  # fewer levels never have more columns
        middle = (enough + levels) // 2
        found = _or_none(mapped, middle)
        if found is None:
            levels = middle
        else:
            columns, enough = found, middle
    return columns


def _or_none(mapped: Callable[[int], TypedColumns], levels: int) -> TypedColumns | None:
    try:
        return mapped(levels)
    except TooWide:
        return None
