"""The leaves of an Arrow schema in Parquet's order: their paths in the file and their field ids."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from bearlake.table.schema import ARROW_SCHEMA, METADATA_KEY


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
    """Return the paths of the typed columns that repeat: all but floating point, whose dictionary could mix up NaNs, and booleans."""
    return [
        leaf.path
        for leaf in leaves(list(columns)[len(ARROW_SCHEMA) :])
        if not pa.types.is_floating(leaf.type) and not pa.types.is_boolean(leaf.type)
    ]
