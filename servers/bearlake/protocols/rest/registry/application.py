"""The schema registry's HTTP application: its guard and the routes.

Whoever binds it to a listener owns its life; it keeps no state of its own.
"""

from aiohttp import web

from bearlake import __version__
from bearlake.protocols.rest.registry import operations
from bearlake.protocols.rest.registry.answers import answer
from bearlake.protocols.rest.registry.guard import RegistryGuard
from bearlake.protocols.rest.registry.rule_routes import RuleRoutes
from bearlake.protocols.rest.registry.schema_routes import SchemaRoutes
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.protocols.rest.registry.subject_routes import SubjectRoutes
from bearlake.serving.http.openapi.routes import DocumentRoutes
from bearlake.streams.schemas.service import Schemas

CONTEXT_PREFIX = "/contexts/{context}"
"""Every route is also there inside a context, for clients whose base URL names one."""


def build_application(
    schemas: Schemas, settings: RegistrySettings | None = None, *, cluster_id: str = ""
) -> web.Application:
    """The registry's HTTP application on `schemas`; `cluster_id` is what `/v1/metadata/id` tells."""
    settings = settings or RegistrySettings()
    return guarded_application(schemas, RegistryGuard(settings), settings, cluster_id)


def guarded_application(
    schemas: Schemas, guard: RegistryGuard, settings: RegistrySettings, cluster_id: str
) -> web.Application:
    """The same behind a guard of the caller's, which knows how many requests are under way. Bodies must come as they were sent."""
    app = guard.application()
    bytes_max = settings.request_bytes_max
    for routes in (SchemaRoutes(schemas), SubjectRoutes(schemas, bytes_max), RuleRoutes(schemas, bytes_max)):
        routes.add_to(app.router, "")
        routes.add_to(app.router, CONTEXT_PREFIX)
    app.router.add_get("/", _root)
    app.router.add_get("/exporters", _exporters)
    app.router.add_get("/v1/metadata/version", _version)
    app.router.add_get("/v1/metadata/id", _Cluster(cluster_id).show)
    DocumentRoutes(operations.DESCRIPTION).add_to(app)
    return app


async def _root(request: web.Request) -> web.Response:
    """Nothing; that it is answered says that the registry is there."""
    return answer(request, {})


async def _exporters(request: web.Request) -> web.Response:
    """Names of exporters to other registries: there are none, and none can be made."""
    return answer(request, [])


async def _version(request: web.Request) -> web.Response:
    """The version of the server."""
    return answer(request, {"version": __version__, "commitId": ""})


class _Cluster:
    def __init__(self, cluster_id: str) -> None:
        self._shown = {"id": cluster_id, "scope": {"path": [], "clusters": {"schema-registry-cluster": cluster_id}}}

    async def show(self, request: web.Request) -> web.Response:
        """The id of the deployment."""
        return answer(request, self._shown)
