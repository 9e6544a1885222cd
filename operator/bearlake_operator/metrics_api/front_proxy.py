"""Authenticates requests: they must come from the API server's front proxy, for a user that the API server has authenticated.

The API server authorizes a request with RBAC before it forwards it, and TLS accepts only the certificate of its front proxy. A
SubjectAccessReview would repeat that check, and would need a further permission. As a second line of defence against RBAC rules that
admit everyone by mistake, values are served to authenticated users only.

Source: Kubernetes documentation, "Configure the Aggregation Layer", "Extension apiserver authenticates the request".
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bearlake_operator.errors import Invalid, Unavailable
from bearlake_operator.kube import KubeClient

NAMESPACE = "kube-system"
CONFIG_MAP = "extension-apiserver-authentication"
TRUSTED_GROUPS = frozenset({"system:authenticated", "system:masters"})
"""Groups of users who may read values. The aggregator itself reads discovery only; it has no group or `system:masters`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeaderConfig:
    """The API server's published configuration of its front proxy. No `allowed_names`: any name that the CA has signed."""

    client_ca: str
    allowed_names: frozenset[str]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]

    def is_front_proxy(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a verified client certificate (as returned by `SSLSocket.getpeercert`) is the front proxy's."""
        if not certificate:
            return False
        names = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
        return not self.allowed_names or bool(names & self.allowed_names)


async def load(kube: KubeClient) -> RequestHeaderConfig:
    """Read the cluster's configuration. Raises `Unavailable`, `Invalid`."""
    found = await kube.get("ConfigMap", NAMESPACE, CONFIG_MAP)
    values = (found or {}).get("data", {})
    client_ca = values.get("requestheader-client-ca-file")
    if not client_ca:
        raise Unavailable(
            f"{NAMESPACE}/{CONFIG_MAP} has no requestheader-client-ca-file: is the aggregation layer configured?"
        )
    return RequestHeaderConfig(
        client_ca=client_ca,
        allowed_names=frozenset(_list(values, "requestheader-allowed-names")),
        user_headers=tuple(_list(values, "requestheader-username-headers")) or ("X-Remote-User",),
        group_headers=tuple(_list(values, "requestheader-group-headers")) or ("X-Remote-Group",),
    )


def tls_context(config: RequestHeaderConfig, certificate: Path, key: Path) -> ssl.SSLContext:
    """A server context with our certificate that requires a client certificate of the front proxy's CA. Raises `Invalid`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(cadata=config.client_ca)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"cannot load the certificate {certificate} or the front proxy's CA: {error}") from error
    return context


def _list(values: Mapping[str, str], key: str) -> Sequence[str]:
    try:
        found = json.loads(values.get(key, "[]"))
    except ValueError as error:
        raise Invalid(f"{NAMESPACE}/{CONFIG_MAP}: {key} is not a JSON list") from error
    return found if isinstance(found, list) else []
