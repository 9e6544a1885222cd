"""Statuses and Events of resources: written when they say something new, never again and again."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from bearlake_operator import api, metrics
from bearlake_operator.errors import OperatorError
from bearlake_operator.handlers.allowance import Allowance
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import FIELD_MANAGER, KINDS, Kube

log = logging.getLogger(__name__)

NOTE_LENGTH_MAX = 1024


def now_text() -> str:
    """The present time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Notes:
    """Writes statuses, and an Event when the readiness of a resource changes for another reason."""

    def __init__(self, kube: Kube, world: World) -> None:
        self._kube = kube
        self._world = world
        self._allowance = Allowance()

    async def show(self, resource: api.Resource, status: Mapping[str, Any]) -> None:
        """Make `status` the resource's. Raises `Invalid`, `Unavailable`."""
        before = resource.get("status", {})
        if before == status:
            return
        metrics.WRITES.labels(f"{resource['kind']}/status").inc()
        after = await self._kube.apply_status(resource, status)
        if after is not None:
            self._world.put(resource["kind"], after)
            await self._tell_change(resource, _ready(before), _ready(status))

    async def tell(self, resource: api.Resource, reason: str, note: str, *, is_bad: bool = False) -> None:
        """An Event about a resource; a courtesy, which may fail, and of which there are not too many (see `Allowance`)."""
        metadata = resource["metadata"]
        if not self._allowance.take(metadata["uid"]):
            return
        event = {
            "apiVersion": KINDS["Event"].api_version,
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name'][:200]}-", "namespace": metadata["namespace"]},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": f"bearlake.dev/{FIELD_MANAGER}",
            "reportingInstance": FIELD_MANAGER,
            "action": "Reconcile",
            "reason": reason,
            "type": "Warning" if is_bad else "Normal",
            "note": note[:NOTE_LENGTH_MAX],
            "regarding": {
                "apiVersion": KINDS[resource["kind"]].api_version,
                "kind": resource["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
        }
        try:
            await self._kube.create(event)
        except OperatorError as error:
            log.warning("event not written", extra={"error": str(error)})

    async def _tell_change(self, resource: api.Resource, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        if (old.get("status"), old.get("reason")) == (new.get("status"), new.get("reason")) or not new:
            return
        is_bad = new["status"] == "False" and new["reason"] not in ("TierNotReady", "WorkersNotReady")
        await self.tell(resource, new["reason"], new["message"] or f"Ready is {new['status']}.", is_bad=is_bad)


def _ready(status: Mapping[str, Any]) -> Mapping[str, str]:
    return next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), {})
