"""Writes the status of a resource when it changes, and records an Event when the resource's readiness changes."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from bearlake_operator import api, metrics
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.concurrency import for_each
from bearlake_operator.controllers.events import EventRecorder
from bearlake_operator.errors import Conflict, OperatorError
from bearlake_operator.kube import KubeClient
from bearlake_operator.reconcile.claims import NamespacedName

_EXACT_KINDS = ("Stream",)
"""Kinds whose status is written only onto the version that it was computed from. A Stream's status lists the access rules that belong to
it: a late write of a former leader must not take rules out of the list."""
_STARTING_REASONS = ("TierNotReady", "WorkersNotReady")
"""Reasons of `Ready` being False that are normal while pods start: their Events are not warnings."""


def timestamp() -> str:
    """The current time in Kubernetes' format."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class StatusWriter:
    """Writes the status of resources, each only when it differs from the known one."""

    def __init__(self, kube: KubeClient, cache: ResourceCache, events: EventRecorder) -> None:
        self._kube = kube
        self._cache = cache
        self._events = events

    async def write(self, resource: api.Resource, status: Mapping[str, Any]) -> bool:
        """Set the status of a resource. Returns False if the resource is gone.

        Raises `Invalid`, `Unavailable`, and for Streams `Conflict`: the Stream has changed since `resource` was read.
        """
        before = resource.get("status", {})
        if before == status:
            return True
        kind = resource["kind"]
        metrics.WRITES.labels(f"{kind}/status").inc()
        written = await self._kube.apply_status(resource, status, is_exact=kind in _EXACT_KINDS)
        if written is None:
            return False
        self._cache.put(kind, written)
        await self._record_transition(resource, _ready(before), _ready(status))
        return True

    async def confirm(self, resource: api.Resource) -> None:
        """Return only if `resource` is the present version in the API server, whatever the cache says.

        Raises `Conflict` (it has changed, or it is gone), `Invalid`, `Unavailable`.
        """
        # Writing the same status onto the same version changes nothing.
        written = await self._kube.apply_status(resource, resource.get("status", {}), is_exact=True)
        if written is None:
            raise Conflict(f"the {resource['kind']} is gone")
        self._cache.put(resource["kind"], written)

    async def outdated(self, kind: str, keys: Collection[NamespacedName]) -> dict[NamespacedName, OperatorError]:
        """The resources that have changed since this process read them, or of which this is not known, with the errors."""
        failed: dict[NamespacedName, OperatorError] = {}

        async def confirm(key: NamespacedName) -> None:
            resource = self._cache.get(kind, *key)
            try:
                if resource is None:
                    raise Conflict(f"the {kind} is gone")
                await self.confirm(resource)
            except OperatorError as error:
                failed[key] = error

        await for_each(confirm, list(keys))
        return failed

    async def _record_transition(self, resource: api.Resource, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        if (old.get("status"), old.get("reason")) == (new.get("status"), new.get("reason")) or not new:
            return
        is_warning = new["status"] == "False" and new["reason"] not in _STARTING_REASONS
        note = new["message"] or f"Ready is {new['status']}."
        await self._events.record(resource, new["reason"], note, is_warning=is_warning)


def _ready(status: Mapping[str, Any]) -> Mapping[str, str]:
    return next((condition for condition in status.get("conditions", ()) if condition["type"] == "Ready"), {})
