"""Worker: the streams of one data layer, in batches, and the statuses of their Streams.

Deleting a Stream leaves its records alone, unless `deletionPolicy` is Delete: then a finalizer holds the resource until the stream is
deleted, and says what keeps it from that, and how to let go without. Nothing else has a finalizer, so nothing hangs when the operator is
not there.

What is wrong with one Stream is told there, and keeps no other from what it shall be.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, Backlogs, ObservedStream, StreamChange
from bearlake_operator.api import Resource
from bearlake_operator.errors import Invalid, OperatorError, Unavailable
from bearlake_operator.handlers import hosts
from bearlake_operator.handlers.finalizers import Finalizers, is_held, is_held_for_nothing
from bearlake_operator.handlers.many import some_at_once, tried
from bearlake_operator.handlers.notes import Notes, now_text
from bearlake_operator.handlers.world import World
from bearlake_operator.kube import Kube
from bearlake_operator.manifests import labels
from bearlake_operator.reconcile import claims, endpoints, selection, status, streams
from bearlake_operator.reconcile.claims import Claim, Key
from bearlake_operator.settings import Settings

log = logging.getLogger(__name__)

UNREACHABLE_S = 15.0
"""Time for which a data layer may be silent before Streams that were in order say so: a restart of its pods is no news."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a round has seen: streams, problems and backlogs by stream, the patterns of each Compactor, where tiers are."""

    observed: Mapping[str, ObservedStream]
    problems: Mapping[str, str]
    backlogs: Backlogs | None
    compacted: Sequence[Sequence[str]]
    hosts: endpoints.Hosts


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
        self._finalizers = Finalizers(kube, world, notes)
        self._silent_since: float | None = None

    async def work(self) -> float:
        """One round; returns the seconds until the next. Raises `Unavailable`."""
        everything = self._world.of("Stream")
        found = claims.decide(everything)
        mine = [one for one in everything if self._is_mine(one)]
        live = [one for one in mine if api.key_of(one) in found]
        going = [one for one in mine if api.is_going(one) and is_held(one)]
        if self._client is None:
            await self._show_all([(one, self._lost(found[api.key_of(one)])) for one in live])
            await self._finalizers.abandon(going)
            return self._settings.resync_seconds
        problems = await tried(self._finalizers.let_go([one for one in mine if is_held_for_nothing(one)]))
        doomed = [one for one in going if not is_held_for_nothing(one)]
        try:
            observed = await self._client.streams() if mine else {}
            backlogs = await self._client.backlogs() if live else None
        except OperatorError as error:
            is_silent = self._is_silent()
            told = live if is_silent else [one for one in live if not status.is_synced(one)]
            await self._show_all([(one, self._unreachable(found[api.key_of(one)], str(error))) for one in told])
            await self._finalizers.show_kept(dict.fromkeys(map(api.key_of, doomed if is_silent else ()), str(error)))
            raise
        self._silent_since = None
        problems += await tried(self._finalizers.hold(live, found))
        problems += await self._finalizers.delete(self._client, doomed, found, observed)
        refused = await self._change(live, found, observed)
        if refused is not None:
            observed = await self._client.streams()
            due = {change.name for _, change in self._due(live, found, observed)}
            refused = {name: problem for name, problem in refused.items() if name in due}
        assert self._layer is not None
        places = await hosts.of_layer(self._settings, self._layer, self._kube, self._world)
        seen = _Seen(observed, refused or {}, backlogs, self._compacted(found), places)
        await self._show_all([(one, self._view(found[api.key_of(one)], seen)) for one in live])
        if problems:
            raise Unavailable("; ".join(problems))
        return self._settings.resync_seconds

    def _is_silent(self) -> bool:
        """The data layer has failed again; whether it has for long."""
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        return now - self._silent_since > UNREACHABLE_S

    def _is_mine(self, resource: Resource) -> bool:
        layer = resource["spec"].get("dataLayer", "default")
        return layer == self._layer if self._layer is not None else layer not in self._settings.data_layers

    def _due(
        self, live: Sequence[Resource], found: Mapping[Key, Claim], observed: Mapping[str, ObservedStream]
    ) -> list[tuple[Resource, StreamChange]]:
        """What has to change so that the streams are what their resources say."""
        changes: list[tuple[Resource, StreamChange]] = []
        for resource in live:
            claim = found[api.key_of(resource)]
            if claim.is_owner:
                applied = resource.get("status", {}).get("appliedConfigs", ())
                change = streams.change_of(claim.spec, observed.get(claim.spec.name), applied)
                changes += [(resource, change)] if change is not None else []
        return changes

    async def _change(
        self, live: Sequence[Resource], found: Mapping[Key, Claim], observed: Mapping[str, ObservedStream]
    ) -> dict[str, str] | None:
        """Make the streams what their resources say; the problems by stream, None when there was nothing to do."""
        assert self._client is not None
        changes = self._due(live, found, observed)
        if not changes:
            return None
        log.info("changing streams", extra={"data_layer": self._layer, "count": len(changes)})
        try:
            problems = await self._client.change([change for _, change in changes])
        except Invalid as error:
            return {change.name: str(error) for _, change in changes}
        drifted = [(one, change) for one, change in changes if status.is_synced(one) and change.name not in problems]
        await some_at_once(
            lambda pair: self._notes.tell(pair[0], "ChangedElsewhere", streams.drift_of(pair[1])), drifted
        )
        return problems

    async def _show_all(self, views: Sequence[tuple[Resource, status.StreamView]]) -> None:
        now = now_text()

        async def show(pair: tuple[Resource, status.StreamView]) -> None:
            resource, view = pair
            await self._notes.show(resource, status.stream(self._settings, self._kube.namespace, resource, view, now))

        await some_at_once(show, views)

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
            hosts=seen.hosts,
        )

    def _compacted(self, found: Mapping[Key, Claim]) -> Sequence[Sequence[str]]:
        """The patterns of each Compactor's streams in this data layer."""
        chosen = []
        for resource in self._world.of("Compactor"):
            try:
                spec = api.compactor_spec(resource)
            except Invalid:
                continue  # it says so itself
            if spec.data_layer == self._layer and not api.is_going(resource):
                chosen.append(selection.patterns(spec, self._world.of("Stream"), found))
        return chosen

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
        return status.StreamView(claim=claim, observed=None, problem=self._settings.refusal_of(claim.spec.data_layer))
