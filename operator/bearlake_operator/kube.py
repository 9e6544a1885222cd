"""Client of the Kubernetes API with the verbs that the operator needs: list, get, server-side apply, status, delete, create, replace.

A failure that may be temporary (409, 429, 5xx, a lost connection) is retried with exponential backoff until a deadline, then raised as
`Unavailable`. An error of the request itself is raised as `Invalid` at once, with the server's message.

Source: Kubernetes API conventions; KEP-555 (server-side apply).
"""

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from bearlake_operator.errors import Conflict, Gone, Invalid, Unavailable
from bearlake_operator.kube_config import ClientConfig
from bearlake_operator.metrics import API_REQUESTS

FIELD_MANAGER = "bearlake-operator"
APPLY_CONTENT_TYPE = "application/apply-patch+yaml"
MERGE_CONTENT_TYPE = "application/merge-patch+json"
PAGE_COUNT = 500
REQUEST_TIMEOUT_S = 20.0
DEADLINE_S = 30.0
BEST_EFFORT_DEADLINE_S = 3.0
"""Deadline of requests that may be dropped."""
BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 10.0

_RETRIED_STATUSES = frozenset({409, 429, 500, 502, 503, 504})
_TOO_LARGE = ("request is too large", "message larger than max")
"""Messages about objects that etcd cannot store, which the API server sends with status 500 (kubernetes/kubernetes#112152)."""

Resource = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """The API version of a kind, and its plural as used in URLs."""

    api_version: str
    plural: str

    @property
    def prefix(self) -> str:
        """URL path of the kind's group and version."""
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
"""Kinds that are not installed in every cluster."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All resources as of `version`. A resource with a newer version may be missing."""

    resources: Sequence[Resource]
    version: int


class KubeClient:
    """A client of the Kubernetes API. Call `close` when done."""

    def __init__(self, config: ClientConfig, random_source: random.Random | None = None) -> None:
        self._config = config
        self._random = random_source or random.SystemRandom()
        connector = aiohttp.TCPConnector(ssl=config.tls_context(), limit=32)
        self._session = aiohttp.ClientSession(
            config.server, connector=connector, timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        )

    @property
    def namespace(self) -> str:
        """The operator's own namespace."""
        return self._config.namespace

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def list(self, kind: str, namespace: str | None, labels: str = "") -> Listing:
        """All resources of a kind in a namespace (None: in all namespaces), filtered by the selector `labels`.

        A kind of `OPTIONAL_KINDS` that is not installed has no resources. Any other kind that is not installed is an error: an empty list
        of Streams, while their CRD is missing or not served yet, would delete every tier.

        Raises `Unavailable`, `Invalid`.
        """
        not_found: Resource | None = {"items": [], "metadata": {}} if kind in OPTIONAL_KINDS else None
        found: list[Resource] = []
        version = 0
        query = first = {"limit": str(PAGE_COUNT)} | ({"labelSelector": labels} if labels else {})
        while True:
            try:
                page = await self._request("GET", _path(kind, namespace), query=query, not_found=not_found)
            except Gone:  # the version of the pages has expired: start again
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
        """A resource, None if it does not exist. Raises `Unavailable`, `Invalid`."""
        return (await self._request("GET", _path(kind, namespace, name), not_found={})) or None

    async def apply(self, manifest: Mapping[str, Any]) -> Resource:
        """Server-side apply: create the resource or set the manifest's fields, and remove fields that an earlier manifest set.

        Returns the resource as stored. Raises `Invalid`, `Unavailable`. A manifest with a `resourceVersion` is applied only to that version
        of the resource; otherwise raises `Conflict`.
        """
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata["namespace"], metadata["name"])
        return await self._apply(path, manifest, is_409_retried="resourceVersion" not in metadata)

    async def share_ownership(self, manifest: Mapping[str, Any], manager: str) -> None:
        """Make `manager` a further owner of the manifest's fields, whose values must be the current ones.

        Raises `Conflict` if a field has another value by now, `Invalid`, `Unavailable`.
        """
        metadata = manifest["metadata"]
        path = _path(manifest["kind"], metadata["namespace"], metadata["name"])
        await self._request(
            "PATCH",
            path,
            query={"fieldManager": manager},
            body=manifest,
            content_type=APPLY_CONTENT_TYPE,
            is_409_retried=False,
        )

    async def apply_status(
        self, resource: Mapping[str, Any], status: Mapping[str, Any], *, is_exact: bool = False
    ) -> Resource | None:
        """Replace the status fields that the operator owns. Returns None if the resource was deleted. Raises `Invalid`, `Unavailable`.

        With `is_exact`, the status is written only if the resource still is as in `resource`; otherwise raises `Conflict`.
        """
        kind, metadata = resource["kind"], resource["metadata"]
        # The uid keeps a late status away from a new resource of the same name.
        named = ("name", "namespace", "uid", *(["resourceVersion"] if is_exact else []))
        body = {
            "apiVersion": KINDS[kind].api_version,
            "kind": kind,
            "metadata": {key: metadata[key] for key in named},
            "status": status,
        }
        path = _path(kind, metadata["namespace"], metadata["name"], "status")
        try:
            return (await self._apply(path, body, not_found={}, is_409_retried=not is_exact)) or None
        except Conflict:
            if is_exact:
                raise
            return None

    async def set_finalizers(self, resource: Mapping[str, Any], finalizers: Sequence[str]) -> Resource | None:
        """Replace the finalizers, whichever field managers have set them, if the resource still is as in `resource`.

        Returns the resource as stored, None if it is gone. Raises `Conflict` (it has changed), `Invalid`, `Unavailable`.
        """
        metadata = resource["metadata"]
        changed = {"resourceVersion": metadata["resourceVersion"], "finalizers": list(finalizers)}
        found = await self._request(
            "PATCH",
            _path(resource["kind"], metadata["namespace"], metadata["name"]),
            query={"fieldManager": FIELD_MANAGER},
            body={"metadata": changed},
            content_type=MERGE_CONTENT_TYPE,
            not_found={},
            is_409_retried=False,
        )
        return found or None

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete the resource with this uid. No-op if it is gone, also if a new resource has its name. Raises `Unavailable`, `Invalid`."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._request("DELETE", _path(kind, namespace, name), body=body, not_found={}, is_409_retried=False)
        except Conflict:
            return

    async def replace(self, resource: Mapping[str, Any]) -> Resource:
        """Create the resource, or replace it if its version is still `resourceVersion`. Raises `Conflict`, `Unavailable`, `Invalid`."""
        metadata = resource["metadata"]
        is_new = "resourceVersion" not in metadata
        name = "" if is_new else metadata["name"]
        path = _path(resource["kind"], metadata["namespace"], name)
        return await self._request("POST" if is_new else "PUT", path, body=resource, is_409_retried=False)

    async def create(self, resource: Mapping[str, Any]) -> None:
        """Create a resource with a generated name. Gives up after `BEST_EFFORT_DEADLINE_S`. Raises `Invalid`, `Unavailable`."""
        path = _path(resource["kind"], resource["metadata"]["namespace"])
        await self._request("POST", path, body=resource, deadline_s=BEST_EFFORT_DEADLINE_S)

    async def _apply(
        self, path: str, body: Mapping[str, Any], not_found: Resource | None = None, *, is_409_retried: bool = True
    ) -> Resource:
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._request(
            "PATCH",
            path,
            query=query,
            body=body,
            content_type=APPLY_CONTENT_TYPE,
            not_found=not_found,
            is_409_retried=is_409_retried,
        )

    async def _request(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        not_found: Resource | None = None,
        is_409_retried: bool = True,
        deadline_s: float | None = None,
    ) -> Resource:
        """Send a request, with retries. Returns `not_found` for 404 if it is given."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (deadline_s or DEADLINE_S)
        backoff_s = BACKOFF_FIRST_S
        while True:
            status, answer, retry_after_s = await self._send(verb, path, query, body, content_type)
            if 200 <= status < 300:
                return answer
            if status == 404 and not_found is not None:
                return not_found
            message = str(answer.get("message", "")) or f"status {status}"
            if status == 409 and (not is_409_retried or "uid mismatch" in message.lower()):
                raise Conflict(f"{verb} {path}: {message}")
            if status == 410:
                raise Gone(f"{verb} {path}: {message}")
            is_too_large = status == 500 and any(text in message for text in _TOO_LARGE)
            if is_too_large or (status and status not in _RETRIED_STATUSES):
                raise Invalid(f"{verb} {path}: {message}")
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)
            delay_s = max(retry_after_s, backoff_s * (0.5 + self._random.random() / 2))
            if loop.time() + delay_s > deadline:
                raise Unavailable(f"{verb} {path}: {message}")
            await asyncio.sleep(delay_s)

    async def _send(
        self, verb: str, path: str, query: Mapping[str, str] | None, body: Mapping[str, Any] | None, content_type: str
    ) -> tuple[int, Resource, float]:
        """Send a request once. Returns the status (0: no response), the object in the response, and its `Retry-After` (s)."""
        headers = {"Accept": "application/json"}
        if (token := self._config.token) is not None:
            headers["Authorization"] = f"Bearer {token}"
        content = None
        if body is not None:
            headers["Content-Type"] = content_type
            content = json.dumps(body).encode()
        try:
            async with self._session.request(verb, path, params=query, data=content, headers=headers) as response:
                API_REQUESTS.labels(verb, str(response.status)).inc()
                retry_after = response.headers.get("Retry-After", "0")
                return response.status, await _object(response), float(retry_after) if retry_after.isdecimal() else 0.0
        except (aiohttp.ClientError, TimeoutError) as error:
            API_REQUESTS.labels(verb, "none").inc()
            return 0, {"message": repr(error)}, 0.0


async def _object(response: aiohttp.ClientResponse) -> Resource:
    try:
        found = json.loads(await response.read() or b"{}")
    except ValueError:
        return {"message": "the response is not JSON"}
    return found if isinstance(found, dict) else {"message": "the response is not a JSON object"}


def _path(kind: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    known = KINDS[kind]
    parts = [known.prefix]
    if namespace is not None:
        parts += ["namespaces", quote(namespace)]
    parts += [known.plural, *([quote(name)] if name else []), *([subresource] if subresource else [])]
    return "/".join(parts)
