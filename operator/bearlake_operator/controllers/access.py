"""Writes the access rules of a data layer's Streams through the admin API (`reconcile/access.py` says which rules belong to a Stream).

Every change of rules happens in three steps: read the revision of the rules, write the Stream's status onto the version of the Stream that
this process knows, then send the change with that revision. A former leader, whose Stream is outdated, fails in the second step; a request
that arrives late is refused in the third. Neither can undo what happened since.

Rules are created before others are deleted, and before their stream is created: at no moment does a change of the spec allow more than the
old spec or the new one. If the new rules cannot be created, the old rules stay.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bearlake_operator import api
from bearlake_operator.admin import RULE_COUNT, AdminClient, ObservedRules
from bearlake_operator.api import AccessRule, Resource
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.concurrency import bug_in, for_each
from bearlake_operator.controllers.events import EventRecorder
from bearlake_operator.controllers.status_writer import StatusWriter
from bearlake_operator.errors import Conflict, Invalid, OperatorError, Unavailable
from bearlake_operator.reconcile import access, status
from bearlake_operator.reconcile.access import AccessView
from bearlake_operator.reconcile.claims import Claim, NamespacedName

log = logging.getLogger(__name__)

ATTEMPTS_MAX = 3
"""Attempts in one run while others change access rules."""

_StreamRules = tuple[str, frozenset[AccessRule]]
"""A stream and some of its rules."""


@dataclass(slots=True)
class Outcome:
    """What became of the rules of one run: problems and other observations by Stream, and errors to retry."""

    granted: set[NamespacedName] = field(default_factory=set)
    """The Streams all of whose rules exist."""
    over_limit: set[NamespacedName] = field(default_factory=set)
    """The Streams that may not list the rules that they name (`access.refusals`)."""
    problems: dict[NamespacedName, tuple[str, bool]] = field(default_factory=dict)
    """What went wrong, and whether a retry fails until somebody changes something."""
    existing: dict[NamespacedName, Collection[AccessRule]] = field(default_factory=dict)
    deleted: dict[NamespacedName, Collection[AccessRule]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Forget what an attempt has noted."""
        self.granted.clear()
        self.over_limit.clear()
        self.problems.clear()
        self.errors.clear()

    def fail(self, keys: Collection[NamespacedName], error: OperatorError) -> None:
        """Note an error that concerns these Streams."""
        for key in keys:
            self.problems.setdefault(key, (str(error), isinstance(error, Invalid)))
        self.errors.append(str(error))

    def view(self, key: NamespacedName) -> AccessView:
        """What the Stream's status shows."""
        problem, is_refused = self.problems.get(key, ("", False))
        return AccessView(
            are_granted=key in self.granted,
            problem=problem,
            is_refused=is_refused,
            existing=self.existing.get(key, ()),
            deleted=self.deleted.get(key, ()),
        )


class StreamAccess:
    """The access rules of the Streams of one data layer."""

    def __init__(
        self,
        client: AdminClient,
        cache: ResourceCache,
        status_writer: StatusWriter,
        events: EventRecorder,
        namespace_rule_count_max: int,
        total_rule_count_max: int,
    ) -> None:
        """`namespace_rule_count_max`: rules that the Streams of one namespace may have; `total_rule_count_max`: of all. 0: no limit."""
        self._namespace_rule_count_max = namespace_rule_count_max
        self._total_rule_count_max = total_rule_count_max
        self._client = client
        self._cache = cache
        self._status_writer = status_writer
        self._events = events

    async def grant(self, owners: Sequence[Claim], terminating: Sequence[Resource]) -> Outcome:
        """List the rules that these Streams name and that belong to them, then create those that are missing. Raises nothing.

        `owners` own their stream names and have the finalizer. `terminating` are the Streams of this data layer that are being deleted.
        """
        outcome = Outcome()
        naming = [claim for claim in owners if claim.spec.access]
        for _ in range(ATTEMPTS_MAX if naming else 0):
            try:
                observed = await self._client.access_rules()
                is_done = await self._grant(naming, terminating, observed, outcome)
            except OperatorError as error:
                outcome.fail([claim.key for claim in naming], error)
                return outcome
            if is_done:
                outcome.granted |= {claim.key for claim in naming} - set(outcome.problems)
                return outcome
        if naming:
            outcome.fail([claim.key for claim in naming], Unavailable("the access rules change all the time"))
        return outcome

    async def revoke(self, owners: Sequence[Claim], terminating: Sequence[Resource], outcome: Outcome) -> None:
        """Delete the rules that belong to these Streams and that they no longer name; of `terminating` Streams, all.

        A Stream that names rules which do not exist, by the `outcome` of `grant`, keeps its former rules: without any rule, its stream may
        be open to everybody. Only former rules that do not exist are then deleted, so that refused versions of a spec do not accumulate.

        A rule that the owner of the stream's name also names is not deleted but handed over: the Stream that is being deleted waits until
        the owner's status lists it.
        """
        dropped = self._dropped(owners, terminating, outcome)
        if not dropped:
            return
        try:
            naming = {claim.key for claim in owners if claim.spec.access}
            deleted, failed = await self._delete(dropped, kept=naming - outcome.granted)
        except OperatorError as error:
            outcome.fail(list(dropped), error)
            return
        for key, problem in failed.items():
            outcome.fail([key], problem)
        outcome.deleted |= {key: rules for key, (_, rules) in deleted.items() if key not in failed}

    def _dropped(
        self, owners: Sequence[Claim], terminating: Sequence[Resource], outcome: Outcome
    ) -> Mapping[NamespacedName, _StreamRules]:
        """The rules to delete, as `revoke` says, by Stream."""
        named = {claim.spec.name: claim for claim in owners}
        dropped: dict[NamespacedName, _StreamRules] = {}
        for claim in owners:
            dropped[claim.key] = claim.spec.name, self._listed(claim.key) - claim.spec.access
        for resource in terminating:
            key, stream, own = api.namespaced_name(resource), api.stream_spec(resource).name, access.listed(resource)
            heir = named.get(stream)
            inherited = own & heir.spec.access if heir else frozenset[AccessRule]()
            if heir and heir.key in outcome.over_limit:
                inherited &= self._listed(heir.key)  # it takes over no more
            if heir and not inherited <= self._listed(heir.key):
                outcome.fail([key], Unavailable(f"the Stream {'/'.join(heir.key)} has not taken over its access rules"))
            dropped[key] = stream, own - inherited
        return {key: (stream, rules) for key, (stream, rules) in dropped.items() if rules}

    async def _grant(
        self, naming: Sequence[Claim], terminating: Sequence[Resource], observed: ObservedRules, outcome: Outcome
    ) -> bool:
        """Returns False if the rules have changed meanwhile. Raises `Unavailable`."""
        left: dict[str, set[AccessRule]] = {}
        left_by: dict[NamespacedName, set[AccessRule]] = {}
        for resource in terminating:
            (namespace, _), stream = api.namespaced_name(resource), api.stream_spec(resource).name
            left.setdefault(stream, set()).update(access.listed(resource))
            left_by.setdefault((namespace, stream), set()).update(access.listed(resource))
        missing: dict[str, frozenset[AccessRule]] = {}
        keys: dict[str, NamespacedName] = {}
        outcome.start()
        refused = self._refusals(naming, observed, left, left_by)
        outcome.over_limit |= set(refused)
        for key, message in refused.items():
            outcome.fail([key], Invalid(message))

        async def list_rules(claim: Claim) -> None:
            stream, named = claim.spec.name, claim.spec.access
            present = observed.streams.get(stream, ())
            absent = named.difference(present)
            try:
                own = access.to_list(named, self._listed(claim.key), present, left.get(stream, ()))
                await self._list(claim.key, own, absent)
            except OperatorError as error:
                outcome.fail([claim.key], error)
                return
            except Exception as error:  # noqa: BLE001 - the boundary of one resource
                outcome.fail([claim.key], bug_in("list the access rules of a Stream", error))
                return
            outcome.existing[claim.key] = named - own
            if absent:
                missing[stream], keys[stream] = absent, claim.key

        await for_each(list_rules, [claim for claim in naming if claim.key not in refused])
        if not missing:
            return True
        log.info("creating access rules", extra={"count": sum(map(len, missing.values()))})

        def refuse(streams: Collection[str], error: Invalid) -> None:
            outcome.fail([keys[stream] for stream in streams], error)

        try:
            batches = access.in_batches(missing, RULE_COUNT)
            await _send(self._client.create_rules, batches, observed.revision, refuse)
        except Conflict:
            return False
        return True

    def _refusals(
        self,
        naming: Sequence[Claim],
        observed: ObservedRules,
        left: Mapping[str, Collection[AccessRule]],
        left_by: Mapping[NamespacedName, Collection[AccessRule]],
    ) -> Mapping[NamespacedName, str]:
        """The Streams that would have too many rules, with the messages.

        `left` has the rules that are taken over, by stream; `left_by` by the namespace that leaves them and stream. Those of another
        namespace are new in the namespace that takes them over.
        """
        layers = {claim.spec.data_layer for claim in naming}
        counts: dict[str, int] = {}
        for resource in self._cache.list("Stream"):
            if api.stream_spec(resource).data_layer in layers:
                namespace, _ = api.namespaced_name(resource)
                counts[namespace] = counts.get(namespace, 0) + len(access.listed(resource))
        growths = []
        for claim in sorted(naming, key=lambda claim: claim.key):
            stream, named, own = claim.spec.name, claim.spec.access, self._listed(claim.key)
            new = access.to_list(named, own, observed.streams.get(stream, ()), left.get(stream, ())) - own
            more_count = len(named.difference(left_by.get((claim.key[0], stream), ()))) - len(own)
            growth = access.Growth(
                stream=claim.key, listed_count=len(own), new_count=len(new), more_count=min(more_count, len(new))
            )
            growths.append(growth)
        return access.refusals(growths, counts, self._namespace_rule_count_max, self._total_rule_count_max)

    async def _list(self, key: NamespacedName, own: frozenset[AccessRule], absent: Collection[AccessRule]) -> None:
        """Make the Stream's status list these rules. `absent` are those that do not exist.

        Raises `Conflict` (the Stream has changed), `Invalid`, `Unavailable`.
        """
        resource = self._cache.get("Stream", *key)
        if resource is None:
            raise Conflict("the Stream is gone")
        if own != access.listed(resource):
            listing = {**resource.get("status", {}), "accessRules": access.shown(own)}
            if not await self._status_writer.write(resource, listing):
                raise Conflict("the Stream is gone")
        elif absent:
            await self._status_writer.confirm(resource)
            if status.is_synced(resource, "AccessSynced"):
                note = f"Access rules were deleted elsewhere, and are created again: {access.describe_all(absent)}."
                await self._events.record(resource, "ChangedElsewhere", note)

    async def _delete(
        self, dropped: Mapping[NamespacedName, _StreamRules], kept: Collection[NamespacedName]
    ) -> tuple[Mapping[NamespacedName, _StreamRules], Mapping[NamespacedName, OperatorError]]:
        """Delete the rules, whether or not they exist: afterwards, an earlier creation cannot take effect.

        Of the Streams in `kept`, rules that exist stay. Returns the rules that are deleted, and the errors, by Stream. Raises
        `OperatorError`: some rules may be deleted.
        """
        for _ in range(ATTEMPTS_MAX):
            observed = await self._client.access_rules()
            deleted = {
                key: (stream, rules.difference(observed.streams.get(stream, ()) if key in kept else ()))
                for key, (stream, rules) in dropped.items()
            }
            deleted = {key: (stream, rules) for key, (stream, rules) in deleted.items() if rules}
            failed = await self._status_writer.outdated("Stream", deleted)
            stream_rules: dict[str, set[AccessRule]] = {}
            for stream, rules in (found for key, found in deleted.items() if key not in failed):
                stream_rules.setdefault(stream, set()).update(rules)
            log.info("deleting access rules", extra={"count": sum(map(len, stream_rules.values()))})

            def refuse(
                streams: Collection[str],
                error: Invalid,
                deleted: Mapping[NamespacedName, _StreamRules],
                failed: dict[NamespacedName, OperatorError],
            ) -> None:
                failed |= {key: error for key, (stream, _) in deleted.items() if stream in streams}

            batches = access.in_deletion_batches(stream_rules, RULE_COUNT)
            try:
                note = partial(refuse, deleted=deleted, failed=failed)
                await _send(self._client.delete_rules, batches, observed.revision, note)
            except Conflict:
                continue
            return deleted, failed
        raise Unavailable("the access rules change all the time")

    def _listed(self, key: NamespacedName) -> frozenset[AccessRule]:
        resource = self._cache.get("Stream", *key)
        return access.listed(resource) if resource else frozenset()


_Send = Callable[[Sequence[tuple[str, AccessRule]], int], Awaitable[int]]
_Refuse = Callable[[Collection[str], Invalid], None]


async def _send(send: _Send, batches: Sequence[list[tuple[str, AccessRule]]], revision: int, refuse: _Refuse) -> None:
    """Send the rules in batches, each with the revision that the one before has made. Raises `Conflict`, `Unavailable`.

    A batch that is refused is sent again stream by stream; `refuse` is called with the streams whose rules are refused. Their further
    batches are not sent.
    """
    batches = list(batches)
    while batches:
        batch = batches.pop(0)
        streams = {stream for stream, _ in batch}
        try:
            revision = await send(batch, revision)
        except Invalid as error:
            if len(streams) == 1:
                refuse(streams, error)
                batches = [other for other in batches if other[0][0] not in streams]
            else:
                alone = [[pair for pair in batch if pair[0] == stream] for stream in sorted(streams)]
                batches = [*alone, *batches]
