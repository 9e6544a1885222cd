"""Applies the desired objects with server-side apply, and deletes objects that are no longer desired.

The applier remembers each manifest that it applied, and how the object looked afterwards. As long as neither changes, it sends nothing.
So it repairs a manual edit or a deletion as soon as a watch reports it, and ignores fields that others own, such as an autoscaler's
`replicas` or a Service's address.

Objects form groups: a tier, or the workers of a Compactor. A failure in one group does not block the others.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from bearlake_operator import api, metrics
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.concurrency import bug_in
from bearlake_operator.errors import Conflict, OperatorError
from bearlake_operator.kube import FIELD_MANAGER, KubeClient, Resource
from bearlake_operator.manifests import Manifest, labels

log = logging.getLogger(__name__)

CHILD_KINDS = (
    "ConfigMap",
    "Service",
    "Deployment",
    "HorizontalPodAutoscaler",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "ScaledObject",
    "TriggerAuthentication",
)
"""Kinds of the objects that the operator creates."""
AUTOSCALER_KINDS = ("HorizontalPodAutoscaler", "ScaledObject")
SELECTOR = f"{labels.MANAGED_BY}={labels.OPERATOR}"
HANDOVER_MANAGER = "bearlake-operator-handover"
"""Field manager that owns a Deployment's `replicas` until an autoscaler sets it."""

_KindAndName = tuple[str, str]
_SERVER_METADATA = ("resourceVersion", "managedFields", "generation", "uid", "creationTimestamp", "selfLink")


class Applier:
    """Brings the operator's own namespace to a list of desired objects."""

    def __init__(self, kube: KubeClient, cache: ResourceCache, owner: Callable[[], Resource | None]) -> None:
        """`owner` returns the owner of all objects, the operator's Deployment, if it is known."""
        self._kube = kube
        self._cache = cache
        self._owner = owner
        self._applied: dict[_KindAndName, tuple[str, str]] = {}
        """Digests of each applied manifest, and of the object as it was afterwards."""
        self._errors: dict[_KindAndName, str] = {}
        self._failed_groups: set[str] = set()

    def error_of(self, name: str) -> str:
        """The last error on objects of this name, that of the Deployment first; empty if there was none."""
        errors = sorted((kind != "Deployment", text) for (kind, other), text in self._errors.items() if other == name)
        return errors[0][1] if errors else ""

    @property
    def failed_groups(self) -> Collection[str]:
        """The groups in which the last `apply` failed on some object."""
        return self._failed_groups

    async def apply(self, desired: Sequence[Manifest]) -> list[str]:
        """Apply all desired objects. Returns the errors, one per object that failed."""
        keys = {_kind_and_name(manifest) for manifest in desired}
        self._errors = {key: text for key, text in self._errors.items() if key in keys}
        self._failed_groups = set()
        for manifest in desired:
            key = _kind_and_name(manifest)
            try:
                await self._apply(manifest)
                self._errors.pop(key, None)
            except OperatorError as error:
                self._errors[key] = str(error)
                self._failed_groups.add(_group(manifest))
            except Exception as error:  # noqa: BLE001 - the boundary of one object
                self._errors[key] = str(bug_in("apply an object", error))
                self._failed_groups.add(_group(manifest))
        return list(self._errors.values())

    async def prune(
        self, desired: Sequence[Manifest], kept_groups: Collection[str] = (), kinds: Sequence[str] = CHILD_KINDS
    ) -> list[str]:
        """Delete our objects of these kinds that are neither desired nor in a kept group.

        Returns the errors, one per object that could not be deleted.
        """
        keys = {_kind_and_name(manifest) for manifest in desired}
        errors = []
        for kind in kinds:
            for resource in self._cache.list(kind):
                namespace, name = api.namespaced_name(resource)
                is_ours = resource["metadata"].get("labels", {}).get(labels.MANAGED_BY) == labels.OPERATOR
                if not is_ours or (kind, name) in keys or namespace != self._kube.namespace:
                    continue
                if api.is_terminating(resource) or _group(resource) in kept_groups:
                    continue
                log.info("deleting an object", extra={"kind": kind, "object": name})
                metrics.WRITES.labels(kind).inc()
                try:
                    await self._kube.delete(kind, namespace, name, resource["metadata"]["uid"])
                    self._cache.remove(kind, resource)
                except OperatorError as error:
                    errors.append(str(error))
                self._applied.pop((kind, name), None)
        return errors

    async def _apply(self, manifest: Manifest) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        complete = self._with_owner(
            {**manifest, "metadata": {**manifest["metadata"], "namespace": self._kube.namespace}}
        )
        digest = _digest(complete)
        live = self._cache.get(kind, self._kube.namespace, name)
        if live is not None and self._applied.get((kind, name)) == (digest, _digest(_comparable(live, complete))):
            return
        log.info("applying an object", extra={"kind": kind, "object": name})
        if live is not None and kind == "Deployment" and "replicas" not in complete["spec"]:
            await self._hand_over_replicas(live)
        metrics.WRITES.labels(kind).inc()
        applied = await self._kube.apply(complete)
        self._cache.put(kind, applied)
        self._applied[kind, name] = (digest, _digest(_comparable(applied, complete)))

    async def _hand_over_replicas(self, live: Resource) -> None:
        """Keep a Deployment's `replicas` when an autoscaler takes over, until the autoscaler sets it.

        A field that its only owner stops applying falls back to its default, which is one pod. A Deployment without pods is not kept at
        zero: autoscalers never scale up from zero. Source: Kubernetes, "Server-Side Apply", "Transferring ownership".
        """
        replicas = live["spec"].get("replicas", 0)
        if not replicas or not _owns_replicas(live):
            return
        metadata = {key: live["metadata"][key] for key in ("name", "namespace")}
        manifest = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"replicas": replicas},
        }
        try:
            await self._kube.share_ownership(manifest, HANDOVER_MANAGER)
        except Conflict:
            return  # somebody else has set another number in the meantime, and owns the field

    def _with_owner(self, manifest: Manifest) -> Manifest:
        owner = self._owner()
        if owner is not None:
            reference = {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
            }
            manifest["metadata"]["ownerReferences"] = [reference]
        return manifest


def _kind_and_name(manifest: Manifest) -> _KindAndName:
    return manifest["kind"], manifest["metadata"]["name"]


def _group(resource: Resource) -> str:
    return labels.group_of(resource["metadata"].get("labels", {}))


def _owns_replicas(deployment: Resource) -> bool:
    """Whether the operator owns the field `spec.replicas` of a Deployment."""
    return any(
        entry.get("manager") == FIELD_MANAGER and "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
        for entry in deployment["metadata"].get("managedFields", ())
    )


def _comparable(resource: Resource, manifest: Manifest) -> dict[str, Any]:
    """The parts of a live object in which a change is drift.

    Left out are the status, metadata that the API server maintains, and Kubernetes' own annotations unless the manifest sets them.
    """
    metadata = {key: value for key, value in resource["metadata"].items() if key not in _SERVER_METADATA}
    applied = manifest["metadata"].get("annotations", {})
    annotations = {
        key: text
        for key, text in metadata.get("annotations", {}).items()
        if key in applied or "kubernetes.io/" not in key
    }
    rest = {key: value for key, value in resource.items() if key not in ("status", "metadata", "apiVersion", "kind")}
    return {**rest, "metadata": {**metadata, "annotations": annotations}}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
