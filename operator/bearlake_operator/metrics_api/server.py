"""The two APIs over TLS. Certificates and the front proxy's authority may change while it serves: `serve` is called again.

The socket stays open and only what accepts from it is replaced, so that no connection is refused meanwhile; open ones go on.
"""

import json
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from bearlake_operator import metrics
from bearlake_operator.errors import Invalid
from bearlake_operator.metrics_api import answers, selectors
from bearlake_operator.metrics_api.answers import APIS, CUSTOM, EXTERNAL, Api, Document
from bearlake_operator.metrics_api.front_proxy import TRUSTED_GROUPS, Trust
from bearlake_operator.metrics_api.scraper import Scraper

BACKLOG = 128
SHUTDOWN_S = 5.0


class Server:
    """Answers from what a scraper has; asks nobody. `close` comes last."""

    def __init__(self, scraper: Scraper, namespace: str, host: str, port: int) -> None:
        """`namespace` whose pods are known; no other has values."""
        self._scraper = scraper
        self._namespace = namespace
        self._trust: Trust | None = None
        self._socket = socket.create_server((host, port), family=_family(host), backlog=BACKLOG)
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=SHUTDOWN_S)
        self._site: web.SockSite | None = None

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self._socket.getsockname()[1])

    async def serve(self, trust: Trust, context: ssl.SSLContext) -> None:
        """Answer to those whom `trust` names, with `context` from now on."""
        if self._site is None:
            await self._runner.setup()
        self._trust = trust
        before, self._site = self._site, web.SockSite(self._runner, self._socket.dup(), ssl_context=context)
        await self._site.start()
        if before is not None:
            await before.stop()

    async def close(self) -> None:
        """Stop accepting, let what is under way finish."""
        await self._runner.cleanup()
        self._socket.close()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/apis", self._apis)
        app.router.add_get("/openapi/v2", _fixed(answers.NO_SWAGGER))
        app.router.add_get("/openapi/v3", _fixed(answers.NO_OPENAPI))
        for api in APIS:
            app.router.add_get(f"/apis/{api.group}", _fixed(answers.group(api)))
            app.router.add_get(f"/apis/{api.group_version}", _fixed(answers.resources(api)))
        of = "/namespaces/{namespace}"
        app.router.add_get(f"/apis/{CUSTOM.group_version}{of}/pods/{{name}}/{{metric}}", self._pods)
        app.router.add_get(f"/apis/{EXTERNAL.group_version}{of}/{{metric}}", self._external)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Only the front proxy, for a user; problems in the words of Kubernetes; everything is counted."""
        try:
            self._authenticate(request)
            response = await handler(request)
        except _Refused as refused:
            response = web.json_response(answers.refusal(*refused.args), status=refused.args[0])
        except Invalid as error:
            response = web.json_response(answers.refusal(400, "BadRequest", str(error)), status=400)
        except web.HTTPException as error:  # of the router: no such path, no such method
            reason = "MethodNotAllowed" if error.status == 405 else "NotFound"
            response = web.json_response(answers.refusal(error.status, reason, error.reason), status=error.status)
        metrics.METRICS_API_REQUESTS.labels(str(response.status)).inc()
        return response

    def _authenticate(self, request: web.Request) -> None:
        trust = self._trust
        certificate = request.get_extra_info("peercert")
        if trust is None or not trust.is_front_proxy(certificate):
            raise _Refused(401, "Unauthorized", "only the API server's front proxy is answered")
        if not any(request.headers.get(header) for header in trust.user_headers):
            raise _Refused(401, "Unauthorized", "the front proxy names no user")

    def _authorize(self, request: web.Request) -> None:
        """Values are for authenticated users."""
        headers = self._trust.group_headers if self._trust else ()
        groups = {group for header in headers for group in request.headers.getall(header, [])}
        if not groups & TRUSTED_GROUPS:
            raise _Refused(403, "Forbidden", "metrics are for authenticated users")

    def _metric(self, request: web.Request, api: Api) -> str:
        """The metric asked for. Raises `_Refused`."""
        self._authorize(request)
        metric, namespace = request.match_info["metric"], request.match_info["namespace"]
        if metric not in api.metrics:
            known = ", ".join(api.metrics)
            raise _Refused(404, "NotFound", f"there is no metric {metric} in {api.group}; there are {known}")
        if namespace != self._namespace:
            message = f"the namespace {namespace} has no pods of Bearlake's; they are in {self._namespace}"
            raise _Refused(404, "NotFound", message)
        return metric

    async def _apis(self, request: web.Request) -> web.Response:
        if "as=APIGroupDiscoveryList" in request.headers.get("Accept", ""):
            return web.Response(text=json.dumps(answers.all_in_one()), headers={"Content-Type": answers.AGGREGATED})
        return web.json_response(answers.groups())

    async def _pods(self, request: web.Request) -> web.Response:
        """A metric of one pod, or (`*`) of all that are selected and known; those that are not known are left out."""
        metric, name = self._metric(request, CUSTOM), request.match_info["name"]
        if request.query.get("metricLabelSelector"):
            raise Invalid(f"the metric {metric} has no labels to select by")
        pods = self._scraper.pods(selectors.parse(request.query.get("labelSelector", "")))
        if name != "*":
            pods = [pod for pod in pods if pod.name == name]
            if not pods:
                raise _Refused(404, "NotFound", f"there is no server in a pod {name}")
        rates = self._scraper.rates(pods, metric)
        if pods and not rates:
            raise _Refused(503, "ServiceUnavailable", f"{metric} is not known of any of {len(pods)} pods now")
        return web.json_response(answers.pod_values(self._namespace, metric, rates))

    async def _external(self, request: web.Request) -> web.Response:
        """The backlogs of the Compactors that are selected: of all of them or none, for whoever asks adds them up."""
        metric = self._metric(request, EXTERNAL)
        found, is_whole = self._scraper.backlogs(selectors.parse(request.query.get("labelSelector", "")))
        if not is_whole:
            raise _Refused(503, "ServiceUnavailable", f"{metric} is not known now: no worker could be asked")
        values = [(one.labels, float(one.size_bytes), one.time) for one in found]
        return web.json_response(answers.external_values(metric, values))


class _Refused(Exception):
    """Status, reason and message of an answer that is none."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(code, reason, message)


def _fixed(document: Document) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(document)

    return answer


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
