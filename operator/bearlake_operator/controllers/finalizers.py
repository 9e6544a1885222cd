"""The finalizer of Streams with `deletionPolicy: Delete`: added before they can hold records, removed when the records are deleted."""

import logging
from collections.abc import Mapping, Sequence

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, ObservedStream
from bearlake_operator.api import Resource
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.concurrency import errors_of, for_each
from bearlake_operator.controllers.events import EventRecorder
from bearlake_operator.controllers.status_writer import StatusWriter, timestamp
from bearlake_operator.errors import OperatorError
from bearlake_operator.kube import KINDS, KubeClient
from bearlake_operator.reconcile import status
from bearlake_operator.reconcile.claims import FINALIZER, Claim, NamespacedName

log = logging.getLogger(__name__)


def has_finalizer(resource: Resource) -> bool:
    """Whether a Stream has the finalizer."""
    return FINALIZER in resource["metadata"].get("finalizers", ())


def has_stale_finalizer(resource: Resource) -> bool:
    """Whether a Stream has the finalizer although its `deletionPolicy` is not Delete any more."""
    return has_finalizer(resource) and not api.stream_spec(resource).is_deleted_with_resource


class Finalizers:
    """Adds and removes the finalizer, and deletes the records of Streams that are being deleted."""

    def __init__(
        self, kube: KubeClient, cache: ResourceCache, status_writer: StatusWriter, events: EventRecorder
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._status_writer = status_writer
        self._events = events

    async def add(self, streams: Sequence[Resource], claims: Mapping[NamespacedName, Claim]) -> None:
        """Add the finalizer to Streams whose records are deleted with them. Raises `Unavailable`, `Invalid`, `Conflict`."""
        candidates = [(stream, claims[api.namespaced_name(stream)]) for stream in streams if not has_finalizer(stream)]
        deleting = [stream for stream, claim in candidates if claim.is_owner and claim.spec.is_deleted_with_resource]
        await for_each(lambda stream: self._set_finalizers(stream, [FINALIZER]), deleting)

    async def remove(self, streams: Sequence[Resource]) -> None:
        """Remove the finalizer. Raises `Unavailable`, `Invalid`, `Conflict`."""
        await for_each(lambda stream: self._set_finalizers(stream, []), streams)

    async def delete_streams(
        self,
        client: AdminClient,
        terminating: Sequence[Resource],
        claims: Mapping[NamespacedName, Claim],
        observed: Mapping[str, ObservedStream],
    ) -> list[str]:
        """Delete the streams of Streams that are being deleted, then remove the finalizer. Returns the errors."""
        layer = terminating[0]["spec"].get("dataLayer", "default") if terminating else ""
        claimed = {claim.spec.name for claim in claims.values() if claim.spec.data_layer == layer}
        names = {
            spec.name: api.namespaced_name(resource)
            for resource in terminating
            # Only the incarnation that this resource managed, and no stream that another resource has claimed since.
            if (spec := api.stream_spec(resource)).name not in claimed
            and spec.name in observed
            and observed[spec.name].id == resource.get("status", {}).get("streamId")
        }
        problems: dict[str, str] = {}
        if names:
            log.info("deleting streams", extra={"data_layer": layer, "streams": list(names)})
            try:
                problems = await client.delete({name: observed[name].id for name in names})
            except OperatorError as error:
                problems = dict.fromkeys(names, str(error))
        blocked = {names[name]: problem for name, problem in problems.items()}
        deleted = [resource for resource in terminating if api.namespaced_name(resource) not in blocked]
        return [
            *(f"the stream {name} is not deleted: {problem}" for name, problem in problems.items()),
            *await errors_of(self.report_blocked(blocked)),
            *await errors_of(self.remove(deleted)),
        ]

    async def report_blocked(self, problems: Mapping[NamespacedName, str]) -> None:
        """Report on terminating Streams why their records are not deleted yet. Raises `Unavailable`, `Invalid`."""
        now = timestamp()

        async def report(blocked: tuple[NamespacedName, str]) -> None:
            key, problem = blocked
            resource = self._cache.get("Stream", *key)
            if resource is not None:
                await self._status_writer.write(resource, status.deletion_blocked(resource, problem, now))

        await for_each(report, list(problems.items()))

    async def release_orphans(self, terminating: Sequence[Resource]) -> None:
        """Remove the finalizer from terminating Streams of an unknown data layer, and record that their records remain."""

        async def release(stream: Resource) -> None:
            if not has_stale_finalizer(stream):
                layer = stream["spec"].get("dataLayer", "default")
                note = f"The data layer {layer!r} does not exist: the Stream is deleted, its records are not."
                await self._events.record(stream, "RecordsKept", note, is_warning=True)
            await self._set_finalizers(stream, [])

        await for_each(release, terminating)

    async def _set_finalizers(self, resource: Resource, finalizers: Sequence[str]) -> None:
        metadata = resource["metadata"]
        body = {
            "apiVersion": KINDS["Stream"].api_version,
            "kind": "Stream",
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "finalizers": list(finalizers),
            },
        }
        try:
            applied = await self._kube.apply(body)
        except OperatorError:
            if self._cache.get("Stream", metadata["namespace"], metadata["name"]) is None:
                return  # deleted in the meantime
            raise
        if applied["metadata"].get("deletionTimestamp") is None:
            self._cache.put("Stream", applied)
