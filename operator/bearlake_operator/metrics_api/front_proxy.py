"""Who may ask: the API server, by the certificate of its front proxy, for the user whom it has authenticated.

The API server authorizes a request by RBAC before it forwards it, and nobody else has a certificate that gets through the handshake.
So nothing is gained by asking it again (SubjectAccessReview), and this process needs no right to ask. What the API server lets through
to everyone it may let through only by mistake: values are for authenticated users.

Source: Kubernetes documentation, "Configure the Aggregation Layer", "Extension apiserver authenticates the request".
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bearlake_operator.errors import Invalid, Unavailable
from bearlake_operator.kube import Kube

NAMESPACE = "kube-system"
CONFIG_MAP = "extension-apiserver-authentication"
TRUSTED_GROUPS = frozenset({"system:authenticated", "system:masters"})
"""Of users who may be told values. The aggregator itself, which looks at what there is, has none or the latter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What the API server says about its front proxy. No `names`: any that the authority has signed."""

    authority: str
    names: frozenset[str]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]

    def is_front_proxy(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a certificate that the handshake has let through is the front proxy's (as `SSLSocket.getpeercert` gives it)."""
        if not certificate:
            return False
        common = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
        return not self.names or bool(common & self.names)


async def find(kube: Kube) -> Trust:
    """The cluster's. Raises `Unavailable`, `Invalid`."""
    found = await kube.get("ConfigMap", NAMESPACE, CONFIG_MAP)
    values = (found or {}).get("data", {})
    authority = values.get("requestheader-client-ca-file")
    if not authority:
        raise Unavailable(f"{NAMESPACE}/{CONFIG_MAP} names no authority of a front proxy: is aggregation configured?")
    return Trust(
        authority=authority,
        names=frozenset(_list(values, "requestheader-allowed-names")),
        user_headers=tuple(_list(values, "requestheader-username-headers")) or ("X-Remote-User",),
        group_headers=tuple(_list(values, "requestheader-group-headers")) or ("X-Remote-Group",),
    )


def context(trust: Trust, certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS with our certificate, for those that have one of the authority. Raises `Invalid` for files that are none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.verify_mode = ssl.CERT_REQUIRED
    try:
        made.load_cert_chain(certificate, key)
        made.load_verify_locations(cadata=trust.authority)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"cannot use the certificate {certificate} or the front proxy's authority: {error}") from error
    return made


def _list(values: Mapping[str, str], key: str) -> Sequence[str]:
    try:
        found = json.loads(values.get(key, "[]"))
    except ValueError as error:
        raise Invalid(f"{NAMESPACE}/{CONFIG_MAP}: {key} is no list") from error
    return found if isinstance(found, list) else []
