"""Chooses the columns of texts that a row group is read with as dictionaries: texts as indices, and each different text once.

The encoder of values takes texts by index (`kernel.TypedSource`), so Arrow need not copy the text of each row out of the dictionary. That
is worth it only if texts repeat and all pages have indices: Arrow looks up each text of other pages in a hash table. The first page tells
both: it has the number of different texts, and a writer that gives up a dictionary does so when the dictionary has `PAGE_BYTES_MAX`.

Source: Apache Parquet format, "Dictionary Encoding".
"""

from collections.abc import Collection
from typing import Final

import pyarrow.parquet as pq

from bearlake.table.footer import OWN_LEAF_COUNT, Footer, start_of
from bearlake.table.page_headers import DICTIONARY_PAGE, UnknownPages, pages
from bearlake.table.sparse import SparseFile

REPEATS_MIN: Final = 2
"""Values per different text from which a column is read as a dictionary."""
PAGE_BYTES_MAX: Final = 1024 * 1024
"""Size of a dictionary from which Arrow's writer writes plain texts. Source: Arrow, `parquet::WriterProperties`."""


def dictionary_columns(file: SparseFile, footer: Footer, group: int, names: Collection[str]) -> list[str]:
    """Return the paths of the Parquet columns in the typed columns `names` to read as dictionaries. `file` has their bytes."""
    row_group = footer.metadata.row_group(group)
    columns = (row_group.column(at) for at in range(OWN_LEAF_COUNT, row_group.num_columns))
    wanted = frozenset(names)
    return [
        column.path_in_schema
        for column in columns
        if column.path_in_schema.partition(".")[0] in wanted and _repeats(file, column)
    ]


def _repeats(file: SparseFile, column: pq.ColumnChunkMetaData) -> bool:
    """Return whether the column has texts, all of them as indices, and `REPEATS_MIN` times as many as different ones."""
    if column.physical_type != "BYTE_ARRAY" or not column.has_dictionary_page:
        return False
    try:
        file.seek(start_of(column))
        page = next(pages(file.read(column.total_compressed_size), column.num_values), None)
    except (UnknownPages, OSError):
        return False  # Arrow decodes the column, or finds what is wrong
    if page is None or page.type != DICTIONARY_PAGE or page.size >= PAGE_BYTES_MAX:
        return False
    return 0 <= page.value_count * REPEATS_MIN <= column.num_values
