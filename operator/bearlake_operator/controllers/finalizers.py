"""The finalizer of Streams that own something in the data layer: access rules, and with `deletionPolicy: Delete` records.

It is added before they can own it, and removed when it is deleted.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

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
from bearlake_operator.reconcile.claims import FINALIZER, Claim, NamespacedName, owns_nothing

log = logging.getLogger(__name__)


def has_finalizer(resource: Resource) -> bool:
    """Whether a Stream has the finalizer."""
    return FINALIZER in resource["metadata"].get("finalizers", ())


def needs_finalizer(resource: Resource) -> bool:
    """Whether a Stream's records are deleted with it, or access rules belong to it; for a live Stream, or may soon."""
    spec = api.stream_spec(resource)
    names_rules = bool(spec.access) and not api.is_terminating(resource)
    return spec.is_deleted_with_resource or names_rules or bool(access.listed(resource))


def has_stale_finalizer(resource: Resource, refused_name: Callable[[str, str], str]) -> bool:
    """Whether a Stream has the finalizer and needs it no longer. `refused_name` says why a namespace may not use a stream name."""
    is_empty = api.is_terminating(resource) and owns_nothing(resource, refused_name)
    return has_finalizer(resource) and (is_empty or not needs_finalizer(resource))


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
        await for_each(self._add, owning)

    def stale(self, streams: Sequence[Resource]) -> list[Resource]:
        """The Streams that have the finalizer and need it no longer. Raises `Invalid`."""
        return [stream for stream in streams if has_stale_finalizer(stream, self._refused_name)]

    async def remove(self, streams: Sequence[Resource]) -> None:
        """Remove the finalizer, and record which records are kept by a refusal. Raises `Unavailable`, `Invalid`, `Conflict`."""

        async def remove(stream: Resource) -> None:
            spec, key = api.stream_spec(stream), api.namespaced_name(stream)
            refusal = self._refused_name(key[0], spec.name)
            if refusal and spec.is_deleted_with_resource and api.is_terminating(stream):
                await self._events.record(stream, "RecordsKept", f"The records are kept. {refusal}", is_warning=True)
            await self._remove(stream)

        await for_each(remove, streams)

    async def delete_streams(
        self,
        client: AdminClient,
        terminating: Sequence[Resource],
        claims: Mapping[NamespacedName, Claim],
        observed: Mapping[str, ObservedStream],
    ) -> dict[NamespacedName, str]:
        """Delete the streams of Streams that are being deleted, if that is their policy, and the API server confirms that it still is.

        Returns the problems by Stream.
        """
        layer = terminating[0]["spec"].get("dataLayer", "default") if terminating else ""
        claimed = {claim.spec.name for claim in claims.values() if claim.spec.data_layer == layer and claim.is_owner}
        names: dict[str, NamespacedName] = {}
        for resource in terminating:
            spec, key = api.stream_spec(resource), api.namespaced_name(resource)
            if not spec.is_deleted_with_resource:
                continue
            if self._refused_name(key[0], spec.name):
                continue
            # Only the incarnation that this resource managed, and no stream that another resource has claimed since.
            is_managed = spec.name in observed and observed[spec.name].id == resource.get("status", {}).get("streamId")
            if is_managed and spec.name not in claimed:
                names[spec.name] = key
        # A former leader must not delete records that a user has decided to keep since.
        outdated = await self._status_writer.outdated("Stream", list(names.values()))
        problems = {name: str(outdated[key]) for name, key in names.items() if key in outdated}
        ids = {name: observed[name].id for name in names if name not in problems}
        if ids:
            log.info("deleting streams", extra={"data_layer": layer, "streams": list(ids)})
            try:
                problems |= await client.delete(ids)
            except OperatorError as error:
                problems |= dict.fromkeys(ids, str(error))
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
            if not has_stale_finalizer(stream, self._refused_name):
                layer = stream["spec"].get("dataLayer", "default")
                note = f"The data layer {layer!r} does not exist: the Stream is deleted, its records and access rules are not."
                await self._events.record(stream, "RecordsKept", note, is_warning=True)
            await self._remove(stream)

        await for_each(release, terminating)

    async def _add(self, resource: Resource) -> None:
        metadata = resource["metadata"]
        named = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion")}
        body = {
            "apiVersion": KINDS["Stream"].api_version,
            "kind": "Stream",
            "metadata": {**named, "finalizers": [FINALIZER]},
        }
        await self._write(resource, self._kube.apply(body))

    async def _remove(self, resource: Resource) -> None:
        # Not by server-side apply: it would keep the finalizer if another field manager has also set it, such as a restored backup. The
        # version keeps a late request from removing the finalizer of a Stream that owns something by now.
        others = [found for found in resource["metadata"].get("finalizers", ()) if found != FINALIZER]
        await self._write(resource, self._kube.set_finalizers(resource, others))

    async def _write(self, resource: Resource, request: Awaitable[dict[str, Any] | None]) -> None:
        """Wait for a change of a Stream. Its result is cached unless the Stream is being deleted."""
        try:
            written = await request
        except OperatorError:
            if self._cache.get("Stream", *api.namespaced_name(resource)) is None:
                return  # deleted in the meantime
            raise
        if written and not api.is_terminating(written):
            self._cache.put("Stream", written)
