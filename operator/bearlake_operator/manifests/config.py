"""The settings document of a tier's pods.

data layer's settings ← what the pod needs to be reached ← the tier's own settings; a later one wins, key by key. What differs from
pod to pod (addresses, names, zones) comes through the environment (`pods.py`).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bearlake_operator.manifests import Manifest, labels
from bearlake_operator.settings import ADVERTISING, DataLayer, Tier, TierListener

FILE = "bearlake.yaml"
FOLDER = "/etc/bearlake/settings"
FILES_FOLDER = "/etc/bearlake/secrets"
TOKEN_FOLDER = "/etc/bearlake/admin"  # noqa: S105 - a path
ADMIN_PORT = 9644
NOTICE_MS = 5_000
"""Time in which clients and Services learn that a pod drains, before it refuses work."""

PORTS: Mapping[str, Mapping[str, int]] = {
    "kafka": {"kafka": 9092},
    "pulsar": {"pulsar": 6650, "pulsar_http": 8080},
    "rest": {"rest": 8082, "registry": 8081},
    "grpc": {"grpc": 50051},
    "compactor": {},
}
"""Listeners of each kind of server by their names in the settings."""


def ports(name: str, tier: Tier) -> dict[str, int]:
    """The tier's internal listeners; `tier.port` is that of the first."""
    found = dict(PORTS[name])
    if tier.port and found:
        found[next(iter(found))] = tier.port
    return found


def is_opened(name: str, tier: Tier, listener: TierListener) -> bool:
    """Whether servers open a further listener themselves. One with the port of an internal listener that tells no addresses
    (`pulsar_http`, all of REST's and gRPC's) only brings clients to that."""
    return name in ADVERTISING and listener.port not in ports(name, tier).values()


def stands_for(name: str, tier: Tier, listener: TierListener) -> str:
    """The internal listener that clients of a further one speak with: the one with its port, or the first."""
    internal = ports(name, tier)
    return next((one for one, port in internal.items() if port == listener.port), next(iter(internal)))


def document(data_layer: DataLayer, name: str, tier: Tier) -> dict[str, Any]:
    """The settings document of the tier's pods."""
    anywhere = "0.0.0.0"  # noqa: S104 - pods are reached by their addresses; the admin API asks for its token
    own: dict[str, Any] = {
        "admin": {"host": anywhere, "port": ADMIN_PORT, "token_file": f"{TOKEN_FOLDER}/{data_layer.admin.key}"},
        "server": {"drain_ms": tier.drain_seconds * 1000, "drain_notice_ms": NOTICE_MS},
    }
    listeners = {listener: {"host": anywhere, "port": port} for listener, port in ports(name, tier).items()}
    if listeners:
        own["listeners"] = listeners
    return merged(merged(data_layer.settings, own), tier.settings)


def config_map(
    name: str, content: Mapping[str, Any], marks: Mapping[str, str], more: Mapping[str, Any] | None = None
) -> Manifest:
    """The document as a ConfigMap, and `more` documents by file name. (JSON is YAML, and has one way to write a value.)"""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels.managed(marks)},
        "data": {
            file: json.dumps(document, indent=2, sort_keys=True) + "\n"
            for file, document in {FILE: content, **(more or {})}.items()
        },
    }


def settings_hash(content: Mapping[str, Any]) -> str:
    """What a pod template carries, so that pods roll exactly when their settings change."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: mappings key by key, everything else as a whole; neither is changed."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
