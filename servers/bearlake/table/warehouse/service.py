"""The operations of Iceberg's REST specification on a SQL catalog of tables.

Each operation on a table passes the owner of the version that it has loaded to the caller's check, so that a table that was replaced in the
meantime is not changed by the rights to another one. A commit is checked against exactly the version that it replaces.

Every method raises `Refused` for what the catalog refuses, and `Unavailable` if the catalog or the object store does not answer.
Source: Apache Iceberg REST specification; PyIceberg 0.12, `catalog/sql.py`.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables as Rows
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.update import AssertCreate, SetLocationUpdate, update_table_metadata
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from bearlake.clock import Clock, SystemClock
from bearlake.errors import Invalid, Overloaded, TooLarge
from bearlake.table.applied_tasks import STREAM_ID_PROPERTY
from bearlake.table.catalog import ConditionalCatalog
from bearlake.table.iceberg import IcebergTables
from bearlake.table.io import Locations, StoreFileIO
from bearlake.table.metadata_text import check_summaries, read_metadata
from bearlake.table.naming import CURRENT_PROPERTY
from bearlake.table.warehouse import guard
from bearlake.table.warehouse.answers import answer_of, body_of, owner_of
from bearlake.table.warehouse.errors import in_words_of_the_specification
from bearlake.table.warehouse.footers import Footers
from bearlake.table.warehouse.model import (
    READ_ONLY,
    Answer,
    Body,
    Listed,
    Name,
    Namespace,
    Owner,
    OwnerCheck,
    absent,
    forbidden,
    invalid,
)
from bearlake.table.warehouse.places import Places
from bearlake.table.warehouse.requests import NewTable, Verified, is_done, request_of, texts_of
from bearlake.table.warehouse.settings import WarehouseSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

_EXISTS = "exists"  # property by which PyIceberg's catalog stores a namespace without properties


class Warehouse:
    """The catalog of the tables, for other engines. The caller keeps ownership of `tables`, and has added the foreign roots to them."""

    def __init__(
        self, tables: IcebergTables, settings: WarehouseSettings | None = None, clock: Clock | None = None
    ) -> None:
        self._tables = tables
        self.settings = settings or WarehouseSettings()
        self._clock = clock or SystemClock()
        self.checks = threading.BoundedSemaphore(self.settings.check_count_max)
        self._roots = [Locations(root) for root in self.settings.foreign_roots]
        self._places = Places(tables.locations, self._roots)
        tables.limit_metadata_of_others(self.settings.metadata_bytes_max, self.settings.metadata_value_count_max)

    async def namespaces(self, parent: Namespace) -> list[Namespace]:
        """Return the namespaces directly under `parent`; `()`: the top ones."""

        def listed(catalog: ConditionalCatalog) -> list[Namespace]:
            if parent:
                _require_namespace(catalog, parent)
            return sorted(tuple(found) for found in catalog.list_namespaces(parent))

        return await self.run(listed)

    async def namespace(self, name: Namespace) -> Mapping[str, str]:
        """Return a namespace's properties."""

        def found(catalog: ConditionalCatalog) -> Mapping[str, str]:
            _require_namespace(catalog, name)
            return {key: value for key, value in catalog.load_namespace_properties(name).items() if _is_shown(key)}

        return await self.run(found)

    async def create_namespace(self, name: Namespace, properties: Mapping[str, str]) -> None:
        """Create a namespace."""

        def create(catalog: ConditionalCatalog) -> None:
            guard.check_properties(properties)
            if not name or not all(name):
                raise invalid("Cannot create a namespace without a name")
            if catalog.namespace_exists(name):
                raise NamespaceAlreadyExistsError(f"Namespace already exists: {'.'.join(name)}")
            try:
                catalog.create_namespace(name, dict(properties))
            except IntegrityError as error:
                raise NamespaceAlreadyExistsError(f"Namespace already exists: {'.'.join(name)}") from error

        await self.run(create)

    async def change_namespace(
        self, name: Namespace, removals: list[str], updates: Mapping[str, str]
    ) -> Mapping[str, list[str]]:
        """Change properties of a namespace; returns which were updated, removed and missing."""

        def change(catalog: ConditionalCatalog) -> Mapping[str, list[str]]:
            _require_namespace(catalog, name)
            guard.check_properties((*removals, *updates))
            done = catalog.update_namespace_properties(name, set(removals), dict(updates))
            return {"updated": done.updated, "removed": done.removed, "missing": done.missing}

        return await self.run(change)

    async def drop_namespace(self, name: Namespace) -> None:
        """Drop an empty namespace."""

        def drop(catalog: ConditionalCatalog) -> None:
            _require_namespace(catalog, name)
            catalog.drop_namespace(name)

        await self.run(drop)

    async def tables(self, namespace: Namespace) -> list[Listed]:
        """Return a namespace's tables. Reads no metadata files."""

        def listed(catalog: ConditionalCatalog) -> list[Listed]:
            _require_namespace(catalog, namespace)
            rows = select(Rows.table_name, Rows.metadata_location).where(
                Rows.catalog_name == catalog.name, Rows.table_namespace == Catalog.namespace_to_string(namespace)
            )
            with catalog.engine.connect() as connection:
                found = connection.execute(rows.order_by(Rows.table_name)).all()
            return [Listed(name=(*namespace, name), folder=self._folder(location)) for name, location in found]

        return await self.run(listed)

    async def owner(self, name: Name) -> Owner | None:
        """Return the owner of a table; None if there is no such table, or none whose metadata is in the object store."""

        def found(catalog: ConditionalCatalog) -> Owner | None:
            try:
                return owner_of(load_table(catalog, name).metadata)
            except (NoSuchTableError, Invalid):
                return None

        return await self.run(found)

    async def load(self, name: Name, snapshots: str) -> Answer:
        """Return a table; `snapshots`: one of `SNAPSHOTS_…`."""
        return await self.run(lambda catalog: answer_of(load_table(catalog, name), snapshots))

    async def create(self, namespace: Namespace, body: Body) -> Answer:
        """Create a table, or return what it would be (`stage-create`)."""

        def create(catalog: ConditionalCatalog) -> Answer:
            _require_namespace(catalog, namespace)
            name = (*namespace, str(body["name"]))
            if catalog.table_exists(name):
                raise TableAlreadyExistsError(f"Table already exists: {'.'.join(name)}")
            properties = texts_of(body.get("properties"))
            guard.check_properties(properties)
            parts = NewTable.of(body, self._places.place_for(catalog, name, body.get("location")), properties)
            if not body.get("stage-create"):
                return answer_of(catalog.create_table(name, **parts._asdict()))
            staged = new_table_metadata(**parts._asdict())
            return Answer(
                body=body_of(None, staged.model_dump_json()),
                owner=owner_of(staged),
                version="",
                location=staged.location,
            )

        return await self.run(create)

    async def register(self, namespace: Namespace, body: Body) -> Answer:
        """Give a name to a table whose metadata file exists, in our folder of other engines' tables."""

        def register(catalog: ConditionalCatalog) -> Answer:
            _require_namespace(catalog, namespace)
            name, location = (*namespace, str(body["name"])), str(body["metadata-location"])
            if body.get("overwrite"):
                raise invalid("overwrite is not supported: drop the table first")
            if catalog.table_exists(name):
                raise TableAlreadyExistsError(f"Table already exists: {'.'.join(name)}")
            self._places.check_free(catalog, location.rpartition("/metadata/")[0] or location)
            guard.check_folder(location, self._tables.locations, self._roots)
            files = StoreFileIO(dict(catalog.properties)).new_input(location)
            if not files.exists():
                raise invalid(f"the metadata file {location} does not exist")
            metadata = read_metadata(files)
            self._places.check_free(catalog, metadata.location)
            guard.check_properties(metadata.properties)
            return answer_of(catalog.register_table(name, location))

        return await self.run(register)

    async def commit(self, name: Name, body: Body, check: OwnerCheck) -> Answer:
        """Commit the updates of `body` if its requirements hold, or create the table (`assert-create`)."""

        def commit(catalog: ConditionalCatalog) -> Answer:
            check_summaries(
                [change.get("snapshot") for change in body.get("updates") or () if isinstance(change, dict)]
            )
            asked = request_of(name, body)
            is_new = any(isinstance(requirement, AssertCreate) for requirement in asked.requirements)
            try:
                table = load_table(catalog, name)
            except NoSuchTableError:
                if not is_new:
                    raise
                return self._commit_new(catalog, name, asked, check)
            if is_done(asked.updates, table.metadata):
                check(owner_of(table.metadata))
                return answer_of(table)
            if is_new:
                raise CommitFailedException("Requirement failed: table already exists")

            def verify(before: TableMetadata | None) -> None:
                check(None if before is None else owner_of(before))
                if before is None:
                    raise CommitFailedException("the table was dropped")
                if CURRENT_PROPERTY in before.properties:
                    raise forbidden(READ_ONLY)
                is_stream = STREAM_ID_PROPERTY in before.properties
                if is_stream:
                    guard.check_stream_properties(asked.updates)
                else:
                    guard.check_other(asked.updates, self._tables.locations, self._roots)
                    for place in _places(asked.updates):
                        if place.rstrip("/") != before.location.rstrip("/"):
                            self._places.check_free(catalog, place)
                after = update_table_metadata(before, asked.updates, metadata_location=table.metadata_location)
                if is_stream:
                    self._check(before, after, catalog, asked.updates)
                guard.check_size(after.model_dump_json(warnings=False).encode(), self.settings)

            verified: Any = Verified(verify=verify)  # Any: PyIceberg's union is closed
            done = catalog.commit_table(table, (*asked.requirements, verified), asked.updates)
            return answer_of(_load_version(catalog, name, done.metadata, done.metadata_location))

        return await self.run(commit)

    async def drop(self, name: Name, check: OwnerCheck) -> None:
        """Drop a table that is no stream's from the catalog. Its files stay."""

        def drop(catalog: ConditionalCatalog) -> None:
            table = load_table(catalog, name)
            check(owner_of(table.metadata))
            if not catalog.drop_version(table):
                raise CommitFailedException("the table was changed concurrently")

        await self.run(drop)

    async def rename(self, source: Name, target: Name, check: OwnerCheck) -> None:
        """Rename a table."""

        def rename(catalog: ConditionalCatalog) -> None:
            table = load_table(catalog, source)
            check(owner_of(table.metadata))
            _require_namespace(catalog, target[:-1])
            if catalog.table_exists(target):
                raise TableAlreadyExistsError(f"Table already exists: {'.'.join(target)}")
            if not _renamed(catalog, table, target):
                raise CommitFailedException("the table was changed concurrently")

        await self.run(rename)

    def _commit_new(
        self, catalog: ConditionalCatalog, name: Name, asked: CommitTableRequest, check: OwnerCheck
    ) -> Answer:
        _require_namespace(catalog, name[:-1])
        check(None)
        guard.check_other(asked.updates, self._tables.locations, self._roots)
        updates = asked.updates
        for place in (places := _places(updates)):
            self._places.check_free(catalog, place)
        if not places:
            updates = (*updates, SetLocationUpdate(location=self._places.place_for(catalog, name, None)))
        staged = StagedTable(
            identifier=name,
            metadata=None,  # type: ignore[arg-type]  # as PyIceberg's own staged tables
            metadata_location=None,  # type: ignore[arg-type]
            io=StoreFileIO(dict(catalog.properties)),
            catalog=catalog,
        )
        try:
            done = catalog.commit_table(staged, asked.requirements, updates)
        except TableAlreadyExistsError as error:
            raise CommitFailedException("Requirement failed: table already exists") from error
        return answer_of(_load_version(catalog, name, done.metadata, done.metadata_location))

    def _check(
        self, before: TableMetadata, after: TableMetadata, catalog: ConditionalCatalog, updates: Sequence[Any]
    ) -> None:
        """Check updates (Any: PyIceberg's closed union) of a stream's table."""
        files, footers = StoreFileIO(dict(catalog.properties)), Footers(self._tables.bridge, self.settings)
        if not self.checks.acquire(timeout=self.settings.check_wait_ms / 1000):
            raise Overloaded(
                "too many commits to tables of streams are being checked (catalog.warehouse.check_count_max)"
            )
        try:
            guard.StreamGuard(
                before, after, files, self._tables.locations, footers, self.settings, self._clock.now_ms()
            ).check(updates)
        finally:
            self.checks.release()

    def _folder(self, metadata_location: str | None) -> str | None:
        return (self._tables.locations.key_or_none(metadata_location or "") or "").rpartition("/metadata/")[0] or None

    async def run(self, call: Callable[[ConditionalCatalog], T]) -> T:
        """Run a blocking call on the SQL catalog, in a thread; its errors become those of the specification."""

        def run() -> T:
            catalog = self._tables.lookup().catalog
            if not isinstance(catalog, ConditionalCatalog):
                raise forbidden("the tables are in an Iceberg REST catalog: use that one")
            with in_words_of_the_specification():
                return call(catalog)

        return await self._tables.run("the catalog", run)


def load_table(catalog: ConditionalCatalog, name: Name) -> Table:
    """Return a table. Raises `NoSuchTableError`."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError as error:
        raise NoSuchTableError(str(absent(name))) from error
    except TooLarge as error:  # before the rights are checked: nobody may learn that there is a table
        log.warning("a table is not served: its metadata is larger than its limit", extra={"table": ".".join(name)})
        raise NoSuchTableError(str(absent(name))) from error


def _places(updates: Sequence[Any]) -> list[str]:
    return [change.location for change in updates if isinstance(change, SetLocationUpdate)]


def _load_version(catalog: ConditionalCatalog, name: Name, metadata: TableMetadata, location: str) -> Table:
    return Table(
        identifier=name,
        metadata=metadata,
        metadata_location=location,
        io=StoreFileIO(dict(catalog.properties)),
        catalog=catalog,
    )


def _renamed(catalog: ConditionalCatalog, table: Table, target: Name) -> bool:
    """Rename the table if the catalog has this version of it under this name, in one conditional statement."""
    source = table.name()
    statement = (
        update(Rows)
        .where(
            Rows.catalog_name == catalog.name,
            Rows.table_namespace == Catalog.namespace_to_string(source[:-1]),
            Rows.table_name == source[-1],
            Rows.metadata_location == table.metadata_location,
        )
        .values(table_namespace=Catalog.namespace_to_string(target[:-1]), table_name=target[-1])
    )
    try:
        with catalog.engine.begin() as connection:
            return bool(connection.execute(statement).rowcount)
    except IntegrityError as error:
        raise TableAlreadyExistsError(f"Table already exists: {'.'.join(target)}") from error


def _require_namespace(catalog: ConditionalCatalog, name: Namespace) -> None:
    if not name or not catalog.namespace_exists(name):
        raise NoSuchNamespaceError(f"Namespace does not exist: {'.'.join(name)}")


def _is_shown(key: str) -> bool:
    return key != _EXISTS and not key.startswith(guard.OWN_PREFIX)
