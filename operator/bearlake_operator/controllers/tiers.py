"""Controller of tiers of servers and of compaction workers in the operator's own namespace, and of the status of Compactors."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, Backlogs, Commits
from bearlake_operator.api import CompactorSpec, Resource
from bearlake_operator.controllers import external_addresses
from bearlake_operator.controllers.apply import AUTOSCALER_KINDS, Applier
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.concurrency import bug_in, for_each
from bearlake_operator.controllers.debounce import Debouncer
from bearlake_operator.controllers.status_writer import StatusWriter, timestamp
from bearlake_operator.errors import Invalid, OperatorError, Unavailable
from bearlake_operator.manifests import Manifest, compactor, importer, labels, tier
from bearlake_operator.reconcile import claims, imports, required_tiers, restricted_fields, schedule, selection, status
from bearlake_operator.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)

FIGURES_TIMEOUT_S = 3.0
"""Time that a run waits for the figures of all Compactors. A data layer that hangs must not delay the repair of tiers."""


@dataclass(slots=True)
class _Plan:
    """The desired state: objects to apply, and Compactors with their problems."""

    manifests: list[Manifest] = field(default_factory=list)
    kept_groups: set[str] = field(default_factory=set)
    """Groups of objects that stay as they are: those of invalid Compactors, until their specs are corrected."""
    specs: dict[claims.NamespacedName, CompactorSpec] = field(default_factory=dict)
    streams: dict[claims.NamespacedName, Sequence[str]] = field(default_factory=dict)
    debounces_s: list[float] = field(default_factory=list)
    problems: dict[claims.NamespacedName, str] = field(default_factory=dict)
    spec_versions: dict[claims.NamespacedName, tuple[str, int]] = field(default_factory=dict)
    """Of the Compactors."""


_Figures = tuple[Backlogs | None, Commits | None]
"""What a data layer reports about a Compactor's streams."""


class TierController:
    """Reconciles tiers and Compactors; `reconcile` is run by a `ReconcileLoop`."""

    def __init__(
        self,
        settings: Settings,
        namespace: str,
        cache: ResourceCache,
        applier: Applier,
        status_writer: StatusWriter,
        clients: Mapping[str, AdminClient],
    ) -> None:
        self._settings = settings
        self._namespace = namespace
        self._cache = cache
        self._applier = applier
        self._status_writer = status_writer
        self._clients = clients
        self._stream_patterns = Debouncer[tuple[str, ...]]()

    async def reconcile(self) -> float:
        """Run once; returns the seconds until the next run. Raises `Unavailable` if some object could not be applied or deleted."""
        now = datetime.now(UTC)
        plan = self._plan(now)
        # Delete an autoscaler before applying its successor: two autoscalers, or an autoscaler and a fixed `replicas`, would conflict.
        errors = await self._applier.prune(plan.manifests, plan.kept_groups, AUTOSCALER_KINDS)
        errors += await self._applier.apply(plan.manifests)
        # Delete all other objects only when their successors exist.
        errors += await self._applier.prune(plan.manifests, {*plan.kept_groups, *self._applier.failed_groups})
        await self._write_statuses(plan, now)
        if errors:
            raise Unavailable("; ".join(errors))
        changes = [time for spec in plan.specs.values() if (time := schedule.next_change(spec, now)) is not None]
        return min(
            [self._settings.resync_seconds, *plan.debounces_s, *((time - now).total_seconds() + 1 for time in changes)]
        )

    def _plan(self, now: datetime) -> _Plan:
        plan = _Plan()
        found = claims.resolve(self._cache.list("Stream"), self._settings.refused_name)
        terminating = claims.terminating(self._cache.list("Stream"), self._settings.refused_name)
        load_balancers = external_addresses.load_balancer_hosts(self._cache)
        required = required_tiers.required_tiers(self._settings, found.values(), terminating)
        for layer, tiers in required.items():
            for name in tiers:
                plan.manifests += tier.objects(self._settings, layer, name, load_balancers)
        wanted = imports.by_source(self._settings, self._cache.list("Stream"), found)
        for (layer, source), streams in sorted(wanted.items()):
            plan.manifests += importer.objects(self._settings, layer, source, streams)
        compactors = [resource for resource in self._cache.list("Compactor") if not api.is_terminating(resource)]
        plan.spec_versions = {api.namespaced_name(resource): api.spec_version(resource) for resource in compactors}
        for resource in api.oldest_first(compactors):
            try:
                self._add_compactor(plan, api.compactor_spec(resource), found, now)
            except Invalid as error:
                self._add_problem(plan, resource, str(error))
            except Exception as error:  # noqa: BLE001 - the boundary of one resource
                self._add_problem(plan, resource, str(bug_in("plan a Compactor", error)))
        plan.kept_groups -= {labels.group_of(manifest["metadata"]["labels"]) for manifest in plan.manifests}
        self._stream_patterns.retain({*plan.specs, *plan.problems})
        return plan

    def _add_problem(self, plan: _Plan, resource: Resource, problem: str) -> None:
        """Report a Compactor's problem, and keep its objects as they are."""
        key = api.namespaced_name(resource)
        plan.problems[key] = problem
        if resource["spec"].get("dataLayer", "default") in self._settings.data_layers:
            plan.kept_groups.add(labels.compactor_name(*key))

    def _add_compactor(
        self,
        plan: _Plan,
        spec: CompactorSpec,
        found: Mapping[claims.NamespacedName, claims.Claim],
        now: datetime,
    ) -> None:
        """Add a Compactor's objects to the plan. Raises `Invalid`."""
        unknown_layer = self._settings.unknown_data_layer(spec.data_layer)
        if problem := unknown_layer or restricted_fields.violation(spec, self._namespace):
            raise Invalid(problem)
        name = labels.compactor_name(spec.namespace, spec.name)
        if any(labels.group_of(manifest["metadata"]["labels"]) == name for manifest in plan.manifests):
            raise Invalid(f"The name {name} is already used by an older resource. Rename this Compactor.")
        key = spec.namespace, spec.name
        selected = selection.patterns(spec, self._cache.list("Stream"), found)
        streams, debounce_s = self._stream_patterns.update(key, selected)
        replicas = schedule.replicas(spec, now)
        plan.manifests += compactor.objects(
            self._settings, spec, namespace=self._namespace, replicas=replicas, streams=streams
        )
        plan.debounces_s += [debounce_s] if debounce_s else []
        plan.specs[key], plan.streams[key] = spec, streams

    async def _write_statuses(self, plan: _Plan, now: datetime) -> None:
        figures = await self._figures(plan)

        async def write(resource: Resource) -> None:
            key = api.namespaced_name(resource)
            if plan.spec_versions.get(key) != api.spec_version(resource):
                return  # the spec has changed, or the resource was replaced, which wakes the next run
            if key in plan.problems:
                view = self._invalid_view(key, plan)
            elif key in plan.specs:
                view = self._view(plan.specs[key], plan.streams[key], figures.get(key, (None, None)), now)
            else:
                return
            await self._status_writer.write(resource, status.compactor(resource, view, timestamp()))

        await for_each(write, list(self._cache.list("Compactor")))

    def _invalid_view(self, key: claims.NamespacedName, plan: _Plan) -> status.CompactorView:
        """An invalid Compactor: its existing workers continue, unless their name belongs to another Compactor."""
        name = labels.compactor_name(*key)
        has_workers = name in plan.kept_groups
        deployment: Resource = (self._cache.get("Deployment", self._namespace, name) or {}) if has_workers else {}
        seen = deployment.get("status", {})
        return status.CompactorView(
            problem=plan.problems[key],
            replicas=seen.get("replicas", 0),
            ready_replicas=seen.get("readyReplicas", 0),
        )

    def _view(
        self, spec: CompactorSpec, streams: Sequence[str], figures: _Figures, now: datetime
    ) -> status.CompactorView:
        name = labels.compactor_name(spec.namespace, spec.name)
        deployment: Resource = self._cache.get("Deployment", self._namespace, name) or {}
        seen = deployment.get("status", {})
        desired = deployment.get("spec", {}).get("replicas", schedule.replicas(spec, now))
        backlogs, commits = figures
        selector = labels.compactor_selector(spec.data_layer, name)
        return status.CompactorView(
            problem=self._applier.error_of(name),
            replicas=seen.get("replicas", 0),
            ready_replicas=seen.get("readyReplicas", 0),
            desired_replicas=desired,
            selector=",".join(f"{key}={value}" for key, value in selector.items()),
            backlog=backlogs.total if backlogs else None,
            quarantined_count=backlogs.quarantined_count if backlogs else 0,
            commits=commits,
            streams=streams,
        )

    async def _figures(self, plan: _Plan) -> Mapping[claims.NamespacedName, _Figures]:
        """Backlog and commits of each Compactor whose data layer answers within `FIGURES_TIMEOUT_S`."""
        figures: dict[claims.NamespacedName, _Figures] = {}

        async def fetch(key: claims.NamespacedName, client: AdminClient, streams: Sequence[str]) -> None:
            figures[key] = await _or_none(client.backlogs(streams)), await _or_none(client.commits(streams))

        try:
            async with asyncio.timeout(FIGURES_TIMEOUT_S), asyncio.TaskGroup() as group:
                for key, spec in plan.specs.items():
                    group.create_task(fetch(key, self._clients[spec.data_layer], plan.streams[key]))
        except TimeoutError:
            log.warning("timed out reading the metrics of Compactors", extra={"count": len(plan.specs) - len(figures)})
        return figures


async def _or_none(request: Awaitable[T]) -> T | None:
    """The result, None if no server answers or the server is too old to have the route."""
    try:
        return await request
    except OperatorError:
        return None
