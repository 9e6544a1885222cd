"""Puts the desired objects by server-side apply, and removes what is not desired any more.

What was put is remembered together with how it then looked: while both stay the same, nothing is sent. So a quiet world is left alone,
a hand edit or a deletion is mended when the watch tells of it, and fields that others own (an autoscaler's replicas, a
Service's address) do not disturb.

Objects belong together in groups, a tier or the workers of a Compactor: what is wrong with one holds up nothing of the others.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from bearlake_operator import api, metrics
from bearlake_operator.errors import Conflict, OperatorError
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import FIELD_MANAGER, Kube, Resource
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
AUTOSCALER_KINDS = ("HorizontalPodAutoscaler", "ScaledObject")
SELECTOR = f"{labels.MANAGED_BY}={labels.OPERATOR}"
NUMBER_KEEPER = "bearlake-operator-handover"
"""Field manager that holds a Deployment's number of pods until an autoscaler sets it."""

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
        self._troubled: set[str] = set()

    def problem_of(self, name: str) -> str:
        """What was wrong when objects of this name were last put, their Deployment's first; empty when nothing was."""
        found = sorted((kind != "Deployment", text) for (kind, one), text in self._problems.items() if one == name)
        return found[0][1] if found else ""

    @property
    def troubled(self) -> Collection[str]:
        """The groups of which some object could not be put the last time."""
        return self._troubled

    async def ensure(self, desired: Sequence[Manifest]) -> list[str]:
        """Put these objects, all that there shall be; returns what went wrong, object by object."""
        wanted = {_reference(manifest) for manifest in desired}
        self._problems = {reference: text for reference, text in self._problems.items() if reference in wanted}
        self._troubled = set()
        for manifest in desired:
            reference = _reference(manifest)
            try:
                await self._put(manifest)
                self._problems.pop(reference, None)
            except OperatorError as error:
                self._problems[reference] = str(error)
                self._troubled.add(_group(manifest))
        return list(self._problems.values())

    async def prune(
        self, desired: Sequence[Manifest], kept: Collection[str] = (), kinds: Sequence[str] = CHILD_KINDS
    ) -> list[str]:
        """Delete all objects of the operator's, of these kinds, that are not among these and of none of the groups `kept`.

        Returns what went wrong, object by object.
        """
        wanted = {_reference(manifest) for manifest in desired}
        problems = []
        for kind in kinds:
            for resource in self._world.of(kind):
                namespace, name = api.key_of(resource)
                is_ours = resource["metadata"].get("labels", {}).get(labels.MANAGED_BY) == labels.OPERATOR
                if not is_ours or (kind, name) in wanted or namespace != self._kube.namespace:
                    continue
                if api.is_going(resource) or _group(resource) in kept:
                    continue
                log.info("not wanted any more", extra={"kind": kind, "object": name})
                metrics.WRITES.labels(kind).inc()
                try:
                    await self._kube.delete(kind, namespace, name, resource["metadata"]["uid"])
                    self._world.remove(kind, resource)
                except OperatorError as error:
                    problems.append(str(error))
                self._settled.pop((kind, name), None)
        return problems

    async def _put(self, manifest: Manifest) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        whole = self._owned({**manifest, "metadata": {**manifest["metadata"], "namespace": self._kube.namespace}})
        wanted = _digest(whole)
        live = self._world.get(kind, self._kube.namespace, name)
        if live is not None and self._settled.get((kind, name)) == (wanted, _digest(_shape(live, whole))):
            return
        log.info("applying", extra={"kind": kind, "object": name})
        if live is not None and kind == "Deployment" and "replicas" not in whole["spec"]:
            await self._keep_number(live)
        metrics.WRITES.labels(kind).inc()
        after = await self._kube.apply(whole)
        self._world.put(kind, after)
        self._settled[kind, name] = (wanted, _digest(_shape(after, whole)))

    async def _keep_number(self, live: Resource) -> None:
        """Let a Deployment whose number of pods becomes an autoscaler's keep it until that one sets it.

        A field that its only owner names no more falls back to its default: one pod. Of none, one is made: autoscalers leave zero alone.
        Source: Kubernetes, "Server-Side Apply", "Transferring ownership".
        """
        replicas = live["spec"].get("replicas", 0)
        if not replicas or not _is_number_ours(live):
            return
        metadata = {key: live["metadata"][key] for key in ("name", "namespace")}
        held = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}}
        try:
            await self._kube.hold(held, NUMBER_KEEPER)
        except Conflict:
            return  # somebody has set another number meanwhile: it is theirs already

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


def _reference(manifest: Manifest) -> _Ref:
    return manifest["kind"], manifest["metadata"]["name"]


def _group(resource: Resource) -> str:
    return labels.group_of(resource["metadata"].get("labels", {}))


def _is_number_ours(deployment: Resource) -> bool:
    """Whether a Deployment's number of pods is a field that the operator has set itself."""
    return any(
        one.get("manager") == FIELD_MANAGER and "f:replicas" in one.get("fieldsV1", {}).get("f:spec", {})
        for one in deployment["metadata"].get("managedFields", ())
    )


def _shape(resource: Resource, manifest: Manifest) -> dict[str, Any]:
    """What of a live object tells a change that matters: not its status, nor what the server counts, nor notes of Kubernetes' own that
    the manifest does not name."""
    metadata = {key: value for key, value in resource["metadata"].items() if key not in _SERVERS_OWN}
    named = manifest["metadata"].get("annotations", {})
    notes = {
        key: text
        for key, text in metadata.get("annotations", {}).items()
        if key in named or "kubernetes.io/" not in key
    }
    rest = {key: value for key, value in resource.items() if key not in ("status", "metadata", "apiVersion", "kind")}
    return {**rest, "metadata": {**metadata, "annotations": notes}}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
