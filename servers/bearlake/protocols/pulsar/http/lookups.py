"""Topic look-ups by HTTP, `/lookup/v2/topic/…`, for clients that are configured with an http:// address."""

from aiohttp import web

from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import paths
from bearlake.protocols.pulsar.http.problems import Problem, not_served
from bearlake.serving.http.login import principal_of
from bearlake.streams.principal import Operation

_LISTENER_HEADER = "X-Pulsar-ListenerName"


class LookupRoutes:
    """Routes of look-ups; they return the same servers as the protocol's LOOKUP."""

    def __init__(self, context: PulsarContext) -> None:
        self._context = context
        self._schemes = context.schemes

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        router.add_get("/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", self._lookup)
        router.add_get("/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle", self._bundle)

    async def _lookup(self, request: web.Request) -> web.Response:
        context, name = self._context, paths.name_of(request)
        topic = await context.topics.find(principal_of(request), str(name), Operation.DESCRIBE)
        if topic is None and not context.settings.auto_create_streams:
            raise Problem(404, f"Topic {name} not found")
        holder = await context.holder(topic.partition) if topic is not None else None
        listener = request.query.get("listenerName") or request.headers.get(_LISTENER_HEADER, "")
        endpoint = f"pulsar:{listener}" if listener else "pulsar"
        server = context.server_for(str(name), endpoint, holder.node_id if holder is not None else None)
        if server is None or endpoint not in self._schemes:
            raise Problem(503, f"no server has a listener {endpoint}")
        scheme = self._schemes[endpoint]
        url = f"{scheme}://{server.endpoints[endpoint]}"
        http = server.endpoints.get("pulsar_http")
        answer = {  # the C++ client requires every field
            "brokerUrl": url if scheme == "pulsar" else "",
            "brokerUrlTls": url if scheme == "pulsar+ssl" else "",
            "httpUrl": f"http://{http}" if http else "",
            "httpUrlTls": "",
            "nativeUrl": url,
        }
        return web.json_response(answer)

    async def _bundle(self, request: web.Request) -> web.Response:
        raise not_served("bundles of namespaces")
