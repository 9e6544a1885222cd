"""Serves the two APIs over TLS. When the certificate or the front proxy's CA changes, call `serve` again.

The listening socket stays open and only the acceptor is replaced, so no connection is refused. Open connections continue.
"""

import json
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from bearlake_operator import metrics
from bearlake_operator.errors import Invalid
from bearlake_operator.metrics_api import responses, selectors
from bearlake_operator.metrics_api.front_proxy import TRUSTED_GROUPS, RequestHeaderConfig
from bearlake_operator.metrics_api.responses import APIS, CUSTOM, EXTERNAL, Api, Body
from bearlake_operator.metrics_api.scraper import Scraper

BACKLOG = 128
SHUTDOWN_S = 5.0


class Server:
    """Serves the scraper's values; a request never triggers a scrape. Call `close` when done."""

    def __init__(self, scraper: Scraper, namespace: str, host: str, port: int) -> None:
        """`namespace` is that of the pods; no other namespace has values."""
        self._scraper = scraper
        self._namespace = namespace
        self._front_proxy: RequestHeaderConfig | None = None
        self._socket = socket.create_server((host, port), family=_family(host), backlog=BACKLOG)
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=SHUTDOWN_S)
        self._site: web.SockSite | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._socket.getsockname()[1])

    async def serve(self, front_proxy: RequestHeaderConfig, context: ssl.SSLContext) -> None:
        """Serve requests of this front proxy; new connections use `context`."""
        if self._site is None:
            await self._runner.setup()
        self._front_proxy = front_proxy
        before, self._site = self._site, web.SockSite(self._runner, self._socket.dup(), ssl_context=context)
        await self._site.start()
        if before is not None:
            await before.stop()

    async def close(self) -> None:
        """Stop accepting connections, and let pending requests finish."""
        await self._runner.cleanup()
        self._socket.close()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/apis", self._apis)
        app.router.add_get("/openapi/v2", _fixed(responses.EMPTY_OPENAPI_V2))
        app.router.add_get("/openapi/v3", _fixed(responses.EMPTY_OPENAPI_V3))
        for api in APIS:
            app.router.add_get(f"/apis/{api.group}", _fixed(responses.group(api)))
            app.router.add_get(f"/apis/{api.group_version}", _fixed(responses.resources(api)))
        namespaced = "/namespaces/{namespace}"
        app.router.add_get(f"/apis/{CUSTOM.group_version}{namespaced}/pods/{{name}}/{{metric}}", self._pods)
        app.router.add_get(f"/apis/{EXTERNAL.group_version}{namespaced}/{{metric}}", self._external)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Authenticate the request, turn errors into `Status` objects, and count the response."""
        try:
            self._authenticate(request)
            response = await handler(request)
        except _StatusError as error:
            response = web.json_response(responses.failure(*error.args), status=error.args[0])
        except Invalid as error:
            response = web.json_response(responses.failure(400, "BadRequest", str(error)), status=400)
        except web.HTTPException as error:  # raised by the router: unknown path or method
            reason = "MethodNotAllowed" if error.status == 405 else "NotFound"
            response = web.json_response(responses.failure(error.status, reason, error.reason), status=error.status)
        metrics.METRICS_API_REQUESTS.labels(str(response.status)).inc()
        return response

    def _authenticate(self, request: web.Request) -> None:
        config = self._front_proxy
        certificate = request.get_extra_info("peercert")
        if config is None or not config.is_front_proxy(certificate):
            raise _StatusError(
                401, "Unauthorized", "the client certificate is not that of the API server's front proxy"
            )
        if not any(request.headers.get(header) for header in config.user_headers):
            raise _StatusError(401, "Unauthorized", "the request has no header with a user name")

    def _authorize(self, request: web.Request) -> None:
        """Check that the user is authenticated. Raises `_StatusError`."""
        headers = self._front_proxy.group_headers if self._front_proxy else ()
        groups = {group for header in headers for group in request.headers.getall(header, [])}
        if not groups & TRUSTED_GROUPS:
            raise _StatusError(403, "Forbidden", "only authenticated users may read metrics")

    def _metric(self, request: web.Request, api: Api) -> str:
        """The requested metric. Raises `_StatusError`."""
        self._authorize(request)
        metric, namespace = request.match_info["metric"], request.match_info["namespace"]
        if metric not in api.metrics:
            known = ", ".join(api.metrics)
            raise _StatusError(404, "NotFound", f"{api.group} has no metric {metric}; its metrics are {known}")
        if namespace != self._namespace:
            message = f"the namespace {namespace} has no Bearlake pods; they are in {self._namespace}"
            raise _StatusError(404, "NotFound", message)
        return metric

    async def _apis(self, request: web.Request) -> web.Response:
        if "as=APIGroupDiscoveryList" in request.headers.get("Accept", ""):
            return web.Response(
                text=json.dumps(responses.aggregated_discovery()), headers={"Content-Type": responses.AGGREGATED}
            )
        return web.json_response(responses.groups())

    async def _pods(self, request: web.Request) -> web.Response:
        """A metric of one pod, or of all selected pods (`*`). Pods without a known value are left out."""
        metric, name = self._metric(request, CUSTOM), request.match_info["name"]
        if request.query.get("metricLabelSelector"):
            raise Invalid(f"the metric {metric} has no labels, so metricLabelSelector is not supported")
        pods = self._scraper.pods(selectors.parse(request.query.get("labelSelector", "")))
        if name != "*":
            pods = [pod for pod in pods if pod.name == name]
            if not pods:
                raise _StatusError(404, "NotFound", f"no Bearlake server runs in a pod named {name}")
        rates = self._scraper.rates(pods, metric)
        if pods and not rates:
            raise _StatusError(503, "ServiceUnavailable", f"{metric} is currently unknown for all {len(pods)} pods")
        return web.json_response(responses.pod_values(self._namespace, metric, rates))

    async def _external(self, request: web.Request) -> web.Response:
        """The backlogs of the selected Compactors: all of them or none, because the autoscaler adds them up."""
        metric = self._metric(request, EXTERNAL)
        found, are_all_known = self._scraper.backlogs(selectors.parse(request.query.get("labelSelector", "")))
        if not are_all_known:
            raise _StatusError(503, "ServiceUnavailable", f"{metric} is currently unknown: no worker answered")
        values = [(backlog.labels, float(backlog.size_bytes), backlog.time) for backlog in found]
        return web.json_response(responses.external_values(metric, values))


class _StatusError(Exception):
    """Code, reason and message of a `Status` response."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(code, reason, message)


def _fixed(body: Body) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(_: web.Request) -> web.Response:
        return web.json_response(body)

    return respond


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
