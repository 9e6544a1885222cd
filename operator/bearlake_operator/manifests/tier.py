"""All objects of a tier of servers: ConfigMap, Deployment, Services, autoscaler, PodDisruptionBudget and NetworkPolicy."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from bearlake_operator.manifests import Manifest, labels, pods, scaling, server_settings
from bearlake_operator.manifests.deployment import deployment
from bearlake_operator.manifests.network_policy import network_policy
from bearlake_operator.settings import ListenerType, Settings, Tier, TierListener

NO_LOAD_BALANCERS: Mapping[str, str] = MappingProxyType({})

_SERVICE_TYPES = {
    ListenerType.INTERNAL: "ClusterIP",
    ListenerType.NODE_PORT: "NodePort",
    ListenerType.LOAD_BALANCER: "LoadBalancer",
}


def objects(
    settings: Settings, layer_name: str, protocol: str, load_balancers: Mapping[str, str] = NO_LOAD_BALANCERS
) -> list[Manifest]:
    """The desired objects of the tier, without namespace and owner.

    `load_balancers` are the hosts of load balancers by the name of their Service. Servers advertise them, so pods roll when a load
    balancer gets its host, unless the listener has an `advertised_host`.
    """
    data_layer = settings.data_layers[layer_name]
    tier = data_layer.tier(protocol)
    listeners = [_with_host(layer_name, protocol, listener, load_balancers) for listener in tier.listeners]
    tier = replace(tier, listeners=tuple(listeners))
    name, selector_labels = labels.tier_name(layer_name, protocol), labels.selector(layer_name, protocol)
    content = server_settings.document(data_layer, protocol, tier)
    template = pods.template(
        settings,
        data_layer,
        protocol,
        tier,
        selector_labels=selector_labels,
        config_map_name=name,
        settings_hash=server_settings.settings_hash(content),
    )
    found = [
        server_settings.config_map(name, content, selector_labels),
        deployment(name, selector_labels, template, replicas=None if tier.autoscaling else tier.replicas),
        _service(name, selector_labels, server_settings.ports(protocol, tier), protocol, data_layer.admin.scheme),
        _headless(name, selector_labels, server_settings.ports(protocol, tier)),
        *(_listener_service(name, selector_labels, protocol, tier, listener) for listener in tier.listeners),
    ]
    if tier.autoscaling is not None:
        found.append(scaling.for_tier(name, tier.autoscaling, selector_labels))
    if tier.disruption_budget:
        found.append(_disruption_budget(name, selector_labels, tier.max_unavailable))
    if settings.network_policies.enabled and tier.network_policy:
        own_ports = [
            listener.port for listener in tier.listeners if server_settings.opens_own_port(protocol, tier, listener)
        ]
        ports = [*server_settings.ports(protocol, tier).values(), *own_ports]
        found.append(network_policy(name, selector_labels, settings.network_policies, ports=ports))
    return found


def _service(
    name: str, selector_labels: Mapping[str, str], ports: Mapping[str, int], protocol: str, admin_scheme: str
) -> Manifest:
    """The Service that clients connect to first; it prefers pods in the client's zone."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels.managed(selector_labels)},
        "spec": {
            "selector": dict(selector_labels),
            "trafficDistribution": "PreferClose",
            "ports": [
                *(_port(listener, port, protocol) for listener, port in ports.items()),
                {**_port("admin", server_settings.ADMIN_PORT, protocol), "appProtocol": admin_scheme},
            ],
        },
    }


def _headless(name: str, selector_labels: Mapping[str, str], ports: Mapping[str, int]) -> Manifest:
    """A headless Service: DNS names of all pods, for clients that balance load themselves, and for scraping."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-pods", "labels": labels.managed(selector_labels)},
        "spec": {
            "clusterIP": "None",
            "selector": dict(selector_labels),
            "ports": [
                *({"name": pods.port_name(listener), "port": port} for listener, port in ports.items()),
                {"name": "admin", "port": server_settings.ADMIN_PORT},
            ],
        },
    }


def _with_host(
    layer_name: str, protocol: str, listener: TierListener, load_balancers: Mapping[str, str]
) -> TierListener:
    host = load_balancers.get(listener_service_name(layer_name, protocol, listener), "")
    if listener.type is not ListenerType.LOAD_BALANCER or listener.advertised_host or not host:
        return listener
    return replace(listener, advertised_host=host)


def listener_service_name(layer_name: str, protocol: str, listener: TierListener) -> str:
    """The name of the Service of an additional listener."""
    return f"{labels.tier_name(layer_name, protocol)}-{pods.port_name(listener.name)}"


def _listener_service(
    name: str, selector_labels: Mapping[str, str], protocol: str, tier: Tier, listener: TierListener
) -> Manifest:
    """The Service of an additional listener. It targets the listener's own port if servers open one, else the internal listener."""
    has_own_port = server_settings.opens_own_port(protocol, tier, listener)
    internal = server_settings.internal_listener(protocol, tier, listener)
    port: Manifest = {
        "name": pods.port_name(listener.name),
        "port": listener.port,
        "targetPort": pods.port_name(listener.name if has_own_port else internal),
    }
    if listener.node_port:
        port["nodePort"] = listener.node_port
    spec: Manifest = {"type": _SERVICE_TYPES[listener.type], "selector": dict(selector_labels), "ports": [port]}
    if listener.type is not ListenerType.INTERNAL:
        # Servers that advertise their node need no second hop. Clients of all other listeners may connect to any node.
        is_local = has_own_port and listener.type is ListenerType.NODE_PORT
        spec["externalTrafficPolicy"] = "Local" if is_local else "Cluster"
    if listener.load_balancer_class:
        spec["loadBalancerClass"] = listener.load_balancer_class
    if listener.load_balancer_source_ranges:
        spec["loadBalancerSourceRanges"] = list(listener.load_balancer_source_ranges)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"{name}-{pods.port_name(listener.name)}",
            "labels": labels.managed(selector_labels),
            **({"annotations": dict(listener.annotations)} if listener.annotations else {}),
        },
        "spec": spec,
    }


def _port(listener: str, port: int, protocol: str) -> Manifest:
    protocols = {
        "rest": "http",
        "registry": "http",
        "catalog": "http",
        "pulsar_http": "http",
        "grpc": "kubernetes.io/h2c",
    }
    return {
        "name": pods.port_name(listener),
        "port": port,
        "targetPort": pods.port_name(listener),
        "appProtocol": protocols.get(listener, f"bearlake.dev/{protocol}"),
    }


def _disruption_budget(name: str, selector_labels: Mapping[str, str], max_unavailable: int) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "labels": labels.managed(selector_labels)},
        "spec": {
            "maxUnavailable": max_unavailable,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": dict(selector_labels)},
        },
    }
