"""Handlers of the warehouse `live`: the same tables, for reading, with the records that compaction has not reached yet.

Clients get its prefix from `GET /v1/config?warehouse=live`. A stream has a table here before its first compaction. Tables that are no
stream's are the same in both warehouses.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, NoReturn

from aiohttp import web

from bearlake.metadata.model import Stream
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.iceberg.access import TableAccess
from bearlake.protocols.rest.iceberg.answers import (
    REPORT_BYTES_MAX,
    json_answer,
    list_answer,
    loaded_answer,
    name_of,
    namespace_of,
    parent_of,
    tables_answer,
)
from bearlake.protocols.rest.iceberg.rights import CREDENTIALS, LIVE, NAMESPACE, NAMESPACES, TABLE, TABLES, within
from bearlake.protocols.rest.iceberg.tables import LiveTables, Tables
from bearlake.protocols.rest.iceberg.vending import Vending, asks, credentials_answer, not_offered, vended_answer
from bearlake.serving.http.login import principal_of
from bearlake.streams.principal import Operation, Principal
from bearlake.streams.turns import in_turns
from bearlake.table.naming import is_current
from bearlake.table.warehouse.model import (
    SNAPSHOTS_ALL,
    Answer,
    Listed,
    Name,
    Namespace,
    Owner,
    Refused,
    absent,
    forbidden,
)

ADVERTISED = [
    f"{method} {within('{prefix}', path)}"
    for method, path in (
        ("GET", NAMESPACES),
        ("GET", NAMESPACE),
        ("HEAD", NAMESPACE),
        ("GET", TABLES),
        ("GET", TABLE),
        ("HEAD", TABLE),
        ("POST", TABLE + "/metrics"),
    )
]
"""The operations that clients may use."""


class LiveRoutes:
    """The handlers."""

    warehouse: ClassVar[str] = LIVE
    """The warehouse, and the prefix of its paths."""

    def __init__(
        self,
        tables: Callable[[], Awaitable[Tables]],
        views: Callable[[], Awaitable[LiveTables]],
        access: TableAccess,
        vending: Vending | None = None,
    ) -> None:
        """`tables`, `views`: load and open them once; raise `Unavailable`. `vending`: gives keys for files; None: nobody gets any."""
        self._vending = vending
        self._tables = tables
        self._views = views
        self._access = access

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        for method, path, handler in (
            ("GET", NAMESPACES, self.namespaces),
            ("GET", NAMESPACE, self.namespace),
            ("HEAD", NAMESPACE, self.namespace_exists),
            ("GET", TABLES, self.tables),
            ("GET", TABLE, self.load),
            ("HEAD", TABLE, self.exists),
            ("POST", TABLE, self.commit),
            ("GET", CREDENTIALS, self.credentials),
            ("POST", TABLE + "/metrics", self.metrics),
        ):
            router.add_route(method, within(self.warehouse, path), handler)

    async def namespaces(self, request: web.Request) -> web.Response:
        """List namespaces."""
        async with self._access.listing(principal_of(request)):
            return await self._listed_namespaces(request)

    async def _listed_namespaces(self, request: web.Request) -> web.Response:
        parent = parent_of(request)
        real = await (await self._tables()).namespaces(parent) if not parent or await self._is_real(parent) else []
        seen = await self._namespaces(principal_of(request), parent)
        found = {*real, *(name[: len(parent) + 1] for name in seen if len(name) > len(parent))}
        if parent and not found:
            await self._properties(request, parent)
        return await list_answer("namespaces", sorted(found))

    async def namespace(self, request: web.Request) -> web.Response:
        """Get the properties of a namespace."""
        name = namespace_of(request)
        return json_answer({"namespace": name, "properties": await self._properties(request, name)})

    async def namespace_exists(self, request: web.Request) -> web.Response:
        """Check whether a namespace exists."""
        await self._properties(request, namespace_of(request))
        return web.Response(status=204)

    async def tables(self, request: web.Request) -> web.Response:
        """List the tables of a namespace that the client may see, and those that streams will have in it."""
        async with self._access.listing(principal_of(request)):
            return await self._listed_tables(request)

    async def _listed_tables(self, request: web.Request) -> web.Response:
        namespace, who = namespace_of(request), principal_of(request)
        found = dict[Name, None]()
        if await self._is_real(namespace):
            found.update(dict.fromkeys(await self._access.visible(who, await self._listed(namespace))))
        else:
            await self._properties(request, namespace)
        async for part in in_turns(list((await self._access.planned()).by_name.items())):
            for name, stream in part:
                if name[:-1] == namespace and self._sees(who, stream):
                    found[name] = None
        return await tables_answer(list(found))

    async def _listed(self, namespace: Namespace) -> list[Listed]:
        return await (await self._tables()).tables(namespace)

    async def load(self, request: web.Request) -> web.Response:
        """Get a table with every record that was acknowledged before the request; 304 if the client has this version."""
        name = name_of(request)
        stream = await self._stream(request, name, Operation.READ)
        answer = await self._loaded(request, name, stream)
        if self._vending is not None and asks(request):
            found = await self._credentials(request, answer, stream, self._vending)
            return vended_answer(answer, found) if found else loaded_answer(request, answer)
        return loaded_answer(request, answer)

    async def credentials(self, request: web.Request) -> web.Response:
        """Get temporary keys for the files of a table, and its tail if it is a stream's."""
        name = name_of(request)
        stream = await self._stream(request, name, Operation.READ)
        if self._vending is None:
            raise not_offered()
        answer = await self._loaded(request, name, stream)
        return credentials_answer(await self._credentials(request, answer, stream, self._vending))

    async def _loaded(self, request: web.Request, name: Name, stream: Stream | None) -> Answer:
        """Return the table of this name: a view, or, if it is no stream's own, the table as it is. The client may read it."""
        if stream is not None:
            answer = await self._view(stream)
            owning = self._owning(answer.owner)
            if owning is None or owning.id != stream.id:
                raise absent(name)
            return answer
        answer = await (await self._tables()).load(name, SNAPSHOTS_ALL)
        subject = await self._access.subject(name, answer.owner)  # another table may have the name by now
        self._access.require(principal_of(request), [Operation.READ], subject, name)
        return answer

    async def _credentials(
        self, request: web.Request, answer: Answer, stream: Stream | None, vending: Vending
    ) -> list[dict[str, Any]]:
        has_tail = stream is not None and not is_current(stream)
        return await vending.credentials(
            principal_of(request), answer.location, stream, has_tail=has_tail, may_write=False
        )

    async def _view(self, stream: Stream) -> Answer:
        return await (await self._views()).load(stream.number)

    async def exists(self, request: web.Request) -> web.Response:
        """Check whether a table exists."""
        await self._stream(request, name_of(request), Operation.DESCRIBE)
        return web.Response(status=204)

    async def commit(self, request: web.Request) -> NoReturn:
        """Refuse a commit."""
        name = name_of(request)
        await self._stream(request, name, Operation.READ)
        raise forbidden(
            f"{'.'.join(name)} can only be read in the warehouse {self.warehouse}: write to it in the default warehouse"
        )

    async def metrics(self, request: web.Request) -> web.Response:
        """Take an engine's report about a scan; it is not stored."""
        await bodies.read(request, REPORT_BYTES_MAX)
        return web.Response(status=204)

    async def _stream(self, request: web.Request, name: Name, operation: Operation) -> Stream | None:
        """Return the stream whose table, present or future, has this name; None: it is no stream's.

        Raises `Refused`, `Denied` unless there is such a table, and the client may do the operation.
        """
        owner = await (await self._tables()).owner(name)
        if owner is None:
            stream = await self._access.planned_as(name)
            if stream is None:
                raise absent(name)
            subject = stream.name
        else:
            subject = await self._access.subject(name, owner)
            stream = self._owning(owner)
        self._access.require(principal_of(request), [operation], subject, name)
        return stream

    def _owning(self, owner: Owner) -> Stream | None:
        """Return the stream whose table is served as a view; None: the table is served as it is."""
        return self._access.stream(owner)

    async def _properties(self, request: web.Request, name: Namespace) -> Mapping[str, str]:
        """Return a namespace's properties.

        Raises `Refused` if there is no such namespace, and no stream that the client may see will have a table in it.
        """
        try:
            return await (await self._tables()).namespace(name)
        except Refused as error:
            if error.status != 404:
                raise
            if await self._namespaces(principal_of(request), name):
                return {}
            raise

    async def _is_real(self, name: Namespace) -> bool:
        try:
            await (await self._tables()).namespace(name)
        except Refused as error:
            if error.status != 404:
                raise
            return False
        return True

    async def _namespaces(self, who: Principal, parent: Namespace) -> set[Namespace]:
        """The namespaces, `parent` or below it, of the tables that streams should have and `who` may see."""
        found = set[Namespace]()
        async for part in in_turns(list((await self._access.planned()).by_name.items())):
            for name, stream in part:
                namespace = name[:-1]
                if namespace[: len(parent)] == parent and namespace not in found and self._sees(who, stream):
                    found.add(namespace)
        return found

    def _sees(self, who: Principal, stream: Stream) -> bool:
        return self._access.sees(who, stream.name)
