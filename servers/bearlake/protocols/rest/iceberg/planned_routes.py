"""Handlers of the warehouse `planned`: the views of the warehouse `live`, whose scans the server plans for engines.

Clients get its prefix from `GET /v1/config?warehouse=planned`, and with it the property by which Iceberg's libraries let the server plan.
It has the tables and current tables of streams only: the manifests of other tables are written by clients, and the server does not
read them.

Source: Apache Iceberg REST specification, `planTableScan`, `fetchPlanningResult`, `cancelPlanning`, `fetchScanTasks`.
"""

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from aiohttp import web
from typing_extensions import override

from bearlake.metadata.model import Stream
from bearlake.protocols.rest import bodies
from bearlake.protocols.rest.iceberg import live_routes
from bearlake.protocols.rest.iceberg.access import TableAccess
from bearlake.protocols.rest.iceberg.answers import name_of
from bearlake.protocols.rest.iceberg.live_routes import LiveRoutes
from bearlake.protocols.rest.iceberg.rights import PLAN, PLAN_RESULT, PLANNED, TASKS, planned, within
from bearlake.protocols.rest.iceberg.settings import CatalogSettings
from bearlake.protocols.rest.iceberg.tables import ScanPlans, Tables
from bearlake.protocols.rest.iceberg.vending import Vending
from bearlake.serving.http.models import ANY
from bearlake.streams.principal import Operation
from bearlake.table.naming import stream_suffix
from bearlake.table.warehouse.model import Answer, Body, Listed, Name, Namespace, Owner, absent, invalid

ADVERTISED = [
    *live_routes.ADVERTISED,
    *(
        f"{method} {within('{prefix}', path)}"
        for method, path in (
            ("POST", PLAN),
            ("GET", PLAN_RESULT.replace("{plan}", "{plan-id}")),
            ("DELETE", PLAN_RESULT.replace("{plan}", "{plan-id}")),
            ("POST", TASKS),
        )
    ),
]
"""The operations that clients may use."""


class PlannedRoutes(LiveRoutes):
    """The handlers."""

    warehouse: ClassVar[str] = PLANNED

    def __init__(
        self,
        tables: Callable[[], Awaitable[Tables]],
        plans: Callable[[], Awaitable[ScanPlans]],
        access: TableAccess,
        limits: CatalogSettings,
        vending: Vending | None = None,
    ) -> None:
        """`tables`, `plans`: load and open them once; raise `Unavailable`. `limits`: those of bodies. `vending` as in `LiveRoutes`."""
        super().__init__(tables, _no_views, access, vending)
        self._plans = plans
        self._limits = limits

    @override
    def add_to(self, router: web.UrlDispatcher) -> None:
        super().add_to(router)
        for method, path, handler in (
            ("POST", PLAN, self.plan),
            ("GET", PLAN_RESULT, self.result),
            ("DELETE", PLAN_RESULT, self.cancel),
            ("POST", TASKS, self.tasks_of),
        ):
            router.add_route(method, planned(path), handler)

    async def plan(self, request: web.Request) -> web.Response:
        """Plan a scan. Without a snapshot, it is of a view with every record that was acknowledged before the request."""
        body = await self._body(request)
        stream = await self._readable(request)
        return _answer(await (await self._plans()).plan(stream, body))

    async def result(self, request: web.Request) -> web.Response:
        """Get a plan again that this server holds."""
        stream = await self._readable(request)
        return _answer((await self._plans()).result(stream, request.match_info["plan"]))

    async def cancel(self, request: web.Request) -> web.Response:
        """Let this server forget a plan."""
        stream = await self._readable(request)
        (await self._plans()).cancel(stream, request.match_info["plan"])
        return web.Response(status=204)

    async def tasks_of(self, request: web.Request) -> web.Response:
        """Get the files of a plan task."""
        body = await self._body(request)
        stream = await self._readable(request)
        return _answer(await (await self._plans()).tasks(stream, body.get("plan-task")))

    @override
    async def _view(self, stream: Stream) -> Answer:
        return await (await self._plans()).load(stream)

    @override
    async def _listed(self, namespace: Namespace) -> list[Listed]:
        return [table for table in await super()._listed(namespace) if stream_suffix(table.folder or "") is not None]

    @override
    def _owning(self, owner: Owner) -> Stream | None:
        return self._access.current_stream(owner) if owner.is_current else super()._owning(owner)

    @override
    async def _stream(self, request: web.Request, name: Name, operation: Operation) -> Stream:
        """Return the stream whose table, or current table, has this name. Raises also `Refused` if it is no stream's."""
        stream = await super()._stream(request, name, operation)
        if stream is None:
            raise absent(name)
        return stream

    async def _readable(self, request: web.Request) -> Stream:
        return await self._stream(request, name_of(request), Operation.READ)

    async def _body(self, request: web.Request) -> Body:
        octets = await bodies.read(request, self._limits.request_bytes_max)
        body: Any = await bodies.parse_many(ANY, octets, self._limits.request_value_count_max)  # JSON
        if not isinstance(body, dict):
            raise invalid("expected a JSON object")
        return body


async def _no_views() -> Any:
    raise AssertionError("views of this warehouse come from its plans")


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
