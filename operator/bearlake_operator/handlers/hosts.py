"""Where tiers are, for what Streams show: what clouds gave to Services, and the nodes of servers that are ready.

Pods are asked for only where clients come by nodes; nobody watches them. A pod that comes or goes changes its Deployment's status, which
wakes the worker that asks.
"""

from collections.abc import Mapping

from bearlake_operator.handlers.apply import SELECTOR
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import Kube
from bearlake_operator.manifests import labels
from bearlake_operator.reconcile import endpoints
from bearlake_operator.settings import PROTOCOLS, Settings


def balancers(world: World) -> Mapping[str, str]:
    """The hosts of load balancers by the name of their Service, of those that have one."""
    services = world.of("Service")
    return {one["metadata"]["name"]: host for one in services if (host := endpoints.balancer_host(one))}


async def of_layer(settings: Settings, layer: str, kube: Kube, world: World) -> endpoints.Hosts:
    """The hosts of a data layer's tiers. Raises `Unavailable`, `Invalid`."""
    tiers = [settings.data_layers[layer].tier(protocol) for protocol in PROTOCOLS]
    if not any(endpoints.needs_nodes(tier) for tier in tiers):
        return endpoints.Hosts(balancers(world))
    pods = await kube.list("Pod", kube.namespace, f"{SELECTOR},{labels.DATA_LAYER}={layer}")
    return endpoints.Hosts(balancers(world), endpoints.nodes_of(pods.resources))
