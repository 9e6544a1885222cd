"""Who may do what, as of the newest access rules that this server knows. The authorizer of the stream service.

The hot path asks for streams: the caller's `Principal` keeps a mask of operations per stream, which is valid as long as the snapshot is the
same object. So this is one look-up by name per request and stream. Principals of the same client share these masks: an HTTP request and a
gRPC call make a new `Principal`. Without any rule, and with the default that allows everything, nothing is looked up at all.

Rules of a later version, with values that this version does not know, only restrict (`metadata.access_rules.restrictions`). They are
reported, and no call here deletes them.

Until the rules are loaded, everything is denied. If the metadata store does not answer, the server continues with the rules that it knows,
and reads them again when the store answers (`streams/follower.py`).
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from typing_extensions import override

from bearlake.errors import Invalid
from bearlake.metadata.access_rules import (
    CLUSTER_NAME,
    EVERYONE,
    PRINCIPAL_KINDS,
    WILDCARD,
    AccessRule,
    AccessRules,
    Operation,
    PatternKind,
    Resource,
    RuleFilter,
    RuleSet,
    check_count,
    check_rule,
    restrictions,
    row_of,
)
from bearlake.streams.access.snapshot import ALL_OPERATIONS, Snapshot
from bearlake.streams.audit import Audit
from bearlake.streams.conflicts import repeated
from bearlake.streams.principal import INTERNAL, Authorizer, Grants, Principal
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE_RULES_MAX = 1_000
"""Maximum number of rules that are examined on the event loop: about 10 ms."""

FILTER_COUNT_MAX = 1_000
"""Maximum number of filters of one deletion."""

CALLERS_MAX = 100
"""Maximum number of callers whose masks are kept for their next request: 1 MB for each that has asked for `MASKS_MAX` streams."""

MASKS_MAX = 10_000
"""Maximum number of streams whose masks are cached for one caller."""

CACHED_NAME_LENGTH_MAX = 249
"""Longest name (characters) whose mask is cached: that of a stream. Callers also ask for longer names, which no stream has."""

SHOWN_COUNT = 10
"""Maximum number of unknown rules in a log line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """What callers may do where the access rules say nothing."""

    super_users: list[str] = field(default_factory=list)
    """Principals that may do everything, also change users and access rules, and log in to the admin API: `User:name` or `Group:name` (a
    group of the caller's token). The callers of a listener without login are `User:ANONYMOUS`."""
    allow_if_no_rule: bool = True
    """Allow every operation on a resource that no access rule matches (Kafka's `allow.everyone.if.no.acl.found`). Changing access rules
    always needs a rule or a super user."""

    def __post_init__(self) -> None:
        for principal in self.super_users:
            kind, _, name = principal.partition(":")
            if kind not in PRINCIPAL_KINDS or not name or principal == EVERYONE:
                raise Invalid(f"access.super_users: {principal!r}, expected User:name or Group:name")

    def is_super_user(self, who: Principal) -> bool:
        """Whether `super_users` names the caller or one of its groups."""
        return not {str(who), *(f"Group:{group}" for group in who.groups)}.isdisjoint(self.super_users)


class AccessControl(Authorizer):
    """Decides by the deployment's access rules. Use it from the event loop's thread only."""

    def __init__(self, store: AccessRules, settings: AccessSettings | None = None, audit: Audit | None = None) -> None:
        self._store = store
        self._audit = audit or Audit()
        self._settings = settings or AccessSettings()
        self._snapshot = Snapshot((), -1, super_users=self._settings.super_users, allows_by_default=False)
        self._known = _KnownCallers(CALLERS_MAX)
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change of the rules that this server applies."""

    @property
    def revision(self) -> int:
        """The revision of the rules that this server applies; -1 before they are loaded."""
        return self._snapshot.revision

    def is_super_user(self, who: Principal) -> bool:
        """Return whether the settings let `who` do everything."""
        return self._settings.is_super_user(who)

    @override
    def allows(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        snapshot = self._snapshot
        if snapshot.is_open or self._mask(snapshot, who, kind, name) & operation.bit:
            return True
        self._audit.denied(who, operation, kind, name)
        return False

    @override
    def sees(self, who: Principal, operation: Operation, kind: Resource, name: str) -> bool:
        snapshot = self._snapshot
        return snapshot.is_open or self._mask(snapshot, who, kind, name) & operation.bit != 0

    def _mask(self, snapshot: Snapshot, who: Principal, kind: Resource, name: str) -> int:
        grants = who.grants
        if grants.snapshot is not snapshot:
            self._known.renew(grants, snapshot, who)
        if kind is not Resource.STREAM:
            return snapshot.mask(who, kind, name)
        mask = grants.masks.get(name)
        if mask is None:
            mask = snapshot.mask(who, kind, name)
            if len(grants.masks) < MASKS_MAX and len(name) <= CACHED_NAME_LENGTH_MAX:
                grants.masks[name] = mask
        return mask

    @override
    def operations(self, who: Principal, kind: Resource, name: str) -> int:
        return ALL_OPERATIONS if self._snapshot.is_open else self._snapshot.mask(who, kind, name)

    @override
    def allows_any(self, who: Principal, operation: Operation, kind: Resource) -> bool:
        if self._snapshot.allows_any(who, operation, kind):
            return True
        self._audit.denied(who, operation, kind, WILDCARD)
        return False

    @override
    def may_administer(self, who: Principal, operation: Operation) -> bool:
        """Only a rule, or being a super user, counts."""
        if self.administers(who, operation):
            return True
        self._audit.denied(who, operation, Resource.CLUSTER, CLUSTER_NAME)
        return False

    @override
    def administers(self, who: Principal, operation: Operation) -> bool:
        return self._snapshot.granted(who, Resource.CLUSTER, CLUSTER_NAME) & operation.bit != 0

    async def refresh(self) -> None:
        """Read the rules from the store and apply them. Raises `Unavailable`."""
        await self._apply(await self._store.read())

    async def list(self, selected: RuleFilter) -> Sequence[AccessRule]:
        """Return the rules that the filter selects, as stored now, in a fixed order. Raises `Unavailable`."""
        return (await self.select(selected)).rules

    async def select(self, selected: RuleFilter) -> RuleSet:
        """Return the rules that the filter selects, in a fixed order, with the revision of all rules and all unknown rules.

        Raises `Unavailable`.
        """
        found = await self._store.read()
        await self._apply(found)
        matching = await _worked(len(found.rules), partial(_matching, selected, found.rules))
        return found._replace(rules=matching)

    async def create(self, rules: Sequence[AccessRule], *, who: Principal = INTERNAL) -> None:
        """Create rules for `who`, all or none; rules that exist stay.

        Raises `Invalid`, `Overloaded`, `Unavailable` (the rules may or may not have been created; repeat the call).
        """
        await self.replace((), rules, who=who)

    async def replace(
        self, old: Collection[AccessRule], new: Collection[AccessRule], *, who: Principal = INTERNAL
    ) -> Sequence[AccessRule]:
        """Delete for `who` the rules of `old` and create those of `new`, in one step; a rule of both stays.

        Returns the rules of `old` that existed. Raises as `create`.
        """
        check_count(len(new))  # before any work: rules that arrive may be far too many
        operation = _operation(new, old)
        named = await _worked(len(new) + len(old), partial(_checked, new, old, operation))

        def decide(present: RuleSet) -> tuple[Sequence[AccessRule], Sequence[AccessRule], Sequence[AccessRule]]:
            existing = set(present.rules)
            found = [rule for rule in dict.fromkeys(old) if rule in existing]
            created = [rule for rule in dict.fromkeys(new) if rule not in existing]
            deleted = [rule for rule in found if rule not in new]
            if old:
                details[:] = _details(created, deleted, operation)
            return created, deleted, found

        with self._audit.change(who, operation, "AccessRule", "", *named) as details:
            return await self._change(decide, 1)

    async def delete(
        self,
        filters: Sequence[RuleFilter],
        *,
        kinds: Collection[Resource] = frozenset(Resource),
        who: Principal = INTERNAL,
    ) -> Sequence[Sequence[AccessRule]]:
        """Delete for `who` the rules for resources of these kinds that any filter selects; returns the deleted rules for each filter.

        Raises as `create`, and `Invalid` for more than `FILTER_COUNT_MAX` filters.
        """
        if len(filters) > FILTER_COUNT_MAX:
            raise Invalid(f"{len(filters)} filters at once; the limit is {FILTER_COUNT_MAX}")

        def decide(
            present: RuleSet,
        ) -> tuple[Sequence[AccessRule], Sequence[AccessRule], Sequence[Sequence[AccessRule]]]:
            concerned = [rule for rule in present.rules if rule.resource in kinds]
            found = [_matching(selected, concerned) for selected in filters]
            return (), list(dict.fromkeys(rule for rules in found for rule in rules)), found

        with self._audit.change(who, Operation.DELETE, "AccessRule") as details:
            found = await self._change(decide, len(filters))
            details += [_detail(rule) for rule in dict.fromkeys(rule for rules in found for rule in rules)]
            return found

    async def change(
        self,
        *,
        created: Sequence[AccessRule],
        deleted: Sequence[AccessRule],
        revision: int,
        who: Principal = INTERNAL,
    ) -> int:
        """Create and delete these rules for `who` in one step, if the rules have this revision; returns the new revision.

        The revision grows even if no rule changes. So when this returns, no change that names an older revision can still take effect,
        however late it arrives.

        Raises:
            Conflict: the rules have another revision. If an earlier attempt had no answer, it may have made the change.
            Invalid: as `AccessRules.change`.
            Unavailable: the change may or may not have been made.
        """
        operation = _operation(created, deleted)
        with self._audit.change(who, operation, "AccessRule", "", *_details(created, deleted, operation)):
            changed = await self._store.change(created=created, deleted=deleted, revision=revision)
        await self.refresh()
        return changed

    async def _change(
        self, decide: Callable[[RuleSet], tuple[Sequence[AccessRule], Sequence[AccessRule], T]], weight: int
    ) -> T:
        """`weight`: how often `decide` looks at each rule."""

        async def attempt() -> T:
            present = await self._store.read()
            created, deleted, answer = await _worked(weight * len(present.rules), partial(decide, present))
            if created or deleted:
                await self._store.change(created=created, deleted=deleted, revision=present.revision)
                await self.refresh()
            else:
                await self._apply(present)
            return answer

        return await repeated("access rules", attempt)

    async def _apply(self, found: RuleSet) -> None:
        if found.revision <= self._snapshot.revision:
            return
        snapshot = await _worked(len(found.rules) + len(found.unknown), partial(_compiled, found, self._settings))
        if snapshot.revision > self._snapshot.revision:  # otherwise a newer change is applied already
            self._snapshot = snapshot
            self.on_change()
            _report(found)


class _KnownCallers:
    """What the newest rules allow the callers that asked last. A caller is who logged in, with which groups, from which address."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._snapshot: Snapshot | None = None
        self._grants: OrderedDict[tuple[str, str, frozenset[str], str], Grants] = OrderedDict()

    def renew(self, grants: Grants, snapshot: Snapshot, who: Principal) -> None:
        """Make `grants` those of this snapshot: the ones that an equal caller has, or none yet."""
        if self._snapshot is not snapshot:
            self._snapshot = snapshot
            self._grants.clear()
        key = who.kind, who.name, who.groups, who.host
        known = self._grants.get(key)
        if known is None:
            # A separate object: the masks outlive the caller, whose `grants` another snapshot renews.
            known = self._grants[key] = Grants()
            known.snapshot, known.masks = snapshot, {}
            snapshot.prepare(who)
            known.applying = grants.applying
            if len(self._grants) > self._count_max:
                self._grants.popitem(last=False)
        else:
            self._grants.move_to_end(key)
        grants.snapshot, grants.masks, grants.applying = snapshot, known.masks, known.applying


def _compiled(found: RuleSet, settings: AccessSettings) -> Snapshot:
    restricting = {rule for row in found.unknown for rule in restrictions(row)}
    return Snapshot(
        [*found.rules, *restricting],
        found.revision,
        super_users=settings.super_users,
        allows_by_default=settings.allow_if_no_rule,
    )


def _report(found: RuleSet) -> None:
    """Report rules that this version does not know."""
    metrics.ACCESS_UNKNOWN_RULES.set(len(found.unknown))
    if found.unknown:
        shown = "; ".join(" ".join(row) for row in sorted(found.unknown)[:SHOWN_COUNT])
        log.warning(
            "access rules of a later version only restrict here; upgrade this server",
            extra={"revision": found.revision, "count": len(found.unknown), "rules": shown},
        )


def _operation(created: Collection[AccessRule], deleted: Collection[AccessRule]) -> Operation:
    """Name a change for the audit log."""
    if not deleted:
        return Operation.CREATE
    return Operation.ALTER if created else Operation.DELETE


def _checked(new: Collection[AccessRule], old: Collection[AccessRule], operation: Operation) -> Sequence[str]:
    """Name the rules of a change for the audit log. Raises `Invalid`."""
    for rule in new:
        check_rule(rule)
    return _details(new, old, operation)


def _details(created: Collection[AccessRule], deleted: Collection[AccessRule], operation: Operation) -> Sequence[str]:
    """Name the rules of a change for the audit log."""
    if operation is not Operation.ALTER:
        return [_detail(rule) for rule in dict.fromkeys([*created, *deleted])]
    changed = [("create", created), ("delete", deleted)]
    return [f"{verb} {_detail(rule)}" for verb, rules in changed for rule in dict.fromkeys(rules)]


def _detail(rule: AccessRule) -> str:
    """Name a rule for the audit log."""
    pattern = "" if rule.pattern is PatternKind.LITERAL else f" {rule.pattern.value}"
    return (
        f"{rule.permission.value} {rule.principal} {rule.operation.value} on"
        f" {rule.resource.value}:{rule.name}{pattern} from {rule.host}"
    )


def _matching(selected: RuleFilter, rules: Sequence[AccessRule]) -> Sequence[AccessRule]:
    return sorted(filter(selected.matches, rules), key=row_of)


async def _worked(rule_count: int, work: Callable[[], T]) -> T:
    """Do work that examines this many rules; in a thread if they are many, so that the event loop is not held up."""
    return work() if rule_count <= AT_ONCE_RULES_MAX else await asyncio.to_thread(work)
