"""The part of a data file's footer that describes its typed columns: what gives back the values and keys that the file leaves out.

    bearlake.typed   JSON: {"version": 1, "book_version": …, "book": …, "crcs": [[…, …] or null, …],
                     "sizes": [bytes of a row group's rows in memory, …],
                     "schemas": {id: [type, text, references, is framed, levels_max, columns_max]}}
                     version 2, of files with columns of keys, has also "key_schemas", "key_crcs" as those of values, and
                     "key_bytes": [bytes of a row group's keys, …]

Source: decisions 213 and 248.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bearlake.errors import Corrupt, Unsupported
from bearlake.table.column_book import decode_book
from bearlake.table.schema import KEY, KEY_SCHEMA_ID
from bearlake.table.value_plan import FileColumns, WriterSchema, encode_schemas

FOOTER_NAME: Final = b"bearlake.typed"
FORMAT_VERSION: Final = 1
KEYS_VERSION: Final = 2
"""Version of the footer's text of files with columns of keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedFooter:
    """What the footer of a data file says about its typed columns.

    By row group: `crcs` (None: it has all its values), `sizes` (the bytes of its rows in memory with all values, many times those of
    Parquet's pages), and, if there are columns of keys, `key_crcs` (None: it has all its keys) and `key_bytes`.
    """

    columns: FileColumns
    crcs: Sequence[tuple[int, int] | None]
    sizes: Sequence[int]
    key_crcs: Sequence[tuple[int, int] | None] = ()
    key_bytes: Sequence[int] = ()

    def is_complete(self, group: int) -> bool:
        """Return whether the row group has all its values and keys."""
        return self.has_values(group) and self.has_keys(group)

    def has_values(self, group: int) -> bool:
        """Return whether the row group has all its values."""
        return group < len(self.crcs) and self.crcs[group] is None

    def has_keys(self, group: int) -> bool:
        """Return whether the row group has all its keys."""
        return not self.key_crcs or self.key_crcs[group] is None

    def check_groups(self, count: int) -> None:
        """Raise `Corrupt` unless the file's `count` row groups are those that are described."""
        counts = {len(self.sizes), len(self.crcs)}
        if self.columns.book.key is not None:
            counts |= {len(self.key_crcs), len(self.key_bytes)}
        if counts != {count}:
            raise Corrupt("data file: its footer describes other row groups than it has")

    @property
    def typed_columns(self) -> list[str]:
        """The typed columns of values and keys."""
        book = self.columns.book
        return [column.name for column in (*book.columns, *(() if book.key is None else book.key.columns))]

    @property
    def key_columns(self) -> list[str]:
        """The columns that give back keys."""
        key = self.columns.book.key
        return [] if key is None else [KEY, KEY_SCHEMA_ID, *(column.name for column in key.columns)]


def footer_text(footer: TypedFooter) -> dict[str, str]:
    """Return the key-value metadata of a file; the schemas are those of the values and keys that were left out."""
    columns = footer.columns
    book = columns.book
    fields: dict[str, object] = {
        "version": FORMAT_VERSION if book.key is None else KEYS_VERSION,
        "book_version": book.version,
        "book": book.encoded(),
        "schemas": encode_schemas(columns.schemas),
        "crcs": _encode_crcs(footer.crcs),
        "sizes": list(footer.sizes),
    }
    if book.key is not None:
        fields |= {
            "key_schemas": encode_schemas(columns.key_schemas),
            "key_crcs": _encode_crcs(footer.key_crcs),
            "key_bytes": list(footer.key_bytes),
        }
    return {FOOTER_NAME.decode(): json.dumps(fields, separators=(",", ":"), ensure_ascii=False)}


def decode_footer(text: bytes) -> TypedFooter:
    """Decode the footer's text.

    Raises:
        Corrupt: not such a text.
        Unsupported: a newer format.
    """
    try:
        fields = json.loads(text)
        if fields["version"] not in (FORMAT_VERSION, KEYS_VERSION):
            raise Unsupported(
                f"data file: typed columns have format {fields['version']}; expected at most {KEYS_VERSION}"
            )
        columns = FileColumns(
            book=decode_book(fields["book"], int(fields["book_version"])),
            schemas=_decode_schemas(fields["schemas"]),
            key_schemas=_decode_schemas(fields.get("key_schemas", {})),
        )
        if (columns.book.key is not None) != (fields["version"] == KEYS_VERSION):
            raise ValueError("the columns of keys do not belong to the version")
        is_keyed = columns.book.key is not None
        return TypedFooter(
            columns=columns,
            crcs=_decode_crcs(fields["crcs"]),
            sizes=[int(size) for size in fields["sizes"]],
            key_crcs=_decode_crcs(fields["key_crcs"]) if is_keyed else (),
            key_bytes=[int(size) for size in fields["key_bytes"]] if is_keyed else (),
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise Corrupt(f"data file: its typed columns: {error!r}") from error


def _decode_schemas(fields: Any) -> dict[int, WriterSchema]:  # Any: what `json.loads` returns
    return {
        int(id_): WriterSchema(str(type_), str(text), tuple(map(str, references)), bool(is_framed), *map(int, limits))
        for id_, (type_, text, references, is_framed, *limits) in fields.items()
    }


def _decode_crcs(fields: Any) -> list[tuple[int, int] | None]:  # Any: what `json.loads` returns
    return [None if crc is None else (int(crc[0]), int(crc[1])) for crc in fields]


def _encode_crcs(crcs: Sequence[tuple[int, int] | None]) -> list[list[int] | None]:
    return [None if crc is None else list(crc) for crc in crcs]
