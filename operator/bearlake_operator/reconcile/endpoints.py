"""Where the clients of a Stream connect: addresses that can be given to them as they are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bearlake_operator import api
from bearlake_operator.manifests import config, labels, tier
from bearlake_operator.settings import ListenerType, Settings, Tier, TierListener

_SCHEMES: Mapping[str, tuple[str, str]] = {
    "rest": ("http://", "https://"),
    "registry": ("http://", "https://"),
    "pulsar_http": ("http://", "https://"),
    "pulsar": ("pulsar://", "pulsar+ssl://"),
}
"""What stands before an address of a listener, without and with TLS; Kafka's and gRPC's clients take it as it is."""
_HOST_COUNT_MAX: Mapping[str, int] = {"kafka": 3, "pulsar": 3}
"""Hosts to start from, as far as a listener's clients take several; others are told one."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """What the cluster says of where tiers are.

    `balancers` are the hosts of load balancers by the name of their Service, `nodes` the addresses of nodes with a server that is ready by
    the name of the tier.
    """

    balancers: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def endpoints(
    settings: Settings, namespace: str, layer: str, protocols: Sequence[str], hosts: Hosts
) -> list[dict[str, str]]:
    """Where clients connect, from inside the cluster and through the tiers' further listeners; one that has no host yet is left out."""
    found = []
    for protocol in protocols:
        data_layer = settings.data_layers[layer]
        values = data_layer.tier(protocol)
        service = f"{labels.tier_name(layer, protocol)}.{namespace}.svc"
        served = config.document(data_layer, protocol, values)["listeners"]
        secure = {listener for listener, of_it in served.items() if of_it.get("tls_certificate_file")}
        for listener, port in config.ports(protocol, values).items():
            found.append(_endpoint(listener, "internal", f"{service}:{port}", listener in secure))
        for more in values.listeners:
            listener = config.stands_for(protocol, values, more)
            is_opened = config.is_opened(protocol, values, more)
            is_secure = bool(more.tls_secret) if is_opened else listener in secure
            places = (
                [more.advertised_host] if more.advertised_host else _places(layer, protocol, namespace, more, hosts)
            )
            if address := ",".join(
                f"{_bracketed(host)}:{more.client_port}" for host in places[: _HOST_COUNT_MAX.get(listener, 1)]
            ):
                found.append(_endpoint(listener, more.name, address, is_secure))
    return found


def needs_nodes(tier: Tier) -> bool:
    """Whether clients reach a tier by addresses of nodes."""
    return any(one.type is ListenerType.NODE_PORT and not one.advertised_host for one in tier.listeners)


def nodes_of(pods: Iterable[Mapping[str, Any]]) -> Mapping[str, Sequence[str]]:
    """Addresses of the nodes by tier, given the pods of tiers: where one is ready, sorted so that the same pods give the same."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        marks, status = pod["metadata"].get("labels", {}), pod.get("status", {})
        is_ready = any((one["type"], one["status"]) == ("Ready", "True") for one in status.get("conditions", ()))
        if is_ready and not api.is_going(pod) and "hostIP" in status:
            found.setdefault(labels.group_of(marks), set()).add(status["hostIP"])
    return {name: sorted(addresses) for name, addresses in found.items()}


def _endpoint(listener: str, name: str, address: str, is_secure: bool) -> dict[str, str]:
    plain, secure = _SCHEMES.get(listener, ("", ""))
    return {
        "protocol": listener.replace("_", "-"),
        "listener": name,
        "address": f"{secure if is_secure else plain}{address}",
    }


def _places(layer: str, protocol: str, namespace: str, listener: TierListener, hosts: Hosts) -> Sequence[str]:
    service = tier.listener_service_name(layer, protocol, listener)
    match listener.type:
        case ListenerType.NODE_PORT:
            return hosts.nodes.get(labels.tier_name(layer, protocol), ())
        case ListenerType.LOAD_BALANCER:
            return [hosts.balancers[service]] if service in hosts.balancers else ()
        case _:
            return [f"{service}.{namespace}.svc"]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host  # an IPv6 address


def balancer_host(service: Mapping[str, Any]) -> str:
    """The host of a Service's load balancer, empty as long as it has none."""
    found = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    host: str = found[0].get("hostname") or found[0].get("ip") or ""
    return host
