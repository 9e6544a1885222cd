"""All objects of a protocol's tier: its settings, its pods, how clients reach them, how many there are, and what may take them away."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from bearlake_operator.manifests import Manifest, config, labels, pods, scaling
from bearlake_operator.settings import ListenerType, Settings, Tier, TierListener

SURGE = "25%"
NO_BALANCERS: Mapping[str, str] = MappingProxyType({})
MIN_READY_SECONDS = 5
"""A new pod must hold this long before an old one goes."""

_SERVICE_TYPES = {
    ListenerType.INTERNAL: "ClusterIP",
    ListenerType.NODE_PORT: "NodePort",
    ListenerType.LOAD_BALANCER: "LoadBalancer",
}


def objects(
    settings: Settings, layer_name: str, protocol: str, balancers: Mapping[str, str] = NO_BALANCERS
) -> list[Manifest]:
    """The desired objects of the tier, without namespace and owner.

    `balancers` are the hosts of load balancers by the name of their Service: servers tell them to clients, so that pods roll when one gets
    its host, unless the listener names one.
    """
    data_layer = settings.data_layers[layer_name]
    tier = data_layer.tier(protocol)
    told = [_with_host(layer_name, protocol, listener, balancers) for listener in tier.listeners]
    tier = replace(tier, listeners=tuple(told))
    name, marks = labels.tier_name(layer_name, protocol), labels.selector(layer_name, protocol)
    content = config.document(data_layer, protocol, tier)
    template = pods.template(
        settings,
        data_layer,
        protocol,
        tier,
        marks=marks,
        config_name=name,
        settings_hash=config.settings_hash(content),
    )
    found = [
        config.config_map(name, content, marks),
        deployment(name, marks, template, replicas=None if tier.autoscaling else tier.replicas),
        _service(name, marks, config.ports(protocol, tier), protocol),
        _headless(name, marks, config.ports(protocol, tier)),
        *(_listener_service(name, marks, protocol, tier, listener) for listener in tier.listeners),
    ]
    if tier.autoscaling is not None:
        found.append(scaling.of_tier(name, tier.autoscaling, marks))
    if tier.disruption_budget:
        found.append(_disruption_budget(name, marks, tier.max_unavailable))
    if tier.network_policy:
        opened = [one.port for one in tier.listeners if config.is_opened(protocol, tier, one)]
        found.append(network_policy(name, marks, [*config.ports(protocol, tier).values(), *opened]))
    return found


def deployment(name: str, marks: Mapping[str, str], template: Manifest, *, replicas: int | None) -> Manifest:
    """A Deployment that makes new pods before old ones go; without `replicas` its number is an autoscaler's."""
    spec: Manifest = {
        "selector": {"matchLabels": dict(marks)},
        "minReadySeconds": MIN_READY_SECONDS,
        "revisionHistoryLimit": 3,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": SURGE}},
        "template": template,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "spec": spec,
    }


def _service(name: str, marks: Mapping[str, str], ports: Mapping[str, int], protocol: str) -> Manifest:
    """Where clients start; near ones are preferred."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "spec": {
            "selector": dict(marks),
            "trafficDistribution": "PreferClose",
            "ports": [
                *(_port(listener, port, protocol) for listener, port in ports.items()),
                _port("admin", config.ADMIN_PORT, "http"),
            ],
        },
    }


def _headless(name: str, marks: Mapping[str, str], ports: Mapping[str, int]) -> Manifest:
    """A name for every pod, for clients that balance on their own, and for scraping."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-pods", "labels": labels.managed(marks)},
        "spec": {
            "clusterIP": "None",
            "selector": dict(marks),
            "ports": [
                *({"name": pods.port_name(listener), "port": port} for listener, port in ports.items()),
                {"name": "admin", "port": config.ADMIN_PORT},
            ],
        },
    }


def _with_host(layer_name: str, protocol: str, listener: TierListener, balancers: Mapping[str, str]) -> TierListener:
    host = balancers.get(listener_service_name(layer_name, protocol, listener), "")
    if listener.type is not ListenerType.LOAD_BALANCER or listener.advertised_host or not host:
        return listener
    return replace(listener, advertised_host=host)


def listener_service_name(layer_name: str, protocol: str, listener: TierListener) -> str:
    """Name of the Service of a listener beside the internal one."""
    return f"{labels.tier_name(layer_name, protocol)}-{pods.port_name(listener.name)}"


def _listener_service(
    name: str, marks: Mapping[str, str], protocol: str, tier: Tier, listener: TierListener
) -> Manifest:
    """Where clients of a listener start: the one of that name if servers open it, else the internal one that it stands for."""
    is_opened = config.is_opened(protocol, tier, listener)
    same = config.stands_for(protocol, tier, listener)
    port: Manifest = {
        "name": pods.port_name(listener.name),
        "port": listener.port,
        "targetPort": pods.port_name(listener.name if is_opened else same),
    }
    if listener.node_port:
        port["nodePort"] = listener.node_port
    spec: Manifest = {"type": _SERVICE_TYPES[listener.type], "selector": dict(marks), "ports": [port]}
    if listener.type is not ListenerType.INTERNAL:
        # Clients that are told the node of their server need no second hop; others may come to any node.
        is_local = is_opened and listener.type is ListenerType.NODE_PORT
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
            "labels": labels.managed(marks),
            **({"annotations": dict(listener.annotations)} if listener.annotations else {}),
        },
        "spec": spec,
    }


def _port(listener: str, port: int, protocol: str) -> Manifest:
    words = {"rest": "http", "registry": "http", "pulsar_http": "http", "admin": "http", "grpc": "kubernetes.io/h2c"}
    return {
        "name": pods.port_name(listener),
        "port": port,
        "targetPort": pods.port_name(listener),
        "appProtocol": words.get(listener, f"bearlake.dev/{protocol}"),
    }


def _disruption_budget(name: str, marks: Mapping[str, str], max_unavailable: int) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "spec": {
            "maxUnavailable": max_unavailable,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": dict(marks)},
        },
    }


def network_policy(name: str, marks: Mapping[str, str], ports: Sequence[int]) -> Manifest:
    """Lets in what comes to these ports, and to the admin API's (which asks for its token), from anywhere; what goes out is not limited."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "spec": {
            "podSelector": {"matchLabels": dict(marks)},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"port": port, "protocol": "TCP"} for port in (*ports, config.ADMIN_PORT)]}],
        },
    }
