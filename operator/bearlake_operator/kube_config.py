"""Address and credentials of the Kubernetes API: those of the pod's service account, or of a kubeconfig.

The service account's token is read again for every request, because the kubelet replaces the file before the token expires.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bearlake_operator.errors import Invalid

_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Address of the API server, and credentials: a bearer token or a client certificate."""

    server: str
    namespace: str
    ca_file: str | None = None
    """CA certificates for the server's certificate; None: those of the system."""
    certificate_files: tuple[str, str] | None = None
    """Client certificate and its private key."""
    token_file: Path | None = None

    @property
    def token(self) -> str | None:
        """The current token, None without a token file."""
        return self.token_file.read_text().strip() if self.token_file is not None else None

    def tls_context(self) -> ssl.SSLContext:
        """The TLS context for connections to the server. As kubectl, it accepts authorities without key identifiers or key usage."""
        context = ssl.create_default_context(cafile=self.ca_file)
        # Python 3.13 sets the strict flag, and then refuses the authorities of EKS and MicroK8s.
        context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT
        if self.certificate_files is not None:
            context.load_cert_chain(*self.certificate_files)
        return context

    @classmethod
    def discover(cls) -> "ClientConfig":
        """The configuration of the pod's service account, else of the kubeconfig (`KUBECONFIG`, ~/.kube/config). Raises `Invalid`."""
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        if host and (_IN_CLUSTER / "token").exists():
            port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
            return cls(
                server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
                namespace=(_IN_CLUSTER / "namespace").read_text().strip(),
                ca_file=str(_IN_CLUSTER / "ca.crt"),
                token_file=_IN_CLUSTER / "token",
            )
        return cls.from_kubeconfig(Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube/config"))

    @classmethod
    def from_kubeconfig(cls, path: Path) -> "ClientConfig":
        """The configuration of a kubeconfig's current context, with a client certificate or a token file. Raises `Invalid`."""
        try:
            config = yaml.safe_load(path.read_text())
            context = _named(config["contexts"], config["current-context"])["context"]
            cluster = _named(config["clusters"], context["cluster"])["cluster"]
            user = _named(config["users"], context["user"])["user"]
        except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
            raise Invalid(f"not running in a pod, and cannot use the kubeconfig {path}: {error!r}") from error
        certificate, key = _file(user, "client-certificate"), _file(user, "client-key")
        token_file = user.get("tokenFile")
        return cls(
            server=cluster["server"],
            namespace=os.environ.get("BEARLAKE_OPERATOR_NAMESPACE") or context.get("namespace", "default"),
            ca_file=_file(cluster, "certificate-authority"),
            certificate_files=(certificate, key) if certificate and key else None,
            token_file=Path(token_file) if token_file else None,
        )


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


def _file(values: Mapping[str, str], key: str) -> str | None:
    """The path of a file that a kubeconfig refers to, or of a new file with its inline content."""
    if key in values:
        return values[key]
    if f"{key}-data" not in values:
        return None
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(base64.b64decode(values[f"{key}-data"]))
    return file.name
