"""Finds and creates a stream's table: its name, location and owner.

A table belongs to the stream whose id is in its properties. If the name is already used (by the kept table of an older incarnation, a
stream with a similar name, or a foreign table), the stream's table is `<name>_<first 8 hex digits of its id>`. In SQL catalogs, a table
renamed by another engine is found by its folder; a REST catalog does not support this query. All functions block.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from sqlalchemy.exc import IntegrityError

from bearlake.errors import Conflict, Unavailable
from bearlake.metadata.model import Stream
from bearlake.table import schema
from bearlake.table.applied_tasks import STREAM_ID_PROPERTY
from bearlake.table.catalog import ConditionalCatalog
from bearlake.table.creation import Creation, CreationLost
from bearlake.table.io import Locations, Outside
from bearlake.table.layouts import bucket_count, layout_of
from bearlake.table.naming import CURRENT_PROPERTY, is_current, is_own_folder, location_key, table_identifiers
from bearlake.table.settings import TableSettings

_CREATE_TRIES = 10
_DROP_TRIES = 10
_FIND_TRIES = 3


@dataclass(slots=True)
class Lookup:
    """The tables of one catalog by stream. Caches their names; each use verifies the cached name."""

    catalog: Catalog
    locations: Locations
    settings: TableSettings
    _found: dict[str, tuple[str, str]] = field(default_factory=dict)

    def find(self, stream: Stream) -> Table | None:
        """Return the stream's table, freshly loaded, or None. A SQL catalog is also searched by folder.

        Raises:
            Conflict: its columns are not ours, or it lies in a folder that is not its own.
            Unavailable: it is being renamed repeatedly.
        """
        known = self._found.get(str(stream.id))
        candidates = table_identifiers(stream)
        for identifier in [known, *candidates] if known in candidates else candidates:
            if identifier is not None and (table := self._load(identifier)) is not None and _is_owned(table, stream):
                self._found[str(stream.id)] = identifier
                self._check(table, stream)
                return table
        self._found.pop(str(stream.id), None)
        return self._find_renamed(stream)

    def ensure(
        self,
        stream: Stream,
        has_predecessor: Callable[[], bool] = lambda: False,
        check: Callable[[], None] = lambda: None,
    ) -> Table:
        """Return the stream's table; create it if absent. See `Tables.ensure`.

        Raises:
            Conflict: both names are taken by others, or its columns are not ours, or other workers were first on every attempt.
        """
        for _ in range(_CREATE_TRIES):
            if (table := self.find(stream)) is not None:
                return table
            try:
                self._create(stream, has_predecessor, check)
            except (TableAlreadyExistsError, CreationLost):  # another worker was first, for this stream or another
                continue
        if (table := self.find(stream)) is not None:
            return table
        raise Conflict(f"stream {stream.name}: too many concurrent creations under its table's name")

    def drop(self, stream: Stream) -> None:
        """Drop the stream's table from the catalog; no-op if absent. See `Tables.drop`.

        Raises:
            Unavailable: concurrent commits on every attempt.
        """
        self._fence_creations(stream)
        for _ in range(_DROP_TRIES):
            if (table := self.find(stream)) is None:
                return
            if not isinstance(self.catalog, ConditionalCatalog):
                self.catalog.drop_table(table.name())
            elif not self.catalog.drop_version(table):
                continue  # the table was changed, renamed or dropped in the meantime
            self._found.pop(str(stream.id), None)
            return
        raise Unavailable(f"stream {stream.name}: too many concurrent changes to its table")

    def is_absent(self, stream: Stream) -> bool | None:
        """Return whether the catalog has no table of the stream; see `Tables.is_absent`."""
        self._fence_creations(stream)
        if self.find(stream) is not None:
            return False
        return True if isinstance(self.catalog, ConditionalCatalog) else None

    def _fence_creations(self, stream: Stream) -> None:
        if isinstance(self.catalog, ConditionalCatalog):
            self.catalog.creations.fence(stream.id)

    def _find_renamed(self, stream: Stream) -> Table | None:
        """Return the stream's table under a new name, if it was renamed. A second table in its folder would share its files."""
        if not isinstance(self.catalog, ConditionalCatalog):
            return None
        for _ in range(_FIND_TRIES):
            identifiers = self.catalog.identifiers_under(location_key(stream))
            if not identifiers:
                return None
            for identifier in identifiers:
                table = self._load(identifier)
                if table is not None and _is_owned(table, stream):
                    self._check(table, stream)
                    return table
        raise Unavailable(
            f"stream {stream.name}: tables {identifiers} lie in the folder of its table, but none of them can be loaded as its table"
        )

    def _check(self, table: Table, stream: Stream) -> None:
        """Require our columns, and that the table lies in its own folder. Any engine that may write the table can change its location, and
        upkeep deletes metadata files there (decision 197).
        """
        key = self.locations.key_or_none(table.metadata.location)
        if key is None or not is_own_folder(key, stream):
            raise Conflict(f"table {'.'.join(table.name())} does not lie in the folder of its stream {stream.name}")
        _check_columns(table, is_current=is_current(stream))

    def _load(self, identifier: tuple[str, str]) -> Table | None:
        try:
            return self.catalog.load_table(identifier)
        except (NoSuchTableError, Outside):  # outside: a foreign table
            return None

    def _belongs_to_others(self, identifier: tuple[str, str], stream: Stream) -> bool:
        """Return whether another owner has the name. Another worker may have created this stream's table since `find` ran."""
        try:
            return not _is_owned(self.catalog.load_table(identifier), stream)
        except NoSuchTableError:
            return False
        except Outside:
            return True

    def _create(self, stream: Stream, has_predecessor: Callable[[], bool], check: Callable[[], None]) -> None:
        """Create the table under the first free name. The permit is read before `check` and before the names are looked up."""
        names: tuple[tuple[str, str], ...] = table_identifiers(stream)
        namespace = names[0][0]
        with suppress(NamespaceAlreadyExistsError, IntegrityError):  # created by another worker at the same time
            self.catalog.create_namespace_if_not_exists(namespace)
        permit = None
        if isinstance(self.catalog, ConditionalCatalog):
            permit = self.catalog.creations.permit(namespace, stream.id)
        elif has_predecessor():
            names = names[1:]
        check()
        name = next((candidate for candidate in names if not self._belongs_to_others(candidate, stream)), None)
        if name is None:
            raise Conflict(f"stream {stream.name}: the tables {table_identifiers(stream)} do not belong to this stream")
        location = self.locations.location(location_key(stream))
        layout = layout_of(stream)
        properties = schema.table_properties(self.settings, str(stream.id), stream.configs.get(CURRENT_PROPERTY))
        if isinstance(self.catalog, ConditionalCatalog) and permit is not None:
            creation = Creation(stream_id=stream.id, permit=permit, folder=location_key(stream))
            self.catalog.create_permitted(name, location, properties, creation, layout)
            return
        self.catalog.create_table(
            name,
            schema.iceberg_schema(),
            location=location,
            partition_spec=layout.partition_spec,
            sort_order=layout.sort_order,
            properties=properties,
        )


_OUR_FIELDS: Final = schema.iceberg_schema().fields


def _is_owned(table: Table, stream: Stream) -> bool:
    return table.metadata.properties.get(STREAM_ID_PROPERTY) == str(stream.id)


def _check_columns(table: Table, *, is_current: bool) -> None:
    """Require our columns under our field ids; renamed and additional columns are fine. Current tables have no `_batch`."""
    found = table.schema()
    if is_current and not bucket_count(table):
        raise Conflict(f"table {'.'.join(table.name())} is not partitioned by buckets of keys")
    if not is_current and table.metadata.spec().fields:
        raise Conflict(f"table {'.'.join(table.name())} is partitioned; expected an unpartitioned table")
    for ours in _OUR_FIELDS:
        if is_current and ours.name == schema.BATCH:
            continue
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
