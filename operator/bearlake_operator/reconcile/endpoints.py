"""Where the clients of a Stream connect: addresses that can be pasted into a client's configuration."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bearlake_operator import api
from bearlake_operator.manifests import labels, server_settings, tier
from bearlake_operator.settings import ListenerType, Settings, Tier, TierListener

_SCHEMES: Mapping[str, tuple[str, str]] = {
    "rest": ("http://", "https://"),
    "registry": ("http://", "https://"),
    "pulsar_http": ("http://", "https://"),
    "pulsar": ("pulsar://", "pulsar+ssl://"),
}
"""URL schemes of listeners, without and with TLS. Addresses for Kafka and gRPC have none."""
_HOST_COUNT_MAX: Mapping[str, int] = {"kafka": 3, "pulsar": 3}
"""The largest number of hosts in an address, for listeners whose clients accept several; otherwise 1."""


@dataclass(frozen=True, slots=True)
class ExternalAddresses:
    """Addresses at which clients outside of the cluster reach the tiers.

    `load_balancers` are the hosts of load balancers by the name of their Service; `nodes` are the addresses of the nodes with a ready
    server, by the name of the tier.
    """

    load_balancers: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def endpoints(
    settings: Settings, namespace: str, layer: str, protocols: Sequence[str], external: ExternalAddresses
) -> list[dict[str, str]]:
    """The endpoints of the internal and the additional listeners. A listener without a known host is left out."""
    found = []
    for protocol in protocols:
        data_layer = settings.data_layers[layer]
        values = data_layer.tier(protocol)
        service = f"{labels.tier_name(layer, protocol)}.{namespace}.svc"
        configured = server_settings.document(data_layer, protocol, values)["listeners"]
        secure = {name for name, listener in configured.items() if listener.get("tls_certificate_file")}
        for name, port in server_settings.ports(protocol, values).items():
            found.append(_endpoint(name, "internal", f"{service}:{port}", name in secure))
        for listener in values.listeners:
            internal = server_settings.internal_listener(protocol, values, listener)
            has_own_port = server_settings.opens_own_port(protocol, values, listener)
            is_secure = bool(listener.tls_secret) if has_own_port else internal in secure
            hosts = _hosts(layer, protocol, namespace, listener, external)[: _HOST_COUNT_MAX.get(internal, 1)]
            if address := ",".join(f"{_bracketed(host)}:{listener.client_port}" for host in hosts):
                found.append(_endpoint(internal, listener.name, address, is_secure))
    return found


def needs_nodes(tier: Tier) -> bool:
    """Whether clients reach a tier through the addresses of nodes."""
    return any(listener.type is ListenerType.NODE_PORT and not listener.advertised_host for listener in tier.listeners)


def nodes_of(pods: Iterable[Mapping[str, Any]]) -> Mapping[str, Sequence[str]]:
    """The sorted addresses of the nodes with a ready pod, by the name of the tier."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        pod_labels, status = pod["metadata"].get("labels", {}), pod.get("status", {})
        conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
        if conditions.get("Ready") == "True" and not api.is_terminating(pod) and "hostIP" in status:
            found.setdefault(labels.group_of(pod_labels), set()).add(status["hostIP"])
    return {name: sorted(addresses) for name, addresses in found.items()}


def load_balancer_host(service: Mapping[str, Any]) -> str:
    """The host of a Service's load balancer; empty while it has none."""
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    host: str = ingress[0].get("hostname") or ingress[0].get("ip") or ""
    return host


def _endpoint(listener: str, name: str, address: str, is_secure: bool) -> dict[str, str]:
    plain, secure = _SCHEMES.get(listener, ("", ""))
    return {
        "protocol": listener.replace("_", "-"),
        "listener": name,
        "address": f"{secure if is_secure else plain}{address}",
    }


def _hosts(
    layer: str, protocol: str, namespace: str, listener: TierListener, external: ExternalAddresses
) -> Sequence[str]:
    if listener.advertised_host:
        return [listener.advertised_host]
    service = tier.listener_service_name(layer, protocol, listener)
    match listener.type:
        case ListenerType.NODE_PORT:
            return external.nodes.get(labels.tier_name(layer, protocol), ())
        case ListenerType.LOAD_BALANCER:
            return [external.load_balancers[service]] if service in external.load_balancers else ()
        case _:
            return [f"{service}.{namespace}.svc"]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host  # an IPv6 address
