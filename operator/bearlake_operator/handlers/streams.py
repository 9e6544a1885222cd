"""Worker: the streams of one data layer, in batches, and the statuses of their Streams.

Deleting a Stream leaves its records alone, unless `deletionPolicy` is Delete: then a finalizer holds the resource until the stream is
deleted. Nothing else has a finalizer, so nothing hangs when the operator is not there.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, Backlogs, ObservedStream, StreamChange
from bearlake_operator.api import Resource
from bearlake_operator.errors import Invalid, OperatorError, Unavailable
from bearlake_operator.handlers.notes import Notes, now_text
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import KINDS, Kube
from bearlake_operator.manifests import labels
from bearlake_operator.reconcile import claims, endpoints, selection, status, streams
from bearlake_operator.reconcile.claims import FINALIZER, Claim, Key
from bearlake_operator.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

WRITE_COUNT_AT_ONCE = 16
UNREACHABLE_S = 15.0
"""Time for which a data layer may be silent before Streams that were in order say so: a restart of its pods is no news."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a round has seen: streams, problems and backlogs by stream, the patterns of each Compactor, load balancers by Service."""

    observed: Mapping[str, ObservedStream]
    problems: Mapping[str, str]
    backlogs: Backlogs | None
    compacted: Sequence[Sequence[str]]
    balancers: Mapping[str, str]


class StreamWorker:
    """See the module. `work` is for a `Loop`. Without a client (`layer` None) it tells Streams that their data layer is unknown.

    `problem_of` says what is wrong with a tier's objects, by their name.
    """

    def __init__(
        self,
        settings: Settings,
        layer: str | None,
        kube: Kube,
        world: World,
        notes: Notes,
        client: AdminClient | None,
        problem_of: Callable[[str], str],
    ) -> None:
        self._settings = settings
        self._layer = layer
        self._kube = kube
        self._world = world
        self._notes = notes
        self._client = client
        self._problem_of = problem_of
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
        seen = _Seen(observed, problems or {}, backlogs, self._compacted(found), self._balancers())
        views = [(one, self._view(found[api.key_of(one)], seen)) for one in live]
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
        changes: list[tuple[Resource, StreamChange]] = []
        for resource in live:
            claim = found[api.key_of(resource)]
            if claim.is_owner:
                applied = resource.get("status", {}).get("appliedConfigs", ())
                change = streams.change_of(claim.spec, observed.get(claim.spec.name), applied)
                changes += [(resource, change)] if change is not None else []
        if not changes:
            return None
        log.info("changing streams", extra={"data_layer": self._layer, "count": len(changes)})
        problems = await self._client.change([change for _, change in changes])
        drifted = [(one, change) for one, change in changes if status.is_synced(one) and change.name not in problems]
        await _some_at_once(
            lambda pair: self._notes.tell(pair[0], "ChangedElsewhere", streams.drift_of(pair[1])), drifted
        )
        return problems

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
        loose = [one for one in resources if FINALIZER not in one["metadata"].get("finalizers", ())]
        owners = [one for one in loose if found[api.key_of(one)].is_owner]
        await _some_at_once(lambda one: self._set_finalizers(one, [FINALIZER]), owners)

    async def _let_go(self, resources: Sequence[Resource]) -> None:
        held = [one for one in resources if FINALIZER in one["metadata"].get("finalizers", ())]
        await _some_at_once(lambda one: self._set_finalizers(one, []), held)

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
        now = now_text()

        async def show(pair: tuple[Resource, status.StreamView]) -> None:
            resource, view = pair
            await self._notes.show(resource, status.stream(self._settings, self._kube.namespace, resource, view, now))

        await _some_at_once(show, views)

    def _view(self, claim: Claim, seen: _Seen) -> status.StreamView:
        name = claim.spec.name
        found = seen.observed.get(name)
        return status.StreamView(
            claim=claim,
            observed=found,
            problem=seen.problems.get(name, ""),
            complaint=streams.complaint_of(claim.spec, found) if found else "",
            waiting=[text for protocol in claim.spec.protocols if (text := self._waiting(protocol))],
            backlog=seen.backlogs.streams.get(name, status.NO_BACKLOG) if seen.backlogs else status.NO_BACKLOG,
            has_compactor=any(selection.covers(one, name) for one in seen.compacted),
            balancers=seen.balancers,
        )

    def _compacted(self, found: Mapping[Key, Claim]) -> Sequence[Sequence[str]]:
        """The patterns of each Compactor's streams in this data layer."""
        chosen = []
        for resource in self._world.of("Compactor"):
            try:
                spec = api.compactor_spec(resource)
            except Invalid:
                continue  # it says so itself
            if spec.data_layer == self._layer and "deletionTimestamp" not in resource["metadata"]:
                chosen.append(selection.patterns(spec, self._world.of("Stream"), found))
        return chosen

    def _balancers(self) -> Mapping[str, str]:
        services = self._world.of("Service")
        return {one["metadata"]["name"]: host for one in services if (host := endpoints.balancer_host(one))}

    def _waiting(self, protocol: str) -> str:
        """The protocol, and what keeps its pods from coming, when none of them serves."""
        assert self._layer is not None
        name = labels.tier_name(self._layer, protocol)
        deployment = self._world.get("Deployment", self._kube.namespace, name)
        if status.deployment_is_ready(deployment):
            return ""
        reason = self._problem_of(name) or status.why_not_ready(deployment)
        return f"{protocol} ({reason})" if reason else protocol

    def _unreachable(self, claim: Claim, problem: str) -> status.StreamView:
        return status.StreamView(claim=claim, observed=None, problem=problem, is_reachable=False)

    def _lost(self, claim: Claim) -> status.StreamView:
        problem = f"There is no data layer {claim.spec.data_layer!r}."
        return status.StreamView(claim=claim, observed=None, problem=problem)


async def _some_at_once(work: Callable[[T], Awaitable[None]], items: Sequence[T]) -> None:
    """Do the work for all items. One that is refused does not keep the others from theirs; silence does. Raises the first problem."""
    places, problems = asyncio.Semaphore(WRITE_COUNT_AT_ONCE), list[OperatorError]()

    async def one(item: T) -> None:
        async with places:
            if any(isinstance(problem, Unavailable) for problem in problems):
                return
            try:
                await work(item)
            except OperatorError as problem:
                problems.append(problem)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(one(item))
    if problems:
        raise problems[0]
