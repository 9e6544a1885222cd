"""Handlers of Iceberg's REST specification."""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.iceberg import live_routes, planned_routes
from bearlake.protocols.rest.iceberg.access import TableAccess, operations_of, unchanged
from bearlake.protocols.rest.iceberg.answers import (
    REPORT_BYTES_MAX,
    identifier_in,
    json_answer,
    list_answer,
    loaded_answer,
    name_of,
    names_in,
    namespace_in,
    namespace_of,
    parent_of,
    table_answer,
    table_in,
    tables_answer,
    texts_in,
)
from bearlake.protocols.rest.iceberg.columns import ColumnReservations, new_ids
from bearlake.protocols.rest.iceberg.declared import DeclaredStreams, is_declared
from bearlake.protocols.rest.iceberg.rights import CREDENTIALS, LIVE, NAMESPACE, NAMESPACES, PLANNED, TABLE, TABLES
from bearlake.protocols.rest.iceberg.settings import CatalogSettings
from bearlake.protocols.rest.iceberg.tables import Tables
from bearlake.protocols.rest.iceberg.vending import Vending, asks, credentials_answer, not_offered, vended_answer
from bearlake.serving.http.login import principal_of
from bearlake.serving.http.models import ANY
from bearlake.streams.principal import Operation
from bearlake.table.warehouse.model import (
    READ_ONLY,
    SNAPSHOTS_ALL,
    SNAPSHOTS_REFS,
    Answer,
    Body,
    Name,
    Namespace,
    Owner,
    Refused,
    absent,
    forbidden,
    invalid,
)

_ADVERTISED = [
    f"{method} {path.replace('/v1/', '/v1/{prefix}/', 1)}"
    for method, path in (
        *((method, NAMESPACES) for method in ("GET", "POST")),
        *((method, NAMESPACE) for method in ("GET", "HEAD", "DELETE")),
        ("POST", NAMESPACE + "/properties"),
        *((method, TABLES) for method in ("GET", "POST")),
        *((method, TABLE) for method in ("GET", "HEAD", "POST", "DELETE")),
        ("POST", "/v1/tables/rename"),
        ("POST", NAMESPACE + "/register"),
        ("POST", TABLE + "/metrics"),
    )
]
"""The operations that clients may use. Views and commits to several tables are missing."""


class CatalogRoutes:
    """The handlers."""

    def __init__(
        self,
        tables: Callable[[], Awaitable[Tables]],
        access: TableAccess,
        columns: ColumnReservations,
        warehouse: str,
        limits: CatalogSettings,
        vending: Vending | None = None,
        declared: DeclaredStreams | None = None,
    ) -> None:
        """`declared`: creates streams for engines, and adds columns; None: engines do neither.

        `tables`: loads and opens them once; raises `Unavailable`.

        `warehouse`: the name of the warehouse that engines may write. `limits`: those of bodies. `vending`: gives keys for
        files; None: nobody gets any.
        """
        self._declared = declared
        self._vending = vending
        self._columns = columns
        self._tables = tables
        self._access = access
        self._warehouse = warehouse
        self._limits = limits

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        for method, path, handler in (
            ("GET", "/v1/config", self.config),
            ("GET", NAMESPACES, self.namespaces),
            ("POST", NAMESPACES, self.create_namespace),
            ("GET", NAMESPACE, self.namespace),
            ("HEAD", NAMESPACE, self.namespace_exists),
            ("DELETE", NAMESPACE, self.drop_namespace),
            ("POST", NAMESPACE + "/properties", self.change_namespace),
            ("GET", TABLES, self.tables),
            ("POST", TABLES, self.create),
            ("POST", NAMESPACE + "/register", self.register),
            ("GET", TABLE, self.load),
            ("HEAD", TABLE, self.exists),
            ("POST", TABLE, self.commit),
            ("DELETE", TABLE, self.drop),
            ("POST", TABLE + "/metrics", self.metrics),
            ("GET", CREDENTIALS, self.credentials),
            ("POST", "/v1/tables/rename", self.rename),
        ):
            router.add_route(method, path, handler)

    async def config(self, request: web.Request) -> web.Response:
        """Get what clients need to know before any other request."""
        asked = request.query.get("warehouse", "")
        if asked == LIVE:
            return json_answer({"defaults": {}, "overrides": {"prefix": LIVE}, "endpoints": live_routes.ADVERTISED})
        if asked == PLANNED:
            overrides = {"prefix": PLANNED, "scan-planning-mode": "server"}
            return json_answer({"defaults": {}, "overrides": overrides, "endpoints": planned_routes.ADVERTISED})
        if asked not in ("", self._warehouse):
            known = f"{self._warehouse!r}, {LIVE!r} and {PLANNED!r}"
            raise Refused(404, "NotFoundException", f"There is no warehouse {asked[:100]!r}, only {known}")
        return json_answer({"defaults": {}, "overrides": {}, "endpoints": _ADVERTISED})

    async def namespaces(self, request: web.Request) -> web.Response:
        """List namespaces."""
        async with self._access.listing(principal_of(request)):
            return await list_answer("namespaces", await (await self._tables()).namespaces(parent_of(request)))

    async def create_namespace(self, request: web.Request) -> web.Response:
        """Create a namespace."""
        body = await self._body(request)
        self._access.require_cluster(principal_of(request), Operation.CREATE)
        name, properties = namespace_in(body.get("namespace")), texts_in(body.get("properties"))
        await (await self._tables()).create_namespace(name, properties)
        return json_answer({"namespace": name, "properties": properties})

    async def namespace(self, request: web.Request) -> web.Response:
        """Get the properties of a namespace."""
        name = namespace_of(request)
        return json_answer({"namespace": name, "properties": await (await self._tables()).namespace(name)})

    async def namespace_exists(self, request: web.Request) -> web.Response:
        """Check whether a namespace exists."""
        await (await self._tables()).namespace(namespace_of(request))
        return web.Response(status=204)

    async def drop_namespace(self, request: web.Request) -> web.Response:
        """Drop an empty namespace."""
        self._access.require_cluster(principal_of(request), Operation.ALTER)
        await (await self._tables()).drop_namespace(namespace_of(request))
        return web.Response(status=204)

    async def change_namespace(self, request: web.Request) -> web.Response:
        """Change properties of a namespace."""
        body = await self._body(request)
        self._access.require_cluster(principal_of(request), Operation.ALTER)
        removals, updates = names_in(body.get("removals")), texts_in(body.get("updates"))
        if both := set(removals) & set(updates):
            raise Refused(
                422, "UnprocessableEntityException", f"Invalid namespace update: both set and removed: {sorted(both)}"
            )
        return json_answer(await (await self._tables()).change_namespace(namespace_of(request), removals, updates))

    async def tables(self, request: web.Request) -> web.Response:
        """List the tables of a namespace that the client may see."""
        who = principal_of(request)
        async with self._access.listing(who):
            listed = await (await self._tables()).tables(namespace_of(request))
            return await tables_answer(await self._access.visible(who, listed))

    async def create(self, request: web.Request) -> web.Response:
        """Create a table, or stage its creation."""
        tables = await self._tables()
        who = principal_of(request)

        async def create(namespace: Namespace, body: Body) -> Answer:
            properties = texts_in(body.get("properties"))
            if self._declared is not None and is_declared(properties):
                return await self._declared.create(who, (*namespace, str(body["name"])), body, properties)
            self._access.require_new(who, table_in(namespace, body.get("name")))
            return await tables.create(namespace, body)

        return await self._created(request, create)

    async def register(self, request: web.Request) -> web.Response:
        """Register a table by its metadata file."""
        tables = await self._tables()
        who = principal_of(request)

        async def register(namespace: Namespace, body: Body) -> Answer:
            self._access.require_new(who, table_in(namespace, body.get("name")))
            return await tables.register(namespace, body)

        return await self._created(request, register)

    async def load(self, request: web.Request) -> web.Response:
        """Get a table; 304 if the client has its current version."""
        name, snapshots = name_of(request), request.query.get("snapshots", SNAPSHOTS_ALL)
        if snapshots not in (SNAPSHOTS_ALL, SNAPSHOTS_REFS):
            raise invalid(f"snapshots: expected {SNAPSHOTS_ALL} or {SNAPSHOTS_REFS}")
        answer = await (await self._tables()).load(name, snapshots)
        await self._require(request, name, answer.owner, Operation.READ)
        return await self._vended(request, name, answer) or loaded_answer(request, answer)

    async def credentials(self, request: web.Request) -> web.Response:
        """Get temporary keys for the files of a table."""
        name = name_of(request)
        answer = await (await self._tables()).load(name, SNAPSHOTS_REFS)
        await self._require(request, name, answer.owner, Operation.READ)
        if self._vending is None:
            raise not_offered()
        return credentials_answer(await self._credentials(request, name, answer, self._vending))

    async def exists(self, request: web.Request) -> web.Response:
        """Check whether a table exists."""
        name = name_of(request)
        await self._owned(request, name, Operation.DESCRIBE)
        return web.Response(status=204)

    async def commit(self, request: web.Request) -> web.Response:
        """Commit updates to a table, or create it."""
        name, body = name_of(request), await self._body(request)
        updates, requirements = body.get("updates"), body.get("requirements")
        if not isinstance(updates, list) or not isinstance(requirements, list):
            raise invalid("expected the lists requirements and updates")
        if (count := len(updates) + len(requirements)) > (count_max := self._limits.warehouse.update_count_max):
            raise forbidden(
                f"{count} updates and requirements; the limit is {count_max} (catalog.warehouse.update_count_max)"
            )
        owner = await (await self._tables()).owner(name)
        if owner is not None:
            await self._require(request, name, owner, *operations_of(updates))
            if owner.is_current:
                raise forbidden(READ_ONLY)
            stream = self._access.stream(owner)
            if (
                self._declared is not None
                and stream is not None
                and (answer := await self._declared.altered(principal_of(request), stream, name, owner, body))
            ):
                return table_answer(answer)
            if (number := self._access.stream_number(owner)) is not None:
                await self._columns.take(number, new_ids(updates, owner.last_column_id))
        elif {"type": "assert-create"} in requirements:
            self._access.require_absent(principal_of(request), name)
        else:
            raise absent(name)
        return table_answer(await (await self._tables()).commit(name, body, unchanged(owner)))

    async def drop(self, request: web.Request) -> web.Response:
        """Drop a table that is no stream's. Its files stay, even if the client asks to purge them."""
        name = name_of(request)
        owner = await self._owned(request, name, Operation.DELETE)
        if self._access.is_stream(owner):
            raise forbidden(
                "this is the table of a stream: delete the stream, or set its config table.enable to false (a current table:"
                " table.current to off)"
            )
        await (await self._tables()).drop(name, unchanged(owner))
        return web.Response(status=204)

    async def metrics(self, request: web.Request) -> web.Response:
        """Take an engine's report about a scan or commit; it is not stored."""
        await bodies.read(request, REPORT_BYTES_MAX)
        return web.Response(status=204)

    async def rename(self, request: web.Request) -> web.Response:
        """Rename a table."""
        body = await self._body(request)
        source, target = identifier_in(body.get("source")), identifier_in(body.get("destination"))
        owner = await self._owned(request, source, Operation.ALTER)
        self._access.require_new(principal_of(request), target)
        await (await self._tables()).rename(source, target, unchanged(owner))
        return web.Response(status=204)

    async def _created(self, request: web.Request, create: Callable[[Namespace, Body], Any]) -> web.Response:
        namespace, body = namespace_of(request), await self._body(request)
        name = table_in(namespace, body.get("name"))
        answer = await create(namespace, body)
        return await self._vended(request, name, answer) or table_answer(answer)

    async def _vended(self, request: web.Request, name: Name, answer: Answer) -> web.Response | None:
        """Return the answer with keys; None: the client asks for none, or gets none."""
        if self._vending is None or not asks(request):
            return None
        found = await self._credentials(request, name, answer, self._vending)
        return vended_answer(answer, found) if found else None

    async def _credentials(
        self, request: web.Request, name: Name, answer: Answer, vending: Vending
    ) -> list[dict[str, Any]]:
        who, subject = principal_of(request), await self._access.subject(name, answer.owner)
        may_write = not answer.owner.is_current and self._access.may_write(who, subject)
        stream = self._access.stream(answer.owner)
        return await vending.credentials(who, answer.location, stream, has_tail=False, may_write=may_write)

    async def _owned(self, request: web.Request, name: Name, *operations: Operation) -> Owner:
        """Return the table's owner. Raises `Refused`, `Denied` unless the client may do the operations."""
        owner = await (await self._tables()).owner(name)
        if owner is None:
            raise absent(name)
        await self._require(request, name, owner, *operations)
        return owner

    async def _require(self, request: web.Request, name: Name, owner: Owner, *operations: Operation) -> None:
        subject = await self._access.subject(name, owner)
        self._access.require(principal_of(request), operations, subject, name)

    async def _body(self, request: web.Request) -> Body:
        octets = await bodies.read(request, self._limits.request_bytes_max)
        body: Any = await bodies.parse_many(ANY, octets, self._limits.request_value_count_max)  # JSON
        if not isinstance(body, dict):
            raise invalid("expected a JSON object")
        return body
