"""The addresses at which clients outside of the cluster reach the tiers: load balancers, and nodes with a ready server.

Pods are listed only if clients connect through nodes; the operator does not watch pods. When a pod starts or stops, the status of its
Deployment changes, and that wakes the controller that lists the pods.
"""

from collections.abc import Mapping

from bearlake_operator.controllers.apply import SELECTOR
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.kube import KubeClient
from bearlake_operator.manifests import labels
from bearlake_operator.reconcile import endpoints
from bearlake_operator.settings import PROTOCOLS, Settings


def load_balancer_hosts(cache: ResourceCache) -> Mapping[str, str]:
    """The hosts of load balancers by the name of their Service; Services without one are left out."""
    services = cache.list("Service")
    return {
        service["metadata"]["name"]: host for service in services if (host := endpoints.load_balancer_host(service))
    }


async def of_data_layer(
    settings: Settings, layer: str, kube: KubeClient, cache: ResourceCache
) -> endpoints.ExternalAddresses:
    """The external addresses of a data layer's tiers. Raises `Unavailable`, `Invalid`."""
    tiers = [settings.data_layers[layer].tier(protocol) for protocol in PROTOCOLS]
    if not any(endpoints.needs_nodes(tier) for tier in tiers):
        return endpoints.ExternalAddresses(load_balancer_hosts(cache))
    pods = await kube.list("Pod", kube.namespace, f"{SELECTOR},{labels.DATA_LAYER}={layer}")
    return endpoints.ExternalAddresses(load_balancer_hosts(cache), endpoints.nodes_of(pods.resources))
