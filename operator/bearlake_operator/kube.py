"""The Kubernetes API, as far as the operator needs it: list, server-side apply, status, delete, events, leases.

One failed answer is not the end: what may succeed later (409, 429, 5xx, a cut connection) is tried again with growing pauses until a
deadline, then it is `Unavailable`. What says that the request itself is wrong is `Invalid` with the server's own words.

The service account's token is read again for every request: kubelets replace the file before it expires.
Source: Kubernetes API conventions; KEP-555 (server-side apply).
"""

import asyncio
import base64
import json
import os
import random
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import yaml

from bearlake_operator.errors import Conflict, Gone, Invalid, Unavailable
from bearlake_operator.metrics import API_REQUESTS

FIELD_MANAGER = "bearlake-operator"
APPLY_FORM = "application/apply-patch+yaml"
PAGE_COUNT = 500
REQUEST_TIMEOUT_S = 20.0
DEADLINE_S = 30.0
COURTESY_S = 3.0
"""The deadline of what may as well not be done."""
FIRST_PAUSE_S = 0.2
PAUSE_MAX_S = 10.0

_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_RETRIED = frozenset({409, 429, 500, 502, 503, 504})

Resource = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resource and where its API is."""

    api_version: str
    plural: str

    @property
    def prefix(self) -> str:
        """Path of the kind's group and version."""
        return f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"


KINDS: Mapping[str, Kind] = {
    "Stream": Kind("bearlake.dev/v1alpha1", "streams"),
    "Compactor": Kind("bearlake.dev/v1alpha1", "compactors"),
    "ConfigMap": Kind("v1", "configmaps"),
    "Pod": Kind("v1", "pods"),
    "Service": Kind("v1", "services"),
    "Deployment": Kind("apps/v1", "deployments"),
    "HorizontalPodAutoscaler": Kind("autoscaling/v2", "horizontalpodautoscalers"),
    "PodDisruptionBudget": Kind("policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": Kind("networking.k8s.io/v1", "networkpolicies"),
    "ScaledObject": Kind("keda.sh/v1alpha1", "scaledobjects"),
    "TriggerAuthentication": Kind("keda.sh/v1alpha1", "triggerauthentications"),
    "Event": Kind("events.k8s.io/v1", "events"),
    "Lease": Kind("coordination.k8s.io/v1", "leases"),
}


OPTIONAL_KINDS = frozenset({"ScaledObject", "TriggerAuthentication"})
"""Kinds that a cluster may not have."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Resources as of a version of the whole store: those with a newer version may be missing."""

    resources: Sequence[Resource]
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the API is and how to be let in: with a token (its file is read for every request), or with a client certificate."""

    server: str
    namespace: str
    authority_file: str | None = None
    """Certificates that the server is trusted by; None: those of the system."""
    certificate_files: tuple[str, str] | None = None
    """Client certificate and its key."""
    token_file: Path | None = None

    @property
    def token(self) -> str | None:
        """The present token, if that is the way in."""
        return self.token_file.read_text().strip() if self.token_file is not None else None

    def tls(self) -> ssl.SSLContext:
        """A context for connections to the server."""
        context = ssl.create_default_context(cafile=self.authority_file)
        if self.certificate_files is not None:
            context.load_cert_chain(*self.certificate_files)
        return context

    @classmethod
    def find(cls) -> "Access":
        """That of the pod, or else of the kubeconfig (`KUBECONFIG`, ~/.kube/config). Raises `Invalid`."""
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        if host and (_IN_CLUSTER / "token").exists():
            port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
            return cls(
                server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
                namespace=(_IN_CLUSTER / "namespace").read_text().strip(),
                authority_file=str(_IN_CLUSTER / "ca.crt"),
                token_file=_IN_CLUSTER / "token",
            )
        return cls.of_kubeconfig(Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube/config"))

    @classmethod
    def of_kubeconfig(cls, path: Path) -> "Access":
        """That of a kubeconfig's current context: with a client certificate or a token file. Raises `Invalid`."""
        try:
            config = yaml.safe_load(path.read_text())
            context = _named(config["contexts"], config["current-context"])["context"]
            cluster = _named(config["clusters"], context["cluster"])["cluster"]
            user = _named(config["users"], context["user"])["user"]
        except (OSError, KeyError, TypeError, yaml.YAMLError) as error:
            raise Invalid(f"not in a pod, and the kubeconfig {path} cannot be used: {error!r}") from error
        certificate, key = _file(user, "client-certificate"), _file(user, "client-key")
        token_file = user.get("tokenFile")
        return cls(
            server=cluster["server"],
            namespace=os.environ.get("BEARLAKE_OPERATOR_NAMESPACE") or context.get("namespace", "default"),
            authority_file=_file(cluster, "certificate-authority"),
            certificate_files=(certificate, key) if certificate and key else None,
            token_file=Path(token_file) if token_file else None,
        )


class Kube:
    """A client of the API. `close` comes last."""

    def __init__(self, access: Access, random_source: random.Random | None = None) -> None:
        self._access = access
        self._random = random_source or random.SystemRandom()
        connector = aiohttp.TCPConnector(ssl=access.tls(), limit=32)
        self._session = aiohttp.ClientSession(
            access.server, connector=connector, timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        )

    @property
    def namespace(self) -> str:
        """The operator's own namespace."""
        return self._access.namespace

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def list(self, kind: str, namespace: str | None, labels: str = "") -> Listing:
        """All resources of a kind, of one namespace or (None) all. Raises `Unavailable`, `Invalid`.

        One of `OPTIONAL_KINDS` that the cluster does not know has none. What else it does not know is a failure: were our own resources
        gone with their definition, or not served yet, whatever they asked for would go too.
        """
        absent: Resource | None = {"items": [], "metadata": {}} if kind in OPTIONAL_KINDS else None
        found: list[Resource] = []
        version = 0
        query = first = {"limit": str(PAGE_COUNT)} | ({"labelSelector": labels} if labels else {})
        while True:
            try:
                page = await self._ask("GET", _path(kind, namespace), query=query, absent=absent)
            except Gone:  # the pages' version was compacted away meanwhile: from the beginning
                if query is first:
                    raise
                found, version, query = [], 0, first
                continue
            found += [{"apiVersion": KINDS[kind].api_version, "kind": kind, **item} for item in page["items"]]
            version = version or int(page["metadata"].get("resourceVersion", 0))
            if not (more := page["metadata"].get("continue")):
                return Listing(found, version)
            query = {**first, "continue": more}

    async def get(self, kind: str, namespace: str, name: str) -> Resource | None:
        """A resource, None when it does not exist. Raises `Unavailable`."""
        return (await self._ask("GET", _path(kind, namespace, name), absent={})) or None

    async def apply(self, manifest: Mapping[str, Any]) -> Resource:
        """Make it so: create the resource or change those of its fields that the manifest names, and drop those that it named before.

        Returns the resource as it is then. Raises `Invalid`, `Unavailable`.
        """
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata["namespace"], metadata["name"])
        return await self._apply(path, manifest)

    async def hold(self, manifest: Mapping[str, Any], manager: str) -> None:
        """Let `manager` too own the fields that the manifest names, with the values that they have.

        Raises `Conflict` when somebody has given them others, `Invalid`, `Unavailable`.
        """
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata["namespace"], metadata["name"])
        await self._ask(
            "PATCH", path, query={"fieldManager": manager}, body=manifest, form=APPLY_FORM, is_retried_409=False
        )

    async def apply_status(self, resource: Mapping[str, Any], status: Mapping[str, Any]) -> Resource | None:
        """Replace the operator's part of a resource's status; None when the resource has gone. Raises `Invalid`, `Unavailable`."""
        metadata = resource["metadata"]
        body = {
            "apiVersion": KINDS[resource["kind"]].api_version,
            "kind": resource["kind"],
            # Without the uid, a status that comes late would be that of a new resource of the same name.
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
            "status": status,
        }
        path = _path(resource["kind"], metadata["namespace"], metadata["name"], "status")
        try:
            return (await self._apply(path, body, absent={})) or None
        except Conflict:
            return None

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete exactly this resource; one that has gone, or a new one of its name, is left alone. Raises `Unavailable`."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._ask("DELETE", _path(kind, namespace, name), body=body, absent={}, is_retried_409=False)
        except Conflict:
            return

    async def replace(self, resource: Mapping[str, Any]) -> Resource:
        """Create the resource, or replace exactly the version that its `resourceVersion` names. Raises `Conflict`, `Unavailable`."""
        metadata = resource["metadata"]
        is_new = "resourceVersion" not in metadata
        name = "" if is_new else metadata["name"]
        path = _path(resource["kind"], metadata["namespace"], name)
        return await self._ask("POST" if is_new else "PUT", path, body=resource, is_retried_409=False)

    async def create(self, resource: Mapping[str, Any]) -> None:
        """Create a resource whose name is made by the server, if it can be done soon. Raises `Invalid`, `Unavailable`."""
        path = _path(resource["kind"], resource["metadata"]["namespace"])
        await self._ask("POST", path, body=resource, deadline_s=COURTESY_S)

    async def _apply(self, path: str, body: Mapping[str, Any], absent: Resource | None = None) -> Resource:
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._ask("PATCH", path, query=query, body=body, form=APPLY_FORM, absent=absent)

    async def _ask(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        form: str = "application/json",
        absent: Resource | None = None,
        is_retried_409: bool = True,
        deadline_s: float | None = None,
    ) -> Resource:
        """One request, until it is answered; `absent` is the answer for 404."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (deadline_s or DEADLINE_S)
        pause = FIRST_PAUSE_S
        while True:
            status, answer, wait = await self._try(verb, path, query, body, form)
            if 200 <= status < 300:
                return answer
            if status == 404 and absent is not None:
                return absent
            message = str(answer.get("message", "")) or f"status {status}"
            if status == 409 and (not is_retried_409 or "uid mismatch" in message.lower()):
                raise Conflict(f"{verb} {path}: {message}")
            if status == 410:
                raise Gone(f"{verb} {path}: {message}")
            if status and status not in _RETRIED:
                raise Invalid(f"{verb} {path}: {message}")
            pause = min(pause * 2, PAUSE_MAX_S)
            delay = max(wait, pause * (0.5 + self._random.random() / 2))
            if loop.time() + delay > deadline:
                raise Unavailable(f"{verb} {path}: {message}")
            await asyncio.sleep(delay)

    async def _try(
        self, verb: str, path: str, query: Mapping[str, str] | None, body: Mapping[str, Any] | None, form: str
    ) -> tuple[int, Resource, float]:
        """Status (0: no answer), the answer's object, and how long the server asks to wait (s)."""
        headers = {"Accept": "application/json"}
        if (token := self._access.token) is not None:
            headers["Authorization"] = f"Bearer {token}"
        content = None
        if body is not None:
            headers["Content-Type"] = form
            content = json.dumps(body).encode()
        try:
            async with self._session.request(verb, path, params=query, data=content, headers=headers) as response:
                API_REQUESTS.labels(verb, str(response.status)).inc()
                wait = response.headers.get("Retry-After", "0")
                return response.status, await _object(response), float(wait) if wait.isdecimal() else 0.0
        except (aiohttp.ClientError, TimeoutError) as error:
            API_REQUESTS.labels(verb, "none").inc()
            return 0, {"message": repr(error)}, 0.0


async def _object(response: aiohttp.ClientResponse) -> Resource:
    try:
        found = json.loads(await response.read() or b"{}")
    except ValueError:
        return {"message": "the answer is not JSON"}
    return found if isinstance(found, dict) else {"message": "the answer is no object"}


def _path(kind: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    known = KINDS[kind]
    parts = [known.prefix]
    if namespace is not None:
        parts += ["namespaces", quote(namespace)]
    parts += [known.plural, *([quote(name)] if name else []), *([subresource] if subresource else [])]
    return "/".join(parts)


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


def _file(values: Mapping[str, str], key: str) -> str | None:
    """The file that a kubeconfig names, or one with what it has inline."""
    if key in values:
        return values[key]
    if f"{key}-data" not in values:
        return None
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(base64.b64decode(values[f"{key}-data"]))
    return file.name
