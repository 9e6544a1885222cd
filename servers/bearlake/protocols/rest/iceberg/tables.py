"""What the routes need of the tables, whose libraries are loaded with the first request."""

from collections.abc import Mapping
from typing import Protocol

from bearlake.metadata.model import Stream
from bearlake.table.column_book import ColumnBook
from bearlake.table.column_tree import Column
from bearlake.table.warehouse.model import Answer, Body, Listed, Name, Namespace, Owner, OwnerCheck


class Tables(Protocol):
    """The operations of `table.warehouse.service.Warehouse`."""

    async def namespaces(self, parent: Namespace) -> list[Namespace]:
        """Return the namespaces directly under `parent`; `()`: the top ones."""

    async def namespace(self, name: Namespace) -> Mapping[str, str]:
        """Return a namespace's properties."""

    async def create_namespace(self, name: Namespace, properties: Mapping[str, str]) -> None:
        """Create a namespace."""

    async def change_namespace(
        self, name: Namespace, removals: list[str], updates: Mapping[str, str]
    ) -> Mapping[str, list[str]]:
        """Change properties of a namespace; returns which were updated, removed and missing."""

    async def drop_namespace(self, name: Namespace) -> None:
        """Drop an empty namespace."""

    async def tables(self, namespace: Namespace) -> list[Listed]:
        """Return a namespace's tables."""

    async def owner(self, name: Name) -> Owner | None:
        """Return the owner of a table, or None."""

    async def load(self, name: Name, snapshots: str) -> Answer:
        """Return a table."""

    async def create(self, namespace: Namespace, body: Body) -> Answer:
        """Create a table."""

    async def register(self, namespace: Namespace, body: Body) -> Answer:
        """Register a table."""

    async def commit(self, name: Name, body: Body, check: OwnerCheck) -> Answer:
        """Commit updates to a table."""

    async def drop(self, name: Name, check: OwnerCheck) -> None:
        """Drop a table."""

    async def rename(self, source: Name, target: Name, check: OwnerCheck) -> None:
        """Rename a table."""


class DeclaredTables(Protocol):
    """The operations of `live.declared.DeclaredTables`."""

    async def ensure(self, stream: Stream) -> Name:
        """Give the stream a table with its declared columns; return the table's name."""

    def check(self, book: ColumnBook | None, text: str) -> None:
        """Raise `Invalid` if a table with the columns of `book` cannot have those that `text` declares, too."""

    async def check_schemas(self, stream_name: str, configs: Mapping[str, str]) -> None:
        """Raise `Invalid` if configs name a schema that the values or keys of a stream cannot have."""

    async def columns_of(self, body: Body) -> tuple[Column, ...]:
        """Return the columns of a new table that shall be that of a stream."""

    async def changes(self, name: Name, body: Body, owner: Owner, sources: Mapping[int, str]) -> tuple[Column, ...]:
        """Return the columns that a commit declares."""


class LiveTables(Protocol):
    """The operations of `live.catalog.LiveCatalog`."""

    async def load(self, number: int) -> Answer:
        """Return a view of the table of the stream with this number."""


class ScanPlans(Protocol):
    """The operations of `live.planned.PlannedCatalog`."""

    async def load(self, stream: Stream) -> Answer:
        """Return a view of the stream's table."""

    async def plan(self, stream: Stream, body: Body) -> bytes:
        """Plan a scan."""

    async def tasks(self, stream: Stream, task: object) -> bytes:
        """Return the files of a plan task."""

    def result(self, stream: Stream, plan_id: str) -> bytes:
        """Return a plan again."""

    def cancel(self, stream: Stream, plan_id: str) -> None:
        """Forget a plan."""
