"""Clusters, brokers, tenants and namespaces.

There is one cluster, the deployment. Tenants and namespaces are parts of topic names: every tenant and namespace with a valid name
exists, with its policies (`policies.py`). Lists show only those with topics, and public/default. To create one only checks its name.
"""

from aiohttp import web

from bearlake import __version__
from bearlake.protocols.pulsar import names
from bearlake.protocols.pulsar.context import PulsarContext
from bearlake.protocols.pulsar.http import paths
from bearlake.protocols.pulsar.http.name_lists import names_answer
from bearlake.protocols.pulsar.http.problems import Problem, not_served
from bearlake.serving.http.login import principal_of
from bearlake.streams.principal import Operation
from bearlake.streams.turns import in_turns

_POLICIES = (
    "backlog_quota_map",
    "deduplicationEnabled",
    "encryption_required",
    "message_ttl_in_seconds",
    "persistence",
    "retention_policies",
    "schema_validation_enforced",
)
"""Policies that a request may ask for when it creates a namespace; all are rejected."""


class ClusterRoutes:
    """Routes of clusters, brokers, tenants and namespaces."""

    def __init__(self, context: PulsarContext) -> None:
        self._context = context

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        router.add_get("/admin/v2/clusters", self._clusters)
        router.add_get("/admin/v2/clusters/{cluster}", self._cluster)
        for path in ("health", "ready"):
            router.add_get(f"/admin/v2/brokers/{path}", self._health)
        router.add_get("/admin/v2/brokers/version", self._version)
        router.add_get("/admin/v2/brokers/configuration/runtime", self._configuration)
        router.add_get("/admin/v2/brokers", self._brokers)
        router.add_get("/admin/v2/brokers/{cluster}", self._brokers)
        router.add_get("/admin/v2/tenants", self._tenants)
        tenant = "/admin/v2/tenants/{tenant}"
        router.add_get(tenant, self._tenant)
        router.add_put(tenant, self._ensure_tenant)
        router.add_delete(tenant, self._delete_tenant)
        router.add_get("/admin/v2/namespaces/{tenant}", self._namespaces)
        namespace = "/admin/v2/namespaces/{tenant}/{namespace}"
        router.add_put(namespace, self._ensure_namespace)
        router.add_delete(namespace, self._delete_namespace)
        router.add_get(f"{namespace}/topics", self._topics)

    # -- clusters and brokers ------------------------------------------------------------------------------------

    async def _clusters(self, request: web.Request) -> web.Response:
        return web.json_response([self._context.servers.cluster_id])

    async def _cluster(self, request: web.Request) -> web.Response:
        self._check_cluster(request)
        urls: dict[str, str] = {}
        for key, scheme, endpoint in (("serviceUrl", "http", "pulsar_http"), ("brokerServiceUrl", "pulsar", "pulsar")):
            addresses = self._addresses(endpoint)
            if addresses:
                urls[key] = f"{scheme}://{','.join(addresses)}"
        return web.json_response(urls)

    async def _brokers(self, request: web.Request) -> web.Response:
        self._check_cluster(request)
        return web.json_response(self._addresses("pulsar_http"))

    async def _health(self, request: web.Request) -> web.Response:
        """Return `ok` if the server accepts clients and the metadata store answers."""
        if self._context.is_draining:
            raise Problem(503, "this server is draining")
        await self._context.streams.bounds([])
        return web.Response(text="ok")

    async def _version(self, request: web.Request) -> web.Response:
        return web.Response(text=f"Bearlake {__version__}")

    async def _configuration(self, request: web.Request) -> web.Response:
        """The supported part of a broker's configuration: `pulsar-admin clusters list` uses it to mark its own cluster."""
        return web.json_response({"clusterName": self._context.servers.cluster_id})

    def _addresses(self, endpoint: str) -> list[str]:
        return [server.endpoints[endpoint] for server in self._context.servers.live() if endpoint in server.endpoints]

    def _check_cluster(self, request: web.Request) -> None:
        cluster = request.match_info.get("cluster")
        if cluster not in (None, self._context.servers.cluster_id):
            raise Problem(404, f"Cluster {cluster} does not exist")

    # -- tenants -------------------------------------------------------------------------------------------------

    async def _tenants(self, request: web.Request) -> web.Response:
        async with self._context.streams.catalog.listing(principal_of(request)):
            used = await self._used(request)
            return await names_answer(sorted({"public", *(namespace.split("/")[0] for namespace in used)}))

    async def _tenant(self, request: web.Request) -> web.Response:
        _check_tenant(request)
        return web.json_response({"adminRoles": [], "allowedClusters": [self._context.servers.cluster_id]})

    async def _ensure_tenant(self, request: web.Request) -> web.Response:
        _check_tenant(request)
        asked = await paths.body_of(request)
        if isinstance(asked, dict):
            if asked.get("adminRoles"):
                raise not_served("admin roles of tenants")
            if set(asked.get("allowedClusters") or ()) - {self._context.servers.cluster_id}:
                raise Problem(412, f"the only cluster is {self._context.servers.cluster_id}")
        return web.Response(status=204)

    async def _delete_tenant(self, request: web.Request) -> web.Response:
        tenant = _check_tenant(request)
        async with self._context.streams.catalog.listing(principal_of(request)):
            used = await self._used(request)
        if any(namespace.startswith(f"{tenant}/") for namespace in used):
            raise Problem(409, "The tenant still has active namespaces")
        return web.Response(status=204)

    # -- namespaces ----------------------------------------------------------------------------------------------

    async def _namespaces(self, request: web.Request) -> web.Response:
        tenant = _check_tenant(request)
        async with self._context.streams.catalog.listing(principal_of(request)):
            used = await self._used(request) | {names.PUBLIC_DEFAULT}
            return await names_answer(sorted(namespace for namespace in used if namespace.startswith(f"{tenant}/")))

    async def _ensure_namespace(self, request: web.Request) -> web.Response:
        paths.namespace_of(request)
        asked = await paths.body_of(request)
        policies = [key for key in _POLICIES if asked.get(key)] if isinstance(asked, dict) else []
        if policies:
            raise not_served(f"policies of namespaces ({', '.join(policies)})")
        return web.Response(status=204)

    async def _delete_namespace(self, request: web.Request) -> web.Response:
        namespace = paths.namespace_of(request)
        async with self._context.streams.catalog.listing(principal_of(request)):
            used = await self._used(request)
        if namespace in used:
            raise Problem(409, "Cannot delete non empty namespace")
        return web.Response(status=204)

    async def _topics(self, request: web.Request) -> web.Response:
        mode = request.query.get("mode", "PERSISTENT").upper()
        who = principal_of(request)
        namespace = paths.namespace_of(request)
        if mode == "NON_PERSISTENT":
            return web.json_response([])
        async with self._context.streams.catalog.listing_partitions(who):
            return await names_answer(await self._context.topics.of_namespace(who, namespace))

    async def _used(self, request: web.Request) -> set[str]:
        """The namespaces with topics that the caller may see."""
        streams, who = self._context.streams, principal_of(request)
        used = set()
        async for part in in_turns(streams.catalog.names()):
            seen = [name for name in part if streams.sees(who, Operation.DESCRIBE, name)]
            used |= {topic.namespace for topic in map(names.topic_of, seen) if topic is not None}
        return used


def _check_tenant(request: web.Request) -> str:
    tenant = request.match_info["tenant"]
    names.check_namespace(f"{tenant}/default")
    return tenant
