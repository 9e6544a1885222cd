"""Where the clients of a Stream connect."""

from collections.abc import Mapping, Sequence
from typing import Any

from bearlake_operator.manifests import config, labels, tier
from bearlake_operator.settings import ListenerType, Settings, TierListener


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
            address = (
                f"http://{service}:{port}" if listener in ("rest", "registry", "pulsar_http") else f"{service}:{port}"
            )
            if listener == "pulsar":
                address = f"pulsar://{address}"
            found.append({"protocol": listener.replace("_", "-"), "listener": "internal", "address": address})
        for more in values.listeners:
            host = more.advertised_host or _host(layer, protocol, more, service, balancers)
            port = more.node_port or more.port
            if host:
                found.append({"protocol": protocol, "listener": more.name, "address": f"{host}:{port}"})
    return found


def _host(layer: str, protocol: str, listener: TierListener, service: str, balancers: Mapping[str, str]) -> str:
    match listener.type:
        case ListenerType.NODE_PORT:
            return "<node>"
        case ListenerType.LOAD_BALANCER:
            return balancers.get(tier.listener_service_name(layer, protocol, listener), "")
        case _:
            return service


def balancer_host(service: Mapping[str, Any]) -> str:
    """The host of a Service's load balancer, empty as long as it has none."""
    found = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    host: str = found[0].get("hostname") or found[0].get("ip") or ""
    return host
