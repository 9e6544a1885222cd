"""Worker: the tiers that Streams ask for and the workers of all Compactors, in the operator's own namespace; statuses of Compactors."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from bearlake_operator import api
from bearlake_operator.admin import AdminClient, Backlogs, Commits
from bearlake_operator.api import CompactorSpec, Resource
from bearlake_operator.errors import Invalid, OperatorError, Unavailable
from bearlake_operator.handlers import hosts
from bearlake_operator.handlers.apply import AUTOSCALER_KINDS, Applier
from bearlake_operator.handlers.notes import Notes, now_text
from bearlake_operator.handlers.settling import Settling
from bearlake_operator.handlers.world import World
from bearlake_operator.manifests import Manifest, compactor, labels, tier
from bearlake_operator.reconcile import claims, needs, selection, status, trust
from bearlake_operator.settings import Settings

T = TypeVar("T")

log = logging.getLogger(__name__)

FIGURES_S = 3.0
"""Longest time that a round waits for the figures of all Compactors: a data layer that hangs must not keep tiers from being repaired."""


@dataclass(slots=True)
class _Plan:
    """What shall be there, and the Compactors that cannot be."""

    manifests: list[Manifest] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    """Groups of objects that stay as they are: of Compactors that say something wrong, until somebody edits them."""
    specs: dict[claims.Key, CompactorSpec] = field(default_factory=dict)
    streams: dict[claims.Key, Sequence[str]] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    problems: dict[claims.Key, str] = field(default_factory=dict)


_Figures = tuple[Backlogs | None, Commits | None]
"""What a data layer tells of a Compactor's streams."""


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
        # Autoscalers go before what comes in their place: two of them, or one and a number of ours, would fight over a Deployment.
        problems = await self._applier.prune(plan.manifests, plan.kept, AUTOSCALER_KINDS)
        problems += await self._applier.ensure(plan.manifests)
        # All else goes when its successor is there.
        problems += await self._applier.prune(plan.manifests, {*plan.kept, *self._applier.troubled})
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
        balancers = hosts.balancers(self._world)
        for layer, protocols in needs.tiers(self._settings, found.values(), leaving).items():
            for protocol in protocols:
                plan.manifests += tier.objects(self._settings, layer, protocol, balancers)
        for resource in api.oldest_first([one for one in self._world.of("Compactor") if not api.is_going(one)]):
            key = api.key_of(resource)
            try:
                self._add(plan, api.compactor_spec(resource), found, now)
            except Invalid as error:
                plan.problems[key] = str(error)
                if resource["spec"].get("dataLayer", "default") in self._settings.data_layers:
                    plan.kept.add(labels.compactor_name(*key))
        plan.kept -= {labels.group_of(one["metadata"]["labels"]) for one in plan.manifests}
        self._chosen.keep({*plan.specs, *plan.problems})
        return plan

    def _add(self, plan: _Plan, spec: CompactorSpec, found: Mapping[claims.Key, claims.Claim], now: datetime) -> None:
        """A Compactor's part of the plan. Raises `Invalid`."""
        if refusal := self._settings.refusal_of(spec.data_layer) or trust.refusal_of(spec, self._namespace):
            raise Invalid(refusal)
        name = labels.compactor_name(spec.namespace, spec.name)
        if any(labels.group_of(one["metadata"]["labels"]) == name for one in plan.manifests):
            raise Invalid(f"Something older has objects of the name {name}: give this Compactor another name.")
        key = spec.namespace, spec.name
        streams, wait_s = self._chosen.take(key, selection.patterns(spec, self._world.of("Stream"), found))
        replicas = needs.replicas(spec, now)
        plan.manifests += compactor.objects(
            self._settings, spec, namespace=self._namespace, replicas=replicas, streams=streams
        )
        plan.waits_s += [wait_s] if wait_s else []
        plan.specs[key], plan.streams[key] = spec, streams

    async def _show(self, plan: _Plan, now: datetime) -> None:
        figures = await self._figures(plan)
        for resource in self._world.of("Compactor"):
            key = api.key_of(resource)
            if key in plan.problems:
                view = self._wrong(key, plan)
            elif key in plan.specs:
                view = self._view(plan.specs[key], plan.streams[key], figures.get(key, (None, None)), now)
            else:
                continue
            await self._notes.show(resource, status.compactor(resource, view, now_text()))

    def _wrong(self, key: claims.Key, plan: _Plan) -> status.CompactorView:
        """A Compactor that cannot be as it says: what it was before goes on, unless the name is another's."""
        name = labels.compactor_name(*key)
        kept: Resource = self._world.get("Deployment", self._namespace, name) or {} if name in plan.kept else {}
        seen = kept.get("status", {})
        return status.CompactorView(
            problem=plan.problems[key],
            replicas=seen.get("replicas", 0),
            ready_replicas=seen.get("readyReplicas", 0),
        )

    def _view(
        self, spec: CompactorSpec, streams: Sequence[str], figures: _Figures, now: datetime
    ) -> status.CompactorView:
        name = labels.compactor_name(spec.namespace, spec.name)
        deployment: Resource = self._world.get("Deployment", self._namespace, name) or {}
        seen = deployment.get("status", {})
        wanted = deployment.get("spec", {}).get("replicas", needs.replicas(spec, now))
        backlogs, commits = figures
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

    async def _figures(self, plan: _Plan) -> Mapping[claims.Key, _Figures]:
        """Backlog and commits of each Compactor, as far as they are told soon."""
        found: dict[claims.Key, _Figures] = {}

        async def ask(key: claims.Key, client: AdminClient, streams: Sequence[str]) -> None:
            found[key] = await _or_none(client.backlogs(streams)), await _or_none(client.commits(streams))

        try:
            async with asyncio.timeout(FIGURES_S), asyncio.TaskGroup() as group:
                for key, spec in plan.specs.items():
                    group.create_task(ask(key, self._clients[spec.data_layer], plan.streams[key]))
        except TimeoutError:
            log.warning("figures of Compactors are late", extra={"count": len(plan.specs) - len(found)})
        return found


async def _or_none(asked: Awaitable[T]) -> T | None:
    """A figure; None while no server is there to tell, or when it is too old to know of it."""
    try:
        return await asked
    except OperatorError:
        return None
