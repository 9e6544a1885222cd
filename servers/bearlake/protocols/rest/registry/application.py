"""The schema registry's HTTP application: limits around every request, errors in Confluent's format, and the routes.

Whoever binds it to a listener owns its life; it keeps no state of its own.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from bearlake import __version__
from bearlake.errors import BearlakeError
from bearlake.protocols.rest import cors, problems
from bearlake.protocols.rest.openapi.routes import DocumentRoutes
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.registry import operations
from bearlake.protocols.rest.registry.answers import answer, problem, refused
from bearlake.protocols.rest.registry.requests import BadRequest
from bearlake.protocols.rest.registry.rule_routes import RuleRoutes
from bearlake.protocols.rest.registry.schema_routes import SchemaRoutes
from bearlake.protocols.rest.registry.settings import RegistrySettings
from bearlake.protocols.rest.registry.subject_routes import SubjectRoutes
from bearlake.streams.schemas.service import Schemas
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CONTEXT_PREFIX = "/contexts/{context}"
"""Every route is also there inside a context, for clients whose base URL names one."""


def build_application(
    schemas: Schemas, settings: RegistrySettings | None = None, *, cluster_id: str = ""
) -> web.Application:
    """The registry's HTTP application on `schemas`; `cluster_id` is what `/v1/metadata/id` tells."""
    guard = Guard(settings or RegistrySettings())
    return guarded_application(schemas, guard, cluster_id)


def guarded_application(schemas: Schemas, guard: "Guard", cluster_id: str) -> web.Application:
    """The same behind a guard of the caller's, which knows how many requests are under way. Bodies must come as they were sent."""
    app = web.Application(middlewares=[guard.handle])
    app.on_response_prepare.append(guard.prepare)
    bytes_max = guard.settings.request_bytes_max
    for routes in (SchemaRoutes(schemas), SubjectRoutes(schemas, bytes_max), RuleRoutes(schemas, bytes_max)):
        routes.add_to(app.router, "")
        routes.add_to(app.router, CONTEXT_PREFIX)
    app.router.add_get("/", _root)
    app.router.add_get("/exporters", _exporters)
    app.router.add_get("/v1/metadata/version", _version)
    app.router.add_get("/v1/metadata/id", _Cluster(cluster_id).show)
    DocumentRoutes(operations.DESCRIPTION).add_to(app)
    return app


class Guard:
    """What happens around every request."""

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self.connection_count: Callable[[], int] = lambda: 0
        """Gives the number of open connections."""
        self.open_count = 0
        self.is_draining = False
        """Answers close their connections from now on."""
        metrics.REGISTRY_OPEN_REQUESTS.set_function(lambda: self.open_count)
        metrics.REGISTRY_OPEN_REQUESTS_MAX.set(settings.request_count_max)

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The middleware."""
        start = time.perf_counter()
        is_crowded = self.connection_count() > self.settings.connection_count_max
        if is_crowded or self.open_count >= self.settings.request_count_max:
            response: web.StreamResponse = problem(request, 503, 503, "too many requests at once, come back later")
            response.force_close()
        else:
            self.open_count += 1
            try:
                response = await self._answered(request, handler)
            finally:
                self.open_count -= 1
        if self.is_draining or response.status == 413:  # the rest of a body that is too large is not read
            response.force_close()
        metrics.REGISTRY_REQUESTS.labels(f"{response.status // 100}xx").inc()
        metrics.REGISTRY_REQUEST_SECONDS.observe(time.perf_counter() - start)
        return response

    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Last touch on every response's head (`on_response_prepare`)."""
        response.headers["X-Content-Type-Options"] = "nosniff"
        cors.allow(request, response, self.settings.cors_origins)

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if cors.is_preflight(request):
            return cors.preflight(request)
        try:
            async with asyncio.timeout(self.settings.request_timeout_ms / 1000):
                return await handler(request)
        except BadRequest as error:
            return problem(request, 400, 400, str(error))
        except Problem as error:
            return problem(request, error.status, error.code, str(error))
        except BearlakeError as error:
            return refused(request, error)
        except TimeoutError:
            limit = self.settings.request_timeout_ms
            return problem(request, 500, 50002, f"Operation timed out: it took more than {limit} ms")
        except web.HTTPException as error:
            response = problem(request, error.status, error.status, str(problems.of_http(request, error)))
            if allowed := error.headers.get(hdrs.ALLOW):
                response.headers[hdrs.ALLOW] = allowed
            return response
        except ConnectionError:
            raise
        except Exception:  # boundary: a connection's task
            log.exception("registry request failed", extra={"method": request.method, "path": request.path})
            return problem(request, 500, 50001, "Error in the registry; the server's log has the details")


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
