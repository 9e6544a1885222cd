"""The leaves of an Arrow schema in Parquet's order: their paths in the file and their field ids."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from bearlake.table.schema import ARROW_SCHEMA, METADATA_KEY

INTEGER_DIGITS_MAX: Final = 18
"""Digits of the longest decimal that Parquet stores as an integer. Source: Apache Iceberg table spec, "Parquet", data type mappings."""


class Leaf(NamedTuple):
    """A Parquet column: its path (`_headers.list.element.key`), field id and type."""

    path: str
    field_id: int
    type: pa.DataType


def leaves(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[Leaf]:
    """Yield the leaves of the fields, which have field ids, in order."""
    for field in fields:
        yield from _leaves_of(field, f"{prefix}{field.name}")


def _leaves_of(field: pa.Field, path: str) -> Iterator[Leaf]:
    found = field.type
    if pa.types.is_struct(found):
        yield from leaves(found, f"{path}.")
    elif pa.types.is_map(found):
        yield from _leaves_of(found.key_field, f"{path}.key_value.key")
        yield from _leaves_of(found.item_field, f"{path}.key_value.value")
    elif pa.types.is_list(found):
        yield from _leaves_of(found.value_field, f"{path}.list.element")
    else:
        yield Leaf(path, int(field.metadata[METADATA_KEY]), found)


def dictionary_paths(columns: pa.Schema) -> list[str]:
    """Return the paths of the typed columns that may repeat: texts. Dictionaries of other types make files larger (`bench/micro`)."""
    return [leaf.path for leaf in _typed(columns) if pa.types.is_string(leaf.type)]


def delta_paths(columns: pa.Schema) -> list[str]:
    """Return the paths of the typed columns of integers, dates, times and short decimals: small differences take few bits."""
    return [leaf.path for leaf in _typed(columns) if _is_integral(leaf.type)]


def _typed(columns: pa.Schema) -> Iterator[Leaf]:
    return leaves(list(columns)[len(ARROW_SCHEMA) :])


def _is_integral(found: pa.DataType) -> bool:
    """Return whether Parquet stores the type as an integer of 32 or 64 bits."""
    if pa.types.is_decimal(found):
        return bool(found.precision <= INTEGER_DIGITS_MAX)
    return bool(pa.types.is_integer(found) or pa.types.is_timestamp(found) or pa.types.is_date(found))
