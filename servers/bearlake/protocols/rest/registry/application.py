"""The schema registry's HTTP application: its guard and routes.

The application keeps no state; the code that binds it to a listener owns its lifetime.
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
"""Every route also exists inside a context, for clients whose base URL names a context."""


def build_application(
    schemas: Schemas, settings: RegistrySettings | None = None, *, cluster_id: str = ""
) -> web.Application:
    """Build the registry's HTTP application on `schemas`; `/v1/metadata/id` returns `cluster_id`."""
    settings = settings or RegistrySettings()
    return guarded_application(schemas, RegistryGuard(settings), settings, cluster_id)


def guarded_application(
    schemas: Schemas, guard: RegistryGuard, settings: RegistrySettings, cluster_id: str
) -> web.Application:
    """Build the application behind the caller's guard, which counts open requests. Request bodies must arrive unmodified."""
    app = guard.application()
    for routes in (SchemaRoutes(schemas), SubjectRoutes(schemas, settings), RuleRoutes(schemas, settings)):
        routes.add_to(app.router, "")
        routes.add_to(app.router, CONTEXT_PREFIX)
    app.router.add_get("/", _root)
    app.router.add_get("/exporters", _exporters)
    app.router.add_get("/v1/metadata/version", _version)
    app.router.add_get("/v1/metadata/id", _Cluster(cluster_id).show)
    DocumentRoutes(operations.DESCRIPTION).add_to(app)
    return app


async def _root(request: web.Request) -> web.Response:
    """Return an empty object; clients use it to check that the registry is up."""
    return answer(request, {})


async def _exporters(request: web.Request) -> web.Response:
    """List the exporters to other registries; always empty, because exporters are not supported."""
    return answer(request, [])


async def _version(request: web.Request) -> web.Response:
    """Get the server's version."""
    return answer(request, {"version": __version__, "commitId": ""})


class _Cluster:
    def __init__(self, cluster_id: str) -> None:
        self._shown = {"id": cluster_id, "scope": {"path": [], "clusters": {"schema-registry-cluster": cluster_id}}}

    async def show(self, request: web.Request) -> web.Response:
        """Get the deployment's id."""
        return answer(request, self._shown)
