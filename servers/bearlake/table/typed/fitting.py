"""What the mappings of all formats share: a node that was added, and as many levels as fit into the limit of columns."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from bearlake.table.typed.model import SchemaError, TypedColumns, TypedField


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


def most_levels(mapped: Callable[[int], TypedColumns], levels_max: int, columns_max: int) -> TypedColumns:
    """Return the columns of a schema with the most levels that fit.

    `mapped` returns the columns with at most so many levels, and raises `TooWide` if they are more than `columns_max`.

    Raises:
        SchemaError: not even the columns of one level fit, or the schema is nested too deeply to be walked through.
    """
    try:
        columns = _most_levels(mapped, levels_max)
    except RecursionError as error:
        raise SchemaError("the schema is nested too deeply") from error
    if columns is None:
        raise SchemaError(f"the schema has more than {columns_max} columns at its top level")
    return columns


def _most_levels(mapped: Callable[[int], TypedColumns], levels_max: int) -> TypedColumns | None:
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
