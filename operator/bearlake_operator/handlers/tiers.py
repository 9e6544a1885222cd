"""Worker: the tiers that Streams ask for and the workers of all Compactors, in the operator's own namespace; statuses of Compactors."""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, Backlogs, Commits
from bearlake_operator.api import CompactorSpec, Resource
from bearlake_operator.errors import Invalid, OperatorError, Unavailable
from bearlake_operator.handlers.apply import Applier
from bearlake_operator.handlers.notes import Notes, now_text
from bearlake_operator.handlers.settling import Settling
from bearlake_operator.handlers.world import World
from bearlake_operator.manifests import Manifest, compactor, labels, tier
from bearlake_operator.reconcile import claims, needs, selection, status
from bearlake_operator.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Plan:
    """What shall be there, and the Compactors that cannot be."""

    manifests: list[Manifest] = field(default_factory=list)
    specs: dict[claims.Key, CompactorSpec] = field(default_factory=dict)
    streams: dict[claims.Key, Sequence[str]] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    problems: dict[claims.Key, str] = field(default_factory=dict)


class TierWorker:
    """See the module. `work` is for a `Loop`."""

    def __init__(
        self,
        settings: Settings,
        namespace: str,
        world: World,
        applier: Applier,
        notes: Notes,
        clients: Mapping[str, AdminClient],
    ) -> None:
        self._settings = settings
        self._namespace = namespace
        self._world = world
        self._applier = applier
        self._notes = notes
        self._clients = clients
        self._chosen = Settling[tuple[str, ...]]()

    async def work(self) -> float:
        """One round; returns the seconds until the next. Raises `Unavailable` when something is left to do."""
        now = datetime.now(UTC)
        plan = self._plan(now)
        problems = await self._applier.ensure(plan.manifests)
        if not problems:  # first what is wanted, then what is not: nothing goes before its successor is there
            problems += await self._applier.prune(plan.manifests)
        await self._show(plan, now)
        if problems:
            raise Unavailable("; ".join(problems))
        changes = [due for spec in plan.specs.values() if (due := needs.next_change(spec, now)) is not None]
        return min(
            [self._settings.resync_seconds, *plan.waits_s, *((due - now).total_seconds() + 1 for due in changes)]
        )

    def _plan(self, now: datetime) -> _Plan:
        plan = _Plan()
        found = claims.decide(self._world.of("Stream"))
        leaving = claims.leaving(self._world.of("Stream"))
        for layer, protocols in needs.tiers(self._settings, found.values(), leaving).items():
            for protocol in protocols:
                plan.manifests += tier.objects(self._settings, layer, protocol)
        for resource in self._world.of("Compactor"):
            if "deletionTimestamp" in resource["metadata"]:
                continue
            key = api.key_of(resource)
            try:
                spec = api.compactor_spec(resource)
                if spec.data_layer not in self._settings.data_layers:
                    raise Invalid(f"There is no data layer {spec.data_layer!r}.")
                streams, wait_s = self._chosen.take(key, selection.patterns(spec, self._world.of("Stream"), found))
                plan.waits_s += [wait_s] if wait_s else []
                plan.manifests += compactor.objects(
                    self._settings, spec, replicas=needs.replicas(spec, now), streams=streams
                )
                plan.specs[key], plan.streams[key] = spec, streams
            except Invalid as error:
                plan.problems[key] = str(error)
        self._chosen.keep({*plan.specs})
        return plan

    async def _show(self, plan: _Plan, now: datetime) -> None:
        for resource in self._world.of("Compactor"):
            key = api.key_of(resource)
            if key in plan.problems:
                view = status.CompactorView(problem=plan.problems[key])
            elif key in plan.specs:
                view = await self._view(plan.specs[key], plan.streams[key], now)
            else:
                continue
            await self._notes.show(resource, status.compactor(resource, view, now_text()))

    async def _view(self, spec: CompactorSpec, streams: Sequence[str], now: datetime) -> status.CompactorView:
        name = labels.compactor_name(spec.namespace, spec.name)
        deployment: Resource = self._world.get("Deployment", self._namespace, name) or {}
        seen = deployment.get("status", {})
        wanted = deployment.get("spec", {}).get("replicas", needs.replicas(spec, now))
        backlogs, commits = await self._figures(spec.data_layer, streams)
        selector = labels.compactor_selector(spec.data_layer, name)
        return status.CompactorView(
            problem=self._applier.problem_of(name),
            replicas=seen.get("replicas", 0),
            ready_replicas=seen.get("readyReplicas", 0),
            wanted_replicas=wanted,
            selector=",".join(f"{key}={value}" for key, value in selector.items()),
            backlog=backlogs.whole if backlogs else None,
            aside_count=backlogs.aside_count if backlogs else 0,
            commits=commits,
            streams=streams,
        )

    async def _figures(self, layer: str, streams: Sequence[str]) -> tuple[Backlogs | None, Commits | None]:
        client = self._clients[layer]
        return await _or_none(client.backlogs(streams)), await _or_none(client.commits(streams))


async def _or_none(asked: Awaitable[T]) -> T | None:
    """A figure; None while no server is there to tell, or when it is too old to know of it."""
    try:
        return await asked
    except OperatorError:
        return None
