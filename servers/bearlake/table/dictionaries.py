"""Chooses the columns of texts that a row group is read with as dictionaries: texts as indices, and each different text once.

The encoder of values takes texts by index (`kernel.TypedSource`), so Arrow need not copy the text of each row out of the dictionary. That
is worth it only if texts repeat and all pages have indices: Arrow looks up each text of other pages in a hash table. A footer does not tell
either, so the headers of the pages are read (4 µs each).

Source: Apache Parquet format, "Dictionary Encoding".
"""

from collections.abc import Collection
from typing import Final

import pyarrow.parquet as pq

from bearlake.table.file_end import start_of
from bearlake.table.footer import OWN_LEAF_COUNT, Footer
from bearlake.table.page_headers import DICTIONARY_PAGE, RLE_DICTIONARY, UnknownPages, pages
from bearlake.table.sparse import SparseFile

REPEATS_MIN: Final = 6
"""Values per different text from which a column is read as a dictionary."""


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
    entry_count = -1
    try:
        file.seek(start_of(column))
        for page in pages(file.read(column.total_compressed_size), column.num_values):
            if page.type == DICTIONARY_PAGE:
                entry_count = page.value_count
            elif page.encoding != RLE_DICTIONARY:
                return False
    except (UnknownPages, OSError):
        return False  # Arrow decodes the column, or finds what is wrong
    return 0 <= entry_count * REPEATS_MIN <= int(column.num_values)
