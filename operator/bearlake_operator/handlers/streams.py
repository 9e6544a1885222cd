"""Worker: the streams of one data layer, in batches, and the statuses of their Streams.

Deleting a Stream leaves its records alone, unless `deletionPolicy` is Delete: then a finalizer holds the resource until the stream is
deleted. Nothing else has a finalizer, so nothing hangs when the operator is not there.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, Backlog, Backlogs, ObservedStream, StreamChange
from bearlake_operator.api import Resource
from bearlake_operator.errors import OperatorError, Unavailable
from bearlake_operator.handlers.notes import Notes, now_text
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import KINDS, Kube
from bearlake_operator.manifests import labels
from bearlake_operator.reconcile import claims, status, streams
from bearlake_operator.reconcile.claims import Claim, Key
from bearlake_operator.settings import Settings

log = logging.getLogger(__name__)

FINALIZER = "bearlake.dev/stream"
STATUS_COUNT_AT_ONCE = 16
UNREACHABLE_S = 15.0
"""Time for which a data layer may be silent before Streams that were in order say so: a restart of its pods is no news."""


class StreamWorker:
    """See the module. `work` is for a `Loop`. Without a client (`layer` None) it tells Streams that their data layer is unknown."""

    def __init__(
        self,
        settings: Settings,
        layer: str | None,
        kube: Kube,
        world: World,
        notes: Notes,
        client: AdminClient | None,
    ) -> None:
        self._settings = settings
        self._layer = layer
        self._kube = kube
        self._world = world
        self._notes = notes
        self._client = client
        self._silent_since: float | None = None

    async def work(self) -> float:
        """One round; returns the seconds until the next. Raises `Unavailable`."""
        everything = self._world.of("Stream")
        found = claims.decide(everything)
        mine = [one for one in everything if self._is_mine(one)]
        live = [one for one in mine if api.key_of(one) in found]
        if self._client is None:
            await self._show_all([(one, self._lost(found[api.key_of(one)])) for one in live])
            await self._let_go([one for one in mine if api.key_of(one) not in found])
            return self._settings.resync_seconds
        try:
            observed = await self._client.streams() if mine else {}
            backlogs = await self._client.backlogs() if live else None
        except OperatorError as error:
            told = live if self._is_silent() else [one for one in live if not status.is_synced(one)]
            await self._show_all([(one, self._unreachable(found[api.key_of(one)], str(error))) for one in told])
            raise
        self._silent_since = None
        await self._hold([one for one in live if found[api.key_of(one)].spec.is_deleted_with_resource], found)
        await self._delete([one for one in mine if api.key_of(one) not in found], found, observed)
        problems = await self._change(live, found, observed)
        if problems is not None:
            observed = await self._client.streams()
        views = [(one, self._view(found[api.key_of(one)], observed, problems or {}, backlogs)) for one in live]
        await self._show_all(views)
        return self._settings.resync_seconds

    def _is_silent(self) -> bool:
        """The data layer has failed again; whether it has for long."""
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        return now - self._silent_since > UNREACHABLE_S

    def _is_mine(self, resource: Resource) -> bool:
        layer = resource["spec"].get("dataLayer", "default")
        return layer == self._layer if self._layer is not None else layer not in self._settings.data_layers

    async def _change(
        self, live: Sequence[Resource], found: Mapping[Key, Claim], observed: Mapping[str, ObservedStream]
    ) -> dict[str, str] | None:
        """Make the streams what their resources say; the problems by stream, None when there was nothing to do."""
        assert self._client is not None
        changes: list[StreamChange] = []
        for resource in live:
            claim = found[api.key_of(resource)]
            if claim.is_owner:
                applied = resource.get("status", {}).get("appliedConfigs", ())
                change = streams.change_of(claim.spec, observed.get(claim.spec.name), applied)
                changes += [change] if change is not None else []
        if not changes:
            return None
        log.info("changing streams", extra={"data_layer": self._layer, "count": len(changes)})
        return await self._client.change(changes)

    async def _delete(
        self, going: Sequence[Resource], found: Mapping[Key, Claim], observed: Mapping[str, ObservedStream]
    ) -> None:
        """Delete the streams of resources that go and that say so, then let the resources go."""
        assert self._client is not None
        claimed = {claim.spec.name for claim in found.values() if claim.spec.data_layer == self._layer}
        held = [one for one in going if FINALIZER in one["metadata"].get("finalizers", ())]
        specs = [api.stream_spec(one) for one in held]
        doomed = [
            spec.name
            for spec, one in zip(specs, held, strict=True)
            # Only the incarnation that this resource knew, and not one that another Stream has taken over.
            if spec.is_deleted_with_resource
            and spec.name not in claimed
            and spec.name in observed
            and observed[spec.name].id == one.get("status", {}).get("streamId")
        ]
        if doomed:
            log.info("deleting streams", extra={"data_layer": self._layer, "streams": doomed})
            problems = await self._client.delete(doomed)
            if problems:
                raise Unavailable("; ".join(f"{name}: {problem}" for name, problem in problems.items()))
        await self._let_go(held)

    async def _hold(self, resources: Sequence[Resource], found: Mapping[Key, Claim]) -> None:
        """Put the finalizer on Streams whose deletion means that of their records."""
        for resource in resources:
            is_held = FINALIZER in resource["metadata"].get("finalizers", ())
            if not is_held and found[api.key_of(resource)].is_owner:
                await self._set_finalizers(resource, [FINALIZER])

    async def _let_go(self, resources: Sequence[Resource]) -> None:
        for resource in resources:
            if FINALIZER in resource["metadata"].get("finalizers", ()):
                await self._set_finalizers(resource, [])

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
            after = await self._kube.apply(body)
        except OperatorError as error:
            if self._world.get("Stream", metadata["namespace"], metadata["name"]) is None:
                return  # it has gone meanwhile
            raise Unavailable(str(error)) from error
        if after["metadata"].get("deletionTimestamp") is None:
            self._world.put("Stream", after)

    async def _show_all(self, views: Sequence[tuple[Resource, status.StreamView]]) -> None:
        """Show them all, some at once. A status that is refused does not keep the others from theirs; silence does."""
        places = asyncio.Semaphore(STATUS_COUNT_AT_ONCE)
        now, problems = now_text(), list[OperatorError]()

        async def show(resource: Resource, view: status.StreamView) -> None:
            async with places:
                if any(isinstance(problem, Unavailable) for problem in problems):
                    return
                shown = status.stream(self._settings, self._kube.namespace, resource, view, now)
                try:
                    await self._notes.show(resource, shown)
                except OperatorError as problem:
                    problems.append(problem)

        async with asyncio.TaskGroup() as group:
            for pair in views:
                group.create_task(show(*pair))
        if problems:
            raise problems[0]

    def _view(
        self,
        claim: Claim,
        observed: Mapping[str, ObservedStream],
        problems: Mapping[str, str],
        backlogs: Backlogs | None,
    ) -> status.StreamView:
        found = observed.get(claim.spec.name)
        return status.StreamView(
            claim=claim,
            observed=found,
            problem=problems.get(claim.spec.name, ""),
            complaint=streams.complaint_of(claim.spec, found) if found else "",
            waiting=[protocol for protocol in claim.spec.protocols if not self._is_serving(protocol)],
            backlog=backlogs.streams.get(claim.spec.name, Backlog()) if backlogs else None,
        )

    def _is_serving(self, protocol: str) -> bool:
        assert self._layer is not None
        name = labels.tier_name(self._layer, protocol)
        return status.deployment_is_ready(self._world.get("Deployment", self._kube.namespace, name))

    def _unreachable(self, claim: Claim, problem: str) -> status.StreamView:
        return status.StreamView(claim=claim, observed=None, problem=problem, is_reachable=False)

    def _lost(self, claim: Claim) -> status.StreamView:
        problem = f"There is no data layer {claim.spec.data_layer!r}."
        return status.StreamView(claim=claim, observed=None, problem=problem)
