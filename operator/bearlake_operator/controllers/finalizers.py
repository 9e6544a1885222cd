"""The finalizer of Streams that own something in the data layer: access rules, and with `deletionPolicy: Delete` records.

It is added before they can own it, and removed when it is deleted.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, ObservedStream
from bearlake_operator.api import Resource
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.concurrency import errors_of, for_each
from bearlake_operator.controllers.events import EventRecorder
from bearlake_operator.controllers.status_writer import StatusWriter, timestamp
from bearlake_operator.errors import OperatorError
from bearlake_operator.kube import KINDS, KubeClient
from bearlake_operator.reconcile import access, status
from bearlake_operator.reconcile.claims import FINALIZER, Claim, NamespacedName

log = logging.getLogger(__name__)


def has_finalizer(resource: Resource) -> bool:
    """Whether a Stream has the finalizer."""
    return FINALIZER in resource["metadata"].get("finalizers", ())


def needs_finalizer(resource: Resource) -> bool:
    """Whether a Stream's records are deleted with it, or access rules belong to it; for a live Stream, or may soon."""
    spec = api.stream_spec(resource)
    names_rules = bool(spec.access) and not api.is_terminating(resource)
    return spec.is_deleted_with_resource or names_rules or bool(access.listed(resource))


def has_stale_finalizer(resource: Resource) -> bool:
    """Whether a Stream has the finalizer and needs it no longer."""
    return has_finalizer(resource) and not needs_finalizer(resource)


class Finalizers:
    """Adds and removes the finalizer, and deletes the records of Streams that are being deleted."""

    def __init__(
        self,
        kube: KubeClient,
        cache: ResourceCache,
        status_writer: StatusWriter,
        events: EventRecorder,
        refused_name: Callable[[str, str], str],
    ) -> None:
        """`refused_name` says why a namespace may not use a stream name; empty: it may."""
        self._refused_name = refused_name
        self._kube = kube
        self._cache = cache
        self._status_writer = status_writer
        self._events = events

    async def add(self, streams: Sequence[Resource], claims: Mapping[NamespacedName, Claim]) -> None:
        """Add the finalizer to Streams that need it and own their stream name. Raises `Unavailable`, `Invalid`, `Conflict`."""
        missing = [stream for stream in streams if needs_finalizer(stream) and not has_finalizer(stream)]
        owning = [stream for stream in missing if claims[api.namespaced_name(stream)].is_owner]
        await for_each(lambda stream: self._set_finalizers(stream, [FINALIZER]), owning)

    async def remove(self, streams: Sequence[Resource]) -> None:
        """Remove the finalizer. Raises `Unavailable`, `Invalid`, `Conflict`."""
        await for_each(lambda stream: self._set_finalizers(stream, []), streams)

    async def delete_streams(
        self,
        client: AdminClient,
        terminating: Sequence[Resource],
        claims: Mapping[NamespacedName, Claim],
        observed: Mapping[str, ObservedStream],
    ) -> dict[NamespacedName, str]:
        """Delete the streams of Streams that are being deleted, if that is their policy. Returns the problems by Stream."""
        layer = terminating[0]["spec"].get("dataLayer", "default") if terminating else ""
        claimed = {claim.spec.name for claim in claims.values() if claim.spec.data_layer == layer and claim.is_owner}
        names: dict[str, NamespacedName] = {}
        for resource in terminating:
            spec, key = api.stream_spec(resource), api.namespaced_name(resource)
            if not spec.is_deleted_with_resource:
                continue
            if refusal := self._refused_name(key[0], spec.name):
                await self._events.record(resource, "RecordsKept", f"The records are kept. {refusal}", is_warning=True)
                continue
            # Only the incarnation that this resource managed, and no stream that another resource has claimed since.
            is_managed = spec.name in observed and observed[spec.name].id == resource.get("status", {}).get("streamId")
            if is_managed and spec.name not in claimed:
                names[spec.name] = key
        if not names:
            return {}
        log.info("deleting streams", extra={"data_layer": layer, "streams": list(names)})
        try:
            problems = await client.delete({name: observed[name].id for name in names})
        except OperatorError as error:
            problems = dict.fromkeys(names, str(error))
        return {names[name]: f"the stream {name} is not deleted: {problem}" for name, problem in problems.items()}

    async def release(self, terminating: Sequence[Resource], blocked: Mapping[NamespacedName, str]) -> list[str]:
        """Remove the finalizer from Streams that are being deleted and not blocked, and report on the others. Returns the errors."""
        deleted = [resource for resource in terminating if api.namespaced_name(resource) not in blocked]
        return [
            *blocked.values(),
            *await errors_of(self.report_blocked(blocked)),
            *await errors_of(self.remove(deleted)),
        ]

    async def report_blocked(self, problems: Mapping[NamespacedName, str]) -> None:
        """Report on terminating Streams what keeps them from being deleted. Raises `Unavailable`, `Invalid`, `Conflict`."""
        now = timestamp()

        async def report(blocked: tuple[NamespacedName, str]) -> None:
            key, problem = blocked
            resource = self._cache.get("Stream", *key)
            if resource is not None:
                await self._status_writer.write(resource, status.deletion_blocked(resource, problem, now))

        await for_each(report, list(problems.items()))

    async def release_orphans(self, terminating: Sequence[Resource]) -> None:
        """Remove the finalizer from terminating Streams of an unknown data layer, and record that records and access rules remain."""

        async def release(stream: Resource) -> None:
            if not has_stale_finalizer(stream):
                layer = stream["spec"].get("dataLayer", "default")
                note = f"The data layer {layer!r} does not exist: the Stream is deleted, its records and access rules are not."
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
                # A late request must not remove the finalizer from a Stream that owns something by now.
                "resourceVersion": metadata["resourceVersion"],
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
