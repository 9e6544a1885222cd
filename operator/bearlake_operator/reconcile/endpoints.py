"""Where the clients of a Stream connect."""

from collections.abc import Mapping, Sequence
from typing import Any

from bearlake_operator.manifests import config, labels, tier
from bearlake_operator.settings import ListenerType, Settings, TierListener

_SCHEMES: Mapping[str, tuple[str, str]] = {
    "rest": ("http://", "https://"),
    "registry": ("http://", "https://"),
    "pulsar_http": ("http://", "https://"),
    "pulsar": ("pulsar://", "pulsar+ssl://"),
}
"""What stands before an address of a listener, without and with TLS; Kafka's and gRPC's clients take it as it is."""


def endpoints(
    settings: Settings, namespace: str, layer: str, protocols: Sequence[str], balancers: Mapping[str, str]
) -> list[dict[str, str]]:
    """Where clients connect, from inside the cluster and through the tiers' further listeners.

    `balancers` are the hosts of load balancers by the name of their Service; one that has none yet is left out.
    """
    found = []
    for protocol in protocols:
        values = settings.data_layers[layer].tier(protocol)
        service = f"{labels.tier_name(layer, protocol)}.{namespace}.svc"
        for listener, port in config.ports(protocol, values).items():
            found.append(_endpoint(listener, "internal", f"{service}:{port}"))
        for more in values.listeners:
            host = more.advertised_host or _host(layer, protocol, namespace, more, balancers)
            if host:
                address = f"{host}:{more.node_port or more.port}"
                listener = tier.stands_for(protocol, values, more)
                found.append(_endpoint(listener, more.name, address, is_secure=bool(more.tls_secret)))
    return found


def _endpoint(listener: str, name: str, address: str, *, is_secure: bool = False) -> dict[str, str]:
    plain, secure = _SCHEMES.get(listener, ("", ""))
    return {
        "protocol": listener.replace("_", "-"),
        "listener": name,
        "address": f"{secure if is_secure else plain}{address}",
    }


def _host(layer: str, protocol: str, namespace: str, listener: TierListener, balancers: Mapping[str, str]) -> str:
    service = tier.listener_service_name(layer, protocol, listener)
    match listener.type:
        case ListenerType.NODE_PORT:
            return "<node>"
        case ListenerType.LOAD_BALANCER:
            return balancers.get(service, "")
        case _:
            return f"{service}.{namespace}.svc"


def balancer_host(service: Mapping[str, Any]) -> str:
    """The host of a Service's load balancer, empty as long as it has none."""
    found = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    host: str = found[0].get("hostname") or found[0].get("ip") or ""
    return host
