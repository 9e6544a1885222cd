"""Creation of tables in SQL catalogs: conditional, so that a late creation can be excluded, and its first metadata file deleted.

A creation writes its metadata file before the catalog names it. The statement that names it may arrive arbitrarily late. Each creation
therefore needs a permit: a random token that the catalog stores as a property of the namespace, one per stream.

    creator:  read the permit, or store a new one → check the stream → write the metadata file → one transaction: delete the permit,
              require that no table lies in the stream's folder, insert the table
    fence:    delete the permit

A creation that read its permit before a fence cannot happen after the fence. A permit is used by one creation at most, so concurrent
creators never make two tables for one stream, whatever the tables' names. Tokens never recur.

All functions block and raise the libraries' errors. Source: decision 111.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties as Properties
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.typedef import Identifier
from sqlalchemy import ColumnElement, Engine, Select, delete, insert, select
from sqlalchemy.exc import IntegrityError

PERMIT_PREFIX = "bearlake.creation."
"""Prefix of the namespace properties with permits; the stream's UUID follows."""
PERMIT_TRIES = 10


class CreationLost(Exception):
    """The table was certainly not created: the permit was fenced or used, or a table has the name or lies in the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """A creation: the table's stream, the permit and the folder (a key prefix without a trailing slash)."""

    stream_id: UUID
    permit: str
    folder: str


class Creations:
    """The permits in one SQL catalog. `name`: the catalog's name in its rows."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name

    def permit(self, namespace: str | Identifier, stream_id: UUID) -> str:
        """Return the stream's permit; store a new one if there is none. The namespace must exist.

        Raises:
            CreationLost: other creators of the same table were first.
        """
        row = {
            "catalog_name": self._name,
            "namespace": Catalog.namespace_to_string(namespace),
            "property_key": f"{PERMIT_PREFIX}{stream_id}",
            "property_value": str(uuid4()),
        }
        for _ in range(PERMIT_TRIES):
            with self._engine.connect() as connection:
                found = connection.execute(select(Properties.property_value).where(*self._of(stream_id))).scalar()
                if found is not None:
                    return str(found)
                with suppress(IntegrityError):  # another creator stores a permit first: use that permit
                    connection.execute(insert(Properties).values(row))
                    connection.commit()
                    return row["property_value"]
        raise CreationLost("its permit was fenced or used repeatedly")

    def fence(self, stream_id: UUID) -> None:
        """Exclude every creation that has read its permit before this call."""
        with self._engine.begin() as connection:
            connection.execute(delete(Properties).where(*self._of(stream_id)))

    def insert(self, creation: Creation, row: dict[str, Any]) -> None:
        """Insert a table's row, and use up the permit, in one transaction.

        Raises:
            CreationLost: certainly not inserted.
        """
        with self._engine.begin() as connection:
            used = delete(Properties).where(*self._of(creation.stream_id), Properties.property_value == creation.permit)
            if connection.execute(used).rowcount == 0:  # locks the row, so creations of one stream take turns
                raise CreationLost("the creation was fenced, or another one used its permit")
            is_taken = connection.execute(self.under(creation.folder)).first() is not None
            try:
                if not is_taken:
                    connection.execute(insert(IcebergTables).values(**row))
            except IntegrityError as error:
                raise CreationLost("another table has the name") from error
        if is_taken:  # the permit is gone: the stream needs none
            raise CreationLost(f"a table lies in {creation.folder}")

    def under(self, folder: str) -> Select[str, str, str | None]:
        """Return a query for (namespace, name, metadata location) of all tables with metadata in the folder, whatever their names."""
        return select(IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location).where(
            IcebergTables.catalog_name == self._name,
            IcebergTables.metadata_location.contains(f"/{folder}/metadata/", autoescape=True),
        )

    def _of(self, stream_id: UUID) -> tuple[ColumnElement[bool], ...]:
        return (Properties.catalog_name == self._name, Properties.property_key == f"{PERMIT_PREFIX}{stream_id}")
