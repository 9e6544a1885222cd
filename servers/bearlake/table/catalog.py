"""Opens the table catalog from `TableSettings`: SQLite, PostgreSQL (through pg8000), or Iceberg REST.

Both SQL catalogs use PyIceberg's layout, which Iceberg's JDBC catalog shares, so Spark and other engines see the same tables. Their
compare-and-swap is one UPDATE. A SQLite catalog also syncs its journal's folder (`synchronous = EXTRA`), because the catalog may be
the only record of a commit. Every connection, statement and request has a deadline. This module never logs a URL or a property.

All functions block. Source: Apache Iceberg REST specification; PyIceberg 0.12, `catalog/sql.py`, `catalog/rest`.
"""

import logging
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.update import RemoveSnapshotsUpdate, TableRequirement, TableUpdate, ValidatableTableRequirement
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import URL, create_engine, delete, event, or_, select
from sqlalchemy.exc import InvalidatePoolError, OperationalError, ProgrammingError
from typing_extensions import override

from bearlake.authorities import verifying_context
from bearlake.errors import BearlakeError, Invalid, Unavailable
from bearlake.table import schema
from bearlake.table.creation import Creation, CreationLost, Creations
from bearlake.table.foreign import BROKEN
from bearlake.table.io import StoreFileIO
from bearlake.table.layouts import Layout
from bearlake.table.light import lighten
from bearlake.table.parsed_metadata import ParsedMetadata
from bearlake.table.postgresql_hosts import Hosts, hosts_of
from bearlake.table.rest_catalog import BoundedRestCatalog
from bearlake.table.settings import TableSettings
from bearlake.urls import split_store_url

_DEPTH_MAX: Final = 20
"""Folders around a new table's folder in which another table is looked for."""


def open_catalog(settings: TableSettings, file_properties: Mapping[str, str]) -> Catalog:
    """Connect to the catalog, and create the tables of a SQL catalog if absent. `file_properties`: see `StoreBridge`.

    Raises:
        Invalid: the URL or a property is invalid.
        Other errors are the libraries' own; `foreign.translated` translates them.
    """
    logging.getLogger("pyiceberg.io").setLevel(logging.WARNING)  # logs the file reader's class at INFO with every load
    properties = {**_properties(settings), **file_properties}
    scheme = split_store_url(settings.catalog_url).scheme
    if scheme == "sqlite":
        return _Sqlite(settings, properties)
    if scheme in ("postgresql", "postgres"):
        return _Postgresql(settings, properties)
    if scheme in ("http", "https"):
        return BoundedRestCatalog(settings, properties)
    raise Invalid("tables.catalog_url: expected sqlite:///path, postgresql://user@host/database or http(s)://host/path")


class ConditionalCatalog(SqlCatalog, Catalog):
    """A SQL catalog on an engine with deadlines; creates a table only with a permit, and drops it only if its version is unchanged."""

    def __init__(
        self, settings: TableSettings, properties: Mapping[str, str], url: URL, arguments: Mapping[str, Any]
    ) -> None:
        MetastoreCatalog.__init__(self, settings.catalog_name, **properties)
        self.engine = create_engine(
            url,
            connect_args=dict(arguments),
            pool_size=settings.thread_count,
            max_overflow=0,
            pool_timeout=settings.catalog_deadline_ms / 1000,
            hide_parameters=True,
        )
        self.creations = Creations(self.engine, settings.catalog_name)
        self._parsed = ParsedMetadata(settings.metadata_parsed_bytes_max)
        self._on_connect(settings)
        try:
            self._init_catalog()
        except (OperationalError, ProgrammingError):  # another process creates the same tables
            self._init_catalog()

    def _on_connect(self, settings: TableSettings) -> None:
        """Register the setup of new connections."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        """Return our files, whatever the table's properties say: any engine that may write the table may set them."""
        return StoreFileIO(dict(self.properties))

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """Return the table of a row. As PyIceberg does, but its metadata is read piece by piece, and a version of it once."""
        location = orm_table.metadata_location
        if not location:
            raise NoSuchTableError("the catalog has no metadata file for the table")
        files = StoreFileIO(dict(self.properties))
        return Table(
            identifier=(*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name),
            metadata=self._parsed.of(files.new_input(location)),
            metadata_location=location,
            io=files,
            catalog=self,
        )

    @override
    def load_table(self, identifier: str | Identifier) -> Table:
        table: Table = super().load_table(identifier)
        table.metadata = lighten(table.metadata)
        return table

    @override
    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit; an expiry also requires the branches, tags and snapshots that `table` has."""
        expired = [update for update in updates if isinstance(update, RemoveSnapshotsUpdate)]
        if expired:
            ids = {snapshot_id for update in expired for snapshot_id in update.snapshot_ids}
            seen: Any = _AssertSeen(refs=set(table.metadata.refs), snapshot_ids=ids)  # Any: PyIceberg's union is closed
            requirements = (*requirements, seen)
        response: CommitTableResponse = super().commit_table(table, requirements, updates)
        return response

    def drop_version(self, table: Table) -> bool:
        """Drop the table if the catalog has this version of it under this name. Returns False if nothing was changed.

        One conditional statement. Versions never recur, so a late execution can drop only the version that the caller saw.
        """
        namespace, name = Catalog.namespace_from(table.name()), Catalog.table_name_from(table.name())
        statement = delete(IcebergTables).where(
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == Catalog.namespace_to_string(namespace),
            IcebergTables.table_name == name,
            IcebergTables.metadata_location == table.metadata_location,
        )
        with self.engine.begin() as connection:
            return bool(connection.execute(statement).rowcount)

    def create_permitted(
        self,
        identifier: tuple[str, str],
        location: str,
        properties: Mapping[str, str],
        creation: Creation,
        layout: Layout,
    ) -> None:
        """Create a table of our schema with a permit; see `table/creation.py`. A lost creation deletes its metadata file.

        Raises:
            CreationLost: certainly not created.
            Any other exception: outcome unknown.
        """
        provider = load_location_provider(table_location=location, table_properties=dict(properties))
        path = provider.new_table_metadata_file_location()
        metadata = new_table_metadata(
            location=location,
            schema=schema.iceberg_schema(),
            partition_spec=layout.partition_spec,
            sort_order=layout.sort_order,
            properties=dict(properties),
        )
        files = load_file_io(properties=self.properties, location=path)
        self._write_metadata(metadata, files, path)
        try:
            self._name_first(identifier, path, creation)
        except CreationLost:
            with suppress(BearlakeError):  # upkeep deletes the file later
                files.delete(path)
            raise

    def _name_first(self, identifier: tuple[str, str], path: str, creation: Creation) -> None:
        """Run the statements that name a new table's metadata file. Raises as `create_permitted` does."""
        row = self._create_table_row(*identifier, path)
        self.creations.insert(creation, row)

    def identifiers_under(self, key: str) -> list[tuple[str, str]]:
        """Return (namespace, name) of all tables with metadata in the folder `key`, whatever their names. One statement."""
        with self.engine.connect() as connection:
            return [(row[0], row[1]) for row in connection.execute(self.creations.under(key))]

    def named_under(self, key: str) -> list[str]:
        """Return the current metadata locations in the folder `key`. One statement."""
        with self.engine.connect() as connection:
            return [row[2] for row in connection.execute(self.creations.under(key)) if row[2] is not None]

    def is_place_taken(self, base: str, key: str) -> bool:
        """Return whether the metadata of some table lies in the folder `key` of `base`, or the folder in that of a table. One statement.

        `base`: the place of a store without scheme and slash at the end, since engines write it in several ways; empty: our own store.
        """
        parts = key.strip("/").split("/")
        around = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)][-_DEPTH_MAX:]
        named = [f"{base}/{key.strip('/')}/", *(f"{base}/{folder}/metadata/" for folder in around)]
        column = IcebergTables.metadata_location
        statement = select(column).where(
            IcebergTables.catalog_name == self.name, or_(*(column.contains(place, autoescape=True) for place in named))
        )
        with self.engine.connect() as connection:
            return connection.execute(statement.limit(1)).first() is not None

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


class _AssertSeen(ValidatableTableRequirement):
    """The table has exactly these branches and tags, and all of these snapshots. Not part of the REST specification."""

    type: Literal["bearlake-assert-seen"] = "bearlake-assert-seen"
    refs: set[str]
    snapshot_ids: set[int]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]  # PyIceberg's own name
        if base_metadata is None or set(base_metadata.refs) != self.refs:
            raise CommitFailedException("a branch or tag was made or removed concurrently")
        if not self.snapshot_ids <= {snapshot.snapshot_id for snapshot in base_metadata.snapshots}:
            raise CommitFailedException("a snapshot was expired concurrently")


class _Sqlite(ConditionalCatalog):
    def __init__(self, settings: TableSettings, properties: Mapping[str, str]) -> None:
        parts = split_store_url(settings.catalog_url)
        path = Path(unquote(parts.path))
        if parts.netloc or not path.is_absolute() or path == Path("/"):
            raise Invalid(
                "tables.catalog_url: a SQLite catalog is named by an absolute path: sqlite:///path/to/catalog.db"
            )
        if not path.parent.is_dir():
            raise Unavailable(f"the folder of the catalog {path} does not exist")
        url = URL.create("sqlite", database=str(path))
        super().__init__(settings, properties, url, {"timeout": settings.catalog_deadline_ms / 1000})

    def _on_connect(self, settings: TableSettings) -> None:
        @event.listens_for(self.engine, "connect")
        def durable(connection: Any, _record: Any) -> None:  # a DB-API connection
            connection.execute("pragma synchronous = extra").close()


class _Postgresql(ConditionalCatalog):
    def __init__(self, settings: TableSettings, properties: Mapping[str, str]) -> None:
        urls = hosts_of(settings.catalog_url)
        url = urls[0]
        self._hosts = Hosts(urls) if len(urls) > 1 else None
        self._deadline_ms = settings.catalog_deadline_ms // len(urls)
        arguments: dict[str, Any] = {
            "timeout": self._deadline_ms / 1000,
            "application_name": "bearlake",
            "ssl_context": tls_context(url),
        }
        if strange := set(url.query) - {"sslmode", "sslrootcert"}:
            raise Invalid(f"tables.catalog_url: unknown parameters {', '.join(sorted(strange))}")
        super().__init__(settings, properties, url.set(drivername="postgresql+pg8000", query={}), arguments)

    def _on_connect(self, settings: TableSettings) -> None:
        if settings.catalog_password_file:

            @event.listens_for(self.engine, "do_connect")
            def identified(
                _dialect: Any, _record: Any, _positional: Any, named: dict[str, Any]
            ) -> None:  # SQLAlchemy's
                named["password"] = _password(settings.catalog_password_file)

        if (hosts := self._hosts) is not None:

            @event.listens_for(self.engine, "do_connect")
            def connected(dialect: Any, _record: Any, arguments: Any, options: dict[str, Any]) -> Any:  # SQLAlchemy's
                return hosts.connect(dialect, arguments, options)

        @event.listens_for(self.engine, "connect")
        def bounded(connection: Any, _record: Any) -> None:  # a DB-API connection
            cursor = connection.cursor()
            cursor.execute(f"set statement_timeout = {self._deadline_ms}")
            cursor.close()
            connection.commit()

        # Replaces `pool_pre_ping`, which does not handle pg8000's error after a connection reset.
        @event.listens_for(self.engine, "checkout")
        def alive(connection: Any, _record: Any, _proxy: Any) -> None:  # a DB-API connection
            try:
                cursor = connection.cursor()
                cursor.execute("select 1")
                cursor.close()
            except (self.engine.dialect.loaded_dbapi.Error, OSError, *BROKEN) as error:
                raise InvalidatePoolError from error


def _password(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"tables.catalog_password_file cannot be read: {error}") from error


def tls_context(url: URL) -> ssl.SSLContext | None:
    """Return the TLS context for libpq's `sslmode`."""
    mode, root = url.query.get("sslmode", "prefer"), url.query.get("sslrootcert")
    if mode in ("disable", "allow", "prefer"):
        return None
    if mode not in ("require", "verify-ca", "verify-full"):
        raise Invalid(
            "tables.catalog_url: sslmode: expected one of disable, allow, prefer, require, verify-ca, verify-full"
        )
    context = verifying_context(root if isinstance(root, str) else None)
    context.check_hostname = mode == "verify-full"
    if mode == "require" and root is None:
        context.verify_mode = ssl.CERT_NONE
    return context


def _properties(settings: TableSettings) -> dict[str, str]:
    lines = [("tables.catalog_properties", line) for line in settings.catalog_properties]
    if path := settings.catalog_credentials_file:
        try:
            lines += [("tables.catalog_credentials_file", line) for line in Path(path).read_text().splitlines()]
        except OSError as error:
            raise Invalid(f"tables.catalog_credentials_file: {path} cannot be read: {error.strerror}") from error
    found = {}
    for setting, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise Invalid(f"{setting}: expected name=value in each line")
        found[name.strip()] = value.strip()
    return found
