"""The settings document of a tier's pods.

It is merged key by key from the data layer's settings, the settings that make pods reachable, and the tier's settings; later ones win.
Values that differ between pods (addresses, names, zones) come from environment variables (`pods.py`).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bearlake_operator.manifests import Manifest, labels
from bearlake_operator.settings import ADVERTISING_PROTOCOLS, DataLayer, Tier, TierListener

FILE = "bearlake.yaml"
FOLDER = "/etc/bearlake/settings"
FILES_FOLDER = "/etc/bearlake/secrets"
TOKEN_FOLDER = "/etc/bearlake/admin"  # noqa: S105 - a path
METRICS_TOKEN_FOLDER = "/etc/bearlake/metrics"  # noqa: S105 - a path
ADMIN_TLS_FOLDER = "/etc/bearlake/admin-tls"
ADMIN_CA_FILE = f"{ADMIN_TLS_FOLDER}/ca.crt"
ADMIN_PORT = 9644
NOTICE_MS = 5_000
"""Time for clients and Services to notice that a pod drains before the pod refuses requests."""

PORTS: Mapping[str, Mapping[str, int]] = {
    "kafka": {"kafka": 9092},
    "pulsar": {"pulsar": 6650, "pulsar_http": 8080},
    "rest": {"rest": 8082, "registry": 8081},
    "grpc": {"grpc": 50051},
    "catalog": {"catalog": 8181},
    "compactor": {},
    "import": {},
}
"""Internal listeners of each kind of server, by their names in the settings, with their default ports."""


def ports(name: str, tier: Tier) -> dict[str, int]:
    """The ports of a tier's internal listeners. `tier.port` overrides that of the first one."""
    found = dict(PORTS[name])
    if tier.port and found:
        found[next(iter(found))] = tier.port
    return found


def opens_own_port(name: str, tier: Tier, listener: TierListener) -> bool:
    """Whether servers open a port of its own for an additional listener.

    They do so for listeners that advertise addresses (Kafka, Pulsar). All others are only a further Service for an internal listener
    (`pulsar_http`, and those of REST, gRPC and the Iceberg REST catalog).
    """
    return name in ADVERTISING_PROTOCOLS and listener.port not in ports(name, tier).values()


def internal_listener(name: str, tier: Tier, listener: TierListener) -> str:
    """The internal listener with the protocol of an additional one: the one with the same port, else the first."""
    internal = ports(name, tier)
    return next((other for other, port in internal.items() if port == listener.port), next(iter(internal)))


def document(data_layer: DataLayer, name: str, tier: Tier) -> dict[str, Any]:
    """The settings document of a tier's pods."""
    any_address = "0.0.0.0"  # noqa: S104 - pods are reached by their addresses; the admin API requires a token
    own: dict[str, Any] = {
        "admin": {
            "host": any_address,
            "port": ADMIN_PORT,
            "token_file": f"{TOKEN_FOLDER}/{data_layer.admin.key}",
            **_metrics_token(data_layer),
            **_admin_tls(data_layer),
        },
        "server": {"drain_ms": tier.drain_seconds * 1000, "drain_notice_ms": NOTICE_MS},
    }
    listeners = {listener: {"host": any_address, "port": port} for listener, port in ports(name, tier).items()}
    if listeners:
        own["listeners"] = listeners
    return merged(merged(data_layer.settings, own), tier.settings)


def _metrics_token(data_layer: DataLayer) -> Mapping[str, str]:
    token = data_layer.admin.metrics
    return {} if token is None else {"metrics_token_file": f"{METRICS_TOKEN_FOLDER}/{token.key}"}


def _admin_tls(data_layer: DataLayer) -> Mapping[str, str]:
    tls = data_layer.admin.tls
    if tls is None:
        return {}
    return {
        "tls_certificate_file": f"{ADMIN_TLS_FOLDER}/tls.crt",
        "tls_key_file": f"{ADMIN_TLS_FOLDER}/tls.key",
        "tls_ca_file": ADMIN_CA_FILE,
        "tls_server_name": tls.server_name,
    }


def config_map(
    name: str, content: Mapping[str, Any], selector_labels: Mapping[str, str], more: Mapping[str, Any] | None = None
) -> Manifest:
    """A ConfigMap with the settings document, and with `more` documents by file name.

    The documents are JSON, which is also YAML, because JSON output is deterministic.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels.managed(selector_labels)},
        "data": {
            file: json.dumps(document, indent=2, sort_keys=True) + "\n"
            for file, document in {FILE: content, **(more or {})}.items()
        },
    }


def settings_hash(content: Mapping[str, Any]) -> str:
    """A hash for the pod template, so that pods roll exactly when their settings change."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` overridden by `over`: mappings are merged key by key, other values replaced. Neither argument is changed."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
