"""Controller of the streams of one data layer and of the status of their Streams.

Deleting a Stream deletes its access rules, and keeps its records unless `deletionPolicy` is Delete. A Stream with access rules or with that
policy has a finalizer until these are deleted; its status says what blocks the deletion and how to finish without it. No other Stream has
a finalizer, so none hangs while no operator runs.

Errors are reported on the Stream that they concern, and do not affect others.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, Backlogs, ObservedStream, StreamChange
from bearlake_operator.api import Resource
from bearlake_operator.controllers import external_addresses
from bearlake_operator.controllers.access import Outcome, StreamAccess
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.concurrency import errors_of, for_each
from bearlake_operator.controllers.events import EventRecorder
from bearlake_operator.controllers.finalizers import Finalizers, has_finalizer
from bearlake_operator.controllers.status_writer import StatusWriter, timestamp
from bearlake_operator.errors import Invalid, OperatorError, Unavailable
from bearlake_operator.kube import KubeClient
from bearlake_operator.manifests import labels
from bearlake_operator.reconcile import claims, endpoints, selection, status, stream_changes
from bearlake_operator.reconcile.claims import Claim, NamespacedName
from bearlake_operator.settings import Settings

log = logging.getLogger(__name__)

UNREACHABLE_S = 15.0
"""Time without an answer after which synced Streams report that their data layer is unavailable. A rolling restart takes less."""

_Claims = Mapping[NamespacedName, Claim]


@dataclass(frozen=True, slots=True)
class _Observation:
    """What one run has observed.

    Streams, problems and backlogs are by stream; `compactor_patterns` has the patterns of each Compactor.
    """

    streams: Mapping[str, ObservedStream]
    problems: Mapping[str, str]
    backlogs: Backlogs | None
    compactor_patterns: Sequence[Sequence[str]]
    addresses: endpoints.ExternalAddresses
    access: Outcome


class StreamController:
    """Reconciles the Streams of one data layer; `reconcile` is run by a `ReconcileLoop`."""

    def __init__(
        self,
        settings: Settings,
        layer: str | None,
        kube: KubeClient,
        cache: ResourceCache,
        status_writer: StatusWriter,
        events: EventRecorder,
        client: AdminClient | None,
        tier_error: Callable[[str], str],
    ) -> None:
        """Without `layer` and `client`, it handles the Streams whose data layer is not configured.

        `tier_error` returns the last error on a tier's objects, given their name.
        """
        self._settings = settings
        self._layer = layer
        self._kube = kube
        self._cache = cache
        self._status_writer = status_writer
        self._events = events
        self._client = client
        self._tier_error = tier_error
        self._finalizers = Finalizers(kube, cache, status_writer, events, settings.refused_name)
        self._access = None
        if client:
            self._access = StreamAccess(
                client,
                cache,
                status_writer,
                events,
                namespace_rule_count_max=settings.access_rule_count_max,
                total_rule_count_max=settings.access_rule_total_count_max,
            )
        self._unreachable_since: float | None = None

    async def reconcile(self) -> float:
        """Run once; returns the seconds until the next run. Raises `Unavailable`."""
        everything = self._cache.list("Stream")
        found = claims.resolve(everything, self._settings.refused_name)
        mine = [stream for stream in everything if self._is_mine(stream)]
        live = [stream for stream in mine if api.namespaced_name(stream) in found]
        terminating = [stream for stream in mine if api.is_terminating(stream) and has_finalizer(stream)]
        if self._client is None:
            await self._write_statuses(live, lambda stream: self._unknown_layer_view(_claim(stream, found)))
            await self._finalizers.release_orphans(terminating)
            return self._settings.resync_seconds
        stale = self._finalizers.stale(mine)
        errors = await errors_of(self._finalizers.remove(stale))
        deleting = [stream for stream in terminating if stream not in stale]
        try:
            observed = await self._client.streams() if mine else {}
            backlogs = await self._client.backlogs() if live else None
        except OperatorError as error:
            await self._report_unreachable(live, deleting, found, str(error))
            raise
        self._unreachable_since = None
        errors += await errors_of(self._finalizers.add(live, found))
        access, more = await self._change_access(live, deleting, found, observed)
        errors += more
        refused = self._refused_tables(live, found)
        ready = [
            stream
            for stream in live
            if _may_exist(claim := _claim(stream, found), access, observed) and claim.key not in refused
        ]
        problems = await self._change(ready, found, observed)
        if problems is not None:
            observed = await self._client.streams()
            pending = {change.name for _, change in self._changes(ready, found, observed)}
            problems = {name: problem for name, problem in problems.items() if name in pending}
        assert self._layer is not None
        addresses = await external_addresses.of_data_layer(self._settings, self._layer, self._kube, self._cache)
        problems = (problems or {}) | {found[key].spec.name: problem for key, problem in refused.items()}
        seen = _Observation(observed, problems, backlogs, self._compactor_patterns(found), addresses, access)
        written = self._write_statuses(self._unchanged(live), lambda stream: self._view(_claim(stream, found), seen))
        errors += await errors_of(written)
        if errors:
            raise Unavailable("; ".join(errors))
        return self._settings.resync_seconds

    async def _change_access(
        self,
        live: Sequence[Resource],
        deleting: Sequence[Resource],
        found: _Claims,
        observed: Mapping[str, ObservedStream],
    ) -> tuple[Outcome, list[str]]:
        """Create and delete access rules, and delete what Streams that are being deleted own. Returns also the errors."""
        assert self._client is not None
        assert self._access is not None
        current = self._current(live)
        owners = [_claim(stream, found) for stream in current if has_finalizer(stream)]
        owners = [claim for claim in owners if claim.is_owner]
        outcome = await self._access.grant(owners, deleting)
        # Streams before their rules: without its last rule, a stream may be open to everybody.
        blocked = await self._finalizers.delete_streams(self._client, deleting, found, observed)
        gone = [stream for stream in deleting if api.namespaced_name(stream) not in blocked]
        await self._access.revoke(owners, gone, outcome)
        for stream in gone:
            key = api.namespaced_name(stream)
            if key in outcome.problems:
                blocked[key] = f"its access rules are not deleted: {outcome.problems[key][0]}"
        return outcome, [*outcome.errors, *await self._finalizers.release(deleting, blocked)]

    def _refused_tables(self, live: Sequence[Resource], found: _Claims) -> Mapping[NamespacedName, str]:
        """Streams that own their stream name and describe a table or a source that they may not have, and why."""
        claims = [claim for stream in live if (claim := _claim(stream, found)).is_owner]
        refused = {
            claim.key: self._settings.refused_table(claim.key[0], claim.spec.configs)
            or self._settings.refused_source(claim.key[0], claim.spec)
            or claim.spec.column_problem
            for claim in claims
        }
        return {key: problem for key, problem in refused.items() if problem}

    def _current(self, resources: Sequence[Resource]) -> list[Resource]:
        """These resources as they are known now, without those that are gone."""
        known = [self._cache.get("Stream", *api.namespaced_name(resource)) for resource in resources]
        return [resource for resource in known if resource is not None]

    def _unchanged(self, resources: Sequence[Resource]) -> list[Resource]:
        """The same without those whose spec has changed since, or that were replaced by a resource of the same name.

        This run has not applied the new spec, and the change wakes the next run.
        """
        versions = {api.namespaced_name(resource): api.spec_version(resource) for resource in resources}
        current = self._current(resources)
        return [found for found in current if api.spec_version(found) == versions[api.namespaced_name(found)]]

    async def _report_unreachable(
        self, live: Sequence[Resource], deleting: Sequence[Resource], found: _Claims, error: str
    ) -> None:
        """Report that the data layer does not answer. Synced and terminating Streams report it after `UNREACHABLE_S` only."""
        now = time.monotonic()
        self._unreachable_since = self._unreachable_since or now
        is_overdue = now - self._unreachable_since > UNREACHABLE_S
        reporting = live if is_overdue else [stream for stream in live if not status.is_synced(stream)]
        await self._write_statuses(reporting, lambda stream: self._unreachable_view(_claim(stream, found), error))
        blocked = deleting if is_overdue else ()
        await self._finalizers.report_blocked(dict.fromkeys(map(api.namespaced_name, blocked), error))

    def _is_mine(self, resource: Resource) -> bool:
        layer = resource["spec"].get("dataLayer", "default")
        return layer == self._layer if self._layer is not None else layer not in self._settings.data_layers

    def _changes(
        self, live: Sequence[Resource], found: _Claims, observed: Mapping[str, ObservedStream]
    ) -> list[tuple[Resource, StreamChange]]:
        """The changes that make the streams match their resources."""
        changes: list[tuple[Resource, StreamChange]] = []
        for resource in live:
            claim = _claim(resource, found)
            if claim.is_owner:
                applied = resource.get("status", {}).get("appliedConfigs", ())
                change = stream_changes.change_for(claim.spec, observed.get(claim.spec.name), applied)
                changes += [(resource, change)] if change is not None else []
        return changes

    async def _change(
        self, live: Sequence[Resource], found: _Claims, observed: Mapping[str, ObservedStream]
    ) -> dict[str, str] | None:
        """Make the streams match their resources. Returns the problems by stream, None if there was nothing to change."""
        assert self._client is not None
        changes = self._changes(live, found, observed)
        if not changes:
            return None
        log.info("changing streams", extra={"data_layer": self._layer, "count": len(changes)})
        try:
            problems = await self._client.change([change for _, change in changes])
        except Invalid as error:
            return {change.name: str(error) for _, change in changes}
        drifted = [
            (resource, change)
            for resource, change in changes
            if status.is_synced(resource) and change.name not in problems
        ]
        await for_each(
            lambda pair: self._events.record(pair[0], "ChangedElsewhere", stream_changes.describe_drift(pair[1])),
            drifted,
        )
        return problems

    async def _write_statuses(
        self, streams: Sequence[Resource], view_of: Callable[[Resource], status.StreamView]
    ) -> None:
        now = timestamp()

        async def write(resource: Resource) -> None:
            shown = status.stream(self._settings, self._kube.namespace, resource, view_of(resource), now)
            await self._status_writer.write(resource, shown)

        await for_each(write, streams)

    def _view(self, claim: Claim, seen: _Observation) -> status.StreamView:
        name = claim.spec.name
        observed = seen.streams.get(name)
        return status.StreamView(
            claim=claim,
            observed=observed,
            problem=seen.problems.get(name, ""),
            conflict=stream_changes.excess_partitions(claim.spec, observed) if observed else "",
            unready_tiers=[text for protocol in claim.spec.protocols if (text := self._unready_tier(protocol))],
            backlog=seen.backlogs.streams.get(name, status.NO_BACKLOG) if seen.backlogs else status.NO_BACKLOG,
            has_compactor=any(selection.covers(patterns, name) for patterns in seen.compactor_patterns),
            addresses=seen.addresses,
            access=seen.access.view(claim.key),
        )

    def _compactor_patterns(self, found: _Claims) -> Sequence[Sequence[str]]:
        """The stream patterns of each Compactor in this data layer."""
        patterns = []
        for resource in self._cache.list("Compactor"):
            try:
                spec = api.compactor_spec(resource)
            except Invalid:
                continue  # the Compactor's own status reports it
            if spec.data_layer == self._layer and not api.is_terminating(resource):
                patterns.append(selection.patterns(spec, self._cache.list("Stream"), found))
        return patterns

    def _unready_tier(self, protocol: str) -> str:
        """The protocol and what keeps its pods from starting; empty if a pod is ready."""
        assert self._layer is not None
        name = labels.tier_name(self._layer, protocol)
        deployment = self._cache.get("Deployment", self._kube.namespace, name)
        if status.deployment_is_ready(deployment):
            return ""
        reason = self._tier_error(name) or status.why_not_ready(deployment)
        return f"{protocol} ({reason})" if reason else protocol

    def _unreachable_view(self, claim: Claim, problem: str) -> status.StreamView:
        return status.StreamView(claim=claim, observed=None, problem=problem, is_reachable=False)

    def _unknown_layer_view(self, claim: Claim) -> status.StreamView:
        problem = self._settings.unknown_data_layer(claim.spec.data_layer)
        return status.StreamView(claim=claim, observed=None, problem=problem)


def _may_exist(claim: Claim, access: Outcome, observed: Mapping[str, ObservedStream]) -> bool:
    """Whether the stream exists or may be created: it is created after its access rules."""
    return claim.spec.name in observed or not claim.spec.access or claim.key in access.granted


def _claim(resource: Resource, found: _Claims) -> Claim:
    return found[api.namespaced_name(resource)]
