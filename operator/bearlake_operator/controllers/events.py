"""Records Events about resources, at a limited rate."""

import logging
from datetime import UTC, datetime

from bearlake_operator import api
from bearlake_operator.controllers.rate_limit import EventRateLimiter
from bearlake_operator.errors import OperatorError
from bearlake_operator.kube import FIELD_MANAGER, KINDS, KubeClient

log = logging.getLogger(__name__)

MESSAGE_LENGTH_MAX = 1024


class EventRecorder:
    """Creates Events. An Event that exceeds the rate limit or that the API server does not accept is dropped."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._rate_limiter = EventRateLimiter()

    async def record(self, resource: api.Resource, reason: str, note: str, *, is_warning: bool = False) -> None:
        """Create an Event about a resource. `reason` is one CamelCase word, `note` a sentence for people. Never fails."""
        metadata = resource["metadata"]
        if not self._rate_limiter.allow(metadata["uid"]):
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
            "type": "Warning" if is_warning else "Normal",
            "note": note[:MESSAGE_LENGTH_MAX],
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
            log.warning("cannot create an Event", extra={"error": str(error)})
