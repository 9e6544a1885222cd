"""Puts the desired objects by server-side apply, and removes what is not desired any more.

What was put is remembered together with how it then looked: while both stay the same, nothing is sent. So a quiet world is left alone,
a hand edit or a deletion is mended when the watch tells of it, and fields that others own (an autoscaler's replicas, a
Service's address) do not disturb.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from bearlake_operator import api, metrics
from bearlake_operator.errors import OperatorError
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import Kube, Resource
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
SELECTOR = f"{labels.MANAGED_BY}={labels.OPERATOR}"

_Ref = tuple[str, str]
_SERVERS_OWN = ("resourceVersion", "managedFields", "generation", "uid", "creationTimestamp", "selfLink")


class Applier:
    """Brings the operator's own namespace to a list of desired objects."""

    def __init__(self, kube: Kube, world: World, owner: Callable[[], Resource | None]) -> None:
        """`owner` is what the objects shall go with when it is deleted (the operator's Deployment), if it is known."""
        self._kube = kube
        self._world = world
        self._owner = owner
        self._settled: dict[_Ref, tuple[str, str]] = {}
        """By kind and name: digest of the manifest that was put, and of the object as it looked after it."""
        self._problems: dict[_Ref, str] = {}

    def problem_of(self, name: str) -> str:
        """What was wrong when objects of this name were last put, their Deployment's first; empty when nothing was."""
        found = sorted((kind != "Deployment", text) for (kind, one), text in self._problems.items() if one == name)
        return found[0][1] if found else ""

    async def ensure(self, desired: Sequence[Manifest]) -> list[str]:
        """Put these objects; returns what went wrong, object by object."""
        problems = []
        for manifest in desired:
            reference = manifest["kind"], manifest["metadata"]["name"]
            try:
                await self._put(manifest)
                self._problems.pop(reference, None)
            except OperatorError as error:
                self._problems[reference] = str(error)
                problems.append(str(error))
        return problems

    async def prune(self, desired: Sequence[Manifest]) -> list[str]:
        """Delete all objects of the operator's that are not among these; returns what went wrong, object by object."""
        wanted = {(one["kind"], one["metadata"]["name"]) for one in desired}
        problems = []
        for kind in CHILD_KINDS:
            for resource in self._world.of(kind):
                namespace, name = api.key_of(resource)
                is_ours = resource["metadata"].get("labels", {}).get(labels.MANAGED_BY) == labels.OPERATOR
                if not is_ours or (kind, name) in wanted or namespace != self._kube.namespace:
                    continue
                if "deletionTimestamp" in resource["metadata"]:
                    continue
                log.info("not wanted any more", extra={"kind": kind, "object": name})
                metrics.WRITES.labels(kind).inc()
                try:
                    await self._kube.delete(kind, namespace, name, resource["metadata"]["uid"])
                    self._world.remove(kind, resource)
                except OperatorError as error:
                    problems.append(str(error))
                self._settled.pop((kind, name), None)
                self._problems.pop((kind, name), None)
        return problems

    async def _put(self, manifest: Manifest) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        whole = self._owned({**manifest, "metadata": {**manifest["metadata"], "namespace": self._kube.namespace}})
        wanted = _digest(whole)
        live = self._world.get(kind, self._kube.namespace, name)
        if live is not None and self._settled.get((kind, name)) == (wanted, _digest(_shape(live))):
            return
        log.info("applying", extra={"kind": kind, "object": name})
        metrics.WRITES.labels(kind).inc()
        after = await self._kube.apply(whole)
        self._world.put(kind, after)
        self._settled[kind, name] = (wanted, _digest(_shape(after)))

    def _owned(self, manifest: Manifest) -> Manifest:
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


def _shape(resource: Resource) -> dict[str, Any]:
    """What of a live object tells a change that matters: not its status, nor what the server counts."""
    metadata = {key: value for key, value in resource["metadata"].items() if key not in _SERVERS_OWN}
    notes = {key: text for key, text in metadata.get("annotations", {}).items() if "kubernetes.io/" not in key}
    rest = {key: value for key, value in resource.items() if key not in ("status", "metadata", "apiVersion", "kind")}
    return {**rest, "metadata": {**metadata, "annotations": notes}}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
