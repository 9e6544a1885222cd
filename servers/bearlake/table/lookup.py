"""Which table is a stream's: its name, its location, its owner; and making it.

A table belongs to the stream whose id is in its properties. When the name is taken by another (an older incarnation whose table was
kept, a stream with a similar name, a table of somebody else), the stream's table is `<name>_<first 8 hex digits of its id>`. A table
that another engine renamed is found by its folder in SQL catalogs; a REST catalog cannot be asked so.
Everything in this file blocks.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from sqlalchemy.exc import IntegrityError

from bearlake.errors import Conflict, Unavailable
from bearlake.metadata.model import Stream
from bearlake.table import schema
from bearlake.table.catalog import ConditionalCatalog
from bearlake.table.io import Locations, Outside
from bearlake.table.marks import STREAM_ID_PROPERTY
from bearlake.table.naming import location_key, table_identifiers
from bearlake.table.settings import TableSettings

_CREATE_TRIES = 3
_DROP_TRIES = 10
_FIND_TRIES = 3


@dataclass(slots=True)
class Lookup:
    """Tables of one catalog by stream. Remembers where it found them; a remembered place is checked with every use."""

    catalog: Catalog
    locations: Locations
    settings: TableSettings
    _found: dict[str, tuple[str, str]] = field(default_factory=dict)

    def find(self, stream: Stream) -> Table | None:
        """The stream's table, freshly loaded; None when there is none: a SQL catalog is asked by folder, too.

        Raises:
            Conflict: its columns are not ours.
            Unavailable: it is renamed again and again.
        """
        known = self._found.get(str(stream.id))
        candidates = table_identifiers(stream)
        for identifier in [known, *candidates] if known in candidates else candidates:
            if identifier is not None and (table := self._load(identifier)) is not None and _is_owned(table, stream):
                self._found[str(stream.id)] = identifier
                _check_columns(table)
                return table
        self._found.pop(str(stream.id), None)
        return self._find_renamed(stream)

    def ensure(self, stream: Stream, has_predecessor: Callable[[], bool] = lambda: False) -> Table:
        """The stream's table, made when absent; see `Tables.ensure`.

        Raises:
            Conflict: both names are taken by others, or its columns are not ours.
        """
        for _ in range(_CREATE_TRIES):
            if (table := self.find(stream)) is not None:
                return table
            names: tuple[tuple[str, str], ...] = table_identifiers(stream)
            if not isinstance(self.catalog, ConditionalCatalog) and has_predecessor():
                names = names[1:]
            name = next((one for one in names if not self._belongs_to_others(one, stream)), None)
            if name is None:
                raise Conflict(f"stream {stream.name}: the tables {table_identifiers(stream)} belong to others")
            try:
                return self._create(stream, name)
            except TableAlreadyExistsError:  # by another worker, for this stream or another
                continue
        raise Conflict(f"stream {stream.name}: its table's name is taken again and again")

    def drop(self, stream: Stream) -> None:
        """Drop the stream's table from the catalog; absent: no effect. See `Tables.drop`.

        Raises:
            Unavailable: others commit to it again and again.
        """
        for _ in range(_DROP_TRIES):
            if (table := self.find(stream)) is None:
                return
            if not isinstance(self.catalog, ConditionalCatalog):
                self.catalog.drop_table(table.name())
            elif not self.catalog.drop_version(table):
                continue  # somebody committed to it, renamed it or dropped it
            self._found.pop(str(stream.id), None)
            return
        raise Unavailable(f"stream {stream.name}: its table changes again and again")

    def is_absent(self, stream: Stream) -> bool | None:
        """Whether the catalog has no table of the stream; the contract is that of `Tables.is_absent`."""
        if self.find(stream) is not None:
            return False
        return True if isinstance(self.catalog, ConditionalCatalog) else None

    def _find_renamed(self, stream: Stream) -> Table | None:
        """The stream's table under a name that somebody gave it: a second table in its folder would take the files of the first."""
        if not isinstance(self.catalog, ConditionalCatalog):
            return None
        for _ in range(_FIND_TRIES):
            identifiers = self.catalog.identifiers_under(location_key(stream))
            if not identifiers:
                return None
            for identifier in identifiers:
                table = self._load(identifier)
                if table is not None and _is_owned(table, stream):
                    _check_columns(table)
                    return table
        raise Unavailable(
            f"stream {stream.name}: tables {identifiers} lie in its table's folder, and none of them can be loaded as its own"
        )

    def _load(self, identifier: tuple[str, str]) -> Table | None:
        try:
            return self.catalog.load_table(identifier)
        except (NoSuchTableError, Outside):  # outside: somebody else's
            return None

    def _belongs_to_others(self, identifier: tuple[str, str], stream: Stream) -> bool:
        """Whether the name is taken, and not by this stream: another worker may have made its table since `find` looked."""
        try:
            return not _is_owned(self.catalog.load_table(identifier), stream)
        except NoSuchTableError:
            return False
        except Outside:
            return True

    def _create(self, stream: Stream, identifier: tuple[str, str]) -> Table:
        with suppress(NamespaceAlreadyExistsError, IntegrityError):  # made by another worker at the same moment
            self.catalog.create_namespace_if_not_exists(identifier[0])
        self.catalog.create_table(
            identifier,
            schema.iceberg_schema(),
            location=self.locations.location(location_key(stream)),
            partition_spec=UNPARTITIONED_PARTITION_SPEC,
            sort_order=schema.iceberg_sort_order(),
            properties=schema.table_properties(self.settings, str(stream.id)),
        )
        table = self.catalog.load_table(identifier)
        _check_columns(table)
        self._found[str(stream.id)] = identifier
        return table


def _is_owned(table: Table, stream: Stream) -> bool:
    return table.metadata.properties.get(STREAM_ID_PROPERTY) == str(stream.id)


def _check_columns(table: Table) -> None:
    """Our columns must be there under our ids; names may have changed, and others may have been added."""
    found = table.schema()
    if table.metadata.spec().fields:
        raise Conflict(f"table {'.'.join(table.name())} is partitioned: our data files are not")
    for ours in schema.iceberg_schema().fields:
        try:
            theirs = found.find_field(ours.field_id)
        except ValueError:
            raise Conflict(
                f"table {'.'.join(table.name())} has no column {ours.name} (field id {ours.field_id})"
            ) from None
        if theirs.field_type != ours.field_type:
            raise Conflict(
                f"table {'.'.join(table.name())}: column {theirs.name} is {theirs.field_type}, not {ours.field_type}"
            )
