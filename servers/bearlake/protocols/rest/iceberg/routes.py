"""Handlers of Iceberg's REST specification."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import hdrs, web

from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.iceberg.access import TableAccess, operations_of, unchanged
from bearlake.protocols.rest.iceberg.columns import ColumnReservations, new_ids
from bearlake.protocols.rest.iceberg.rights import NAMESPACE, NAMESPACES, TABLE, TABLES
from bearlake.serving.http.login import principal_of
from bearlake.serving.http.models import ANY
from bearlake.streams.principal import Operation
from bearlake.table.warehouse.model import (
    SNAPSHOTS_ALL,
    SNAPSHOTS_REFS,
    Answer,
    Body,
    Listed,
    Name,
    Namespace,
    Owner,
    OwnerCheck,
    Refused,
    absent,
    forbidden,
    invalid,
)

_SEPARATOR = "\x1f"
"""Separates the parts of a namespace in a path."""
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


class Tables(Protocol):
    """The operations of `table.warehouse.service.Warehouse`, whose libraries are loaded with the first request."""

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


class CatalogRoutes:
    """The handlers."""

    def __init__(
        self,
        tables: Callable[[], Awaitable[Tables]],
        access: TableAccess,
        columns: ColumnReservations,
        warehouse: str,
        bytes_max: int,
    ) -> None:
        """`tables`: loads and opens them once; raises `Unavailable`.

        `warehouse`: the name of the only warehouse. `bytes_max`: the largest body.
        """
        self._columns = columns
        self._tables = tables
        self._access = access
        self._warehouse = warehouse
        self._bytes_max = bytes_max

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
            ("POST", "/v1/tables/rename", self.rename),
        ):
            router.add_route(method, path, handler)

    async def config(self, request: web.Request) -> web.Response:
        """Get what clients need to know before any other request."""
        asked = request.query.get("warehouse", "")
        if asked not in ("", self._warehouse):
            raise Refused(404, "NotFoundException", f"There is no warehouse {asked[:100]!r}, only {self._warehouse!r}")
        return _json({"defaults": {}, "overrides": {}, "endpoints": _ADVERTISED})

    async def namespaces(self, request: web.Request) -> web.Response:
        """List namespaces."""
        parent = request.query.get("parent")
        return _json(
            {"namespaces": await (await self._tables()).namespaces(tuple(parent.split(_SEPARATOR)) if parent else ())}
        )

    async def create_namespace(self, request: web.Request) -> web.Response:
        """Create a namespace."""
        body = await self._body(request)
        self._access.require_cluster(principal_of(request), Operation.CREATE)
        name, properties = _namespace(body.get("namespace")), _texts(body.get("properties"))
        await (await self._tables()).create_namespace(name, properties)
        return _json({"namespace": name, "properties": properties})

    async def namespace(self, request: web.Request) -> web.Response:
        """Get the properties of a namespace."""
        name = _namespace_of(request)
        return _json({"namespace": name, "properties": await (await self._tables()).namespace(name)})

    async def namespace_exists(self, request: web.Request) -> web.Response:
        """Check whether a namespace exists."""
        await (await self._tables()).namespace(_namespace_of(request))
        return web.Response(status=204)

    async def drop_namespace(self, request: web.Request) -> web.Response:
        """Drop an empty namespace."""
        self._access.require_cluster(principal_of(request), Operation.ALTER)
        await (await self._tables()).drop_namespace(_namespace_of(request))
        return web.Response(status=204)

    async def change_namespace(self, request: web.Request) -> web.Response:
        """Change properties of a namespace."""
        body = await self._body(request)
        self._access.require_cluster(principal_of(request), Operation.ALTER)
        removals, updates = [str(name) for name in body.get("removals") or ()], _texts(body.get("updates"))
        if both := set(removals) & set(updates):
            raise Refused(
                422, "UnprocessableEntityException", f"Invalid namespace update: both set and removed: {sorted(both)}"
            )
        return _json(await (await self._tables()).change_namespace(_namespace_of(request), removals, updates))

    async def tables(self, request: web.Request) -> web.Response:
        """List the tables of a namespace that the client may see."""
        listed = await (await self._tables()).tables(_namespace_of(request))
        found = await self._access.visible(principal_of(request), listed)
        return _json({"identifiers": [{"namespace": name[:-1], "name": name[-1]} for name in found]})

    async def create(self, request: web.Request) -> web.Response:
        """Create a table, or stage its creation."""
        return await self._created(request, (await self._tables()).create)

    async def register(self, request: web.Request) -> web.Response:
        """Register a table by its metadata file."""
        return await self._created(request, (await self._tables()).register)

    async def load(self, request: web.Request) -> web.Response:
        """Get a table; 304 if the client has its current version."""
        name, snapshots = _name_of(request), request.query.get("snapshots", SNAPSHOTS_ALL)
        if snapshots not in (SNAPSHOTS_ALL, SNAPSHOTS_REFS):
            raise invalid(f"snapshots: expected {SNAPSHOTS_ALL} or {SNAPSHOTS_REFS}")
        answer = await (await self._tables()).load(name, snapshots)
        await self._require(request, name, answer.owner, Operation.READ)
        tag = _tag(answer)
        if tag in [
            given.strip().removeprefix("W/") for given in request.headers.get(hdrs.IF_NONE_MATCH, "").split(",")
        ]:
            return web.Response(status=304, headers={hdrs.ETAG: tag})
        return _table(answer)

    async def exists(self, request: web.Request) -> web.Response:
        """Check whether a table exists."""
        name = _name_of(request)
        await self._owned(request, name, Operation.DESCRIBE)
        return web.Response(status=204)

    async def commit(self, request: web.Request) -> web.Response:
        """Commit updates to a table, or create it."""
        name, body = _name_of(request), await self._body(request)
        updates, requirements = body.get("updates"), body.get("requirements")
        if not isinstance(updates, list) or not isinstance(requirements, list):
            raise invalid("expected the lists requirements and updates")
        owner = await (await self._tables()).owner(name)
        if owner is not None:
            await self._require(request, name, owner, *operations_of(updates))
            if (number := self._access.stream_number(owner)) is not None:
                await self._columns.take(number, new_ids(updates, owner.last_column_id))
        elif {"type": "assert-create"} in requirements:
            self._access.require_absent(principal_of(request), name)
        else:
            raise absent(name)
        return _table(await (await self._tables()).commit(name, body, unchanged(owner)))

    async def drop(self, request: web.Request) -> web.Response:
        """Drop a table that is no stream's. Its files stay, even if the client asks to purge them."""
        name = _name_of(request)
        owner = await self._owned(request, name, Operation.DELETE)
        if self._access.is_stream(owner):
            raise forbidden("this is the table of a stream: delete the stream, or set its config table.enable to false")
        await (await self._tables()).drop(name, unchanged(owner))
        return web.Response(status=204)

    async def metrics(self, request: web.Request) -> web.Response:
        """Take an engine's report about a scan or commit; it is not stored."""
        await self._body(request)
        return web.Response(status=204)

    async def rename(self, request: web.Request) -> web.Response:
        """Rename a table."""
        body = await self._body(request)
        source, target = _identifier(body.get("source")), _identifier(body.get("destination"))
        owner = await self._owned(request, source, Operation.ALTER)
        self._access.require_new(principal_of(request), target)
        await (await self._tables()).rename(source, target, unchanged(owner))
        return web.Response(status=204)

    async def _created(self, request: web.Request, create: Callable[[Namespace, Body], Any]) -> web.Response:
        namespace, body = _namespace_of(request), await self._body(request)
        if not isinstance(body.get("name"), str) or not body["name"]:
            raise invalid("expected the name of a table")
        self._access.require_new(principal_of(request), (*namespace, body["name"]))
        return _table(await create(namespace, body))

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
        body: Any = ANY.read(await bodies.read(request, self._bytes_max))  # JSON
        if not isinstance(body, dict):
            raise invalid("expected a JSON object")
        return body


def _json(value: object) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")


def _table(answer: Answer) -> web.Response:
    headers = {hdrs.ETAG: _tag(answer)} if answer.version else {}
    return web.Response(body=answer.body, content_type="application/json", headers=headers)


def _tag(answer: Answer) -> str:
    return f'"{hashlib.sha256(answer.version.encode()).hexdigest()[:32]}"'


def _namespace_of(request: web.Request) -> Namespace:
    return _namespace(request.match_info["namespace"].split(_SEPARATOR))


def _name_of(request: web.Request) -> Name:
    return (*_namespace_of(request), request.match_info["table"])


def _namespace(parts: object) -> Namespace:
    if not isinstance(parts, list) or not parts or not all(isinstance(part, str) and part for part in parts):
        raise invalid("expected a namespace: a list of names")
    return tuple(parts)


def _identifier(value: object) -> Name:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise invalid("expected a table: its namespace and name")
    return (*_namespace(value.get("namespace")), value["name"])


def _texts(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise invalid("expected properties: an object of texts")
    return value
