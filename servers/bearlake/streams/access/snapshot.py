"""The access rules of one revision, compiled: which operations a caller may do to a resource, as a mask of bits.

Order of the decision, as in Kafka's `StandardAuthorizer`:
1. The server itself and super users may do everything.
2. A rule that denies the operation (or ALL) decides, whatever else allows it.
3. A rule that allows the operation (or ALL) decides. READ, WRITE, DELETE and ALTER also allow DESCRIBE, and ALTER_CONFIGS also allows
   DESCRIBE_CONFIGS. A rule that denies READ does not deny DESCRIBE.
4. Otherwise the operation is denied, unless no rule of any principal matches the resource: then the default decides.

A snapshot is immutable. Its memory is bounded by the number of rules.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bearlake.metadata.access_rules import (
    EVERYONE,
    WILDCARD,
    AccessRule,
    Operation,
    PatternKind,
    Permission,
    Resource,
)
from bearlake.streams.principal import SERVER, Principal, host_of

ALL_OPERATIONS = sum(operation.bit for operation in Operation)

ALLOWED: Mapping[Operation, int] = {
    operation: operation.bit
    | (
        Operation.DESCRIBE.bit
        if operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
        else 0
    )
    | (Operation.DESCRIBE_CONFIGS.bit if operation is Operation.ALTER_CONFIGS else 0)
    | (ALL_OPERATIONS if operation is Operation.ALL else 0)
    for operation in Operation
}
"""The operations that a rule allows, by its operation."""

DENIED: Mapping[Operation, int] = {
    operation: ALL_OPERATIONS if operation is Operation.ALL else operation.bit for operation in Operation
}
"""The operations that a rule denies, by its operation."""


@dataclass(slots=True)
class _Verdicts:
    """What the rules of one principal with one pattern say, by host: masks of allowed and of denied operations."""

    allowed: dict[str, int] = field(default_factory=dict)
    denied: dict[str, int] = field(default_factory=dict)

    def add(self, rule: AccessRule) -> None:
        host = rule.host if rule.host == WILDCARD else host_of(rule.host)
        masks, mask = (
            (self.allowed, ALLOWED[rule.operation])
            if rule.permission is Permission.ALLOW
            else (self.denied, DENIED[rule.operation])
        )
        masks[host] = masks.get(host, 0) | mask

    def at(self, host: str) -> tuple[int, int]:
        """Return the masks of allowed and denied operations for a client at `host`; empty: its address is unknown."""
        allowed, denied = self.allowed.get(WILDCARD, 0), self.denied.get(WILDCARD, 0)
        if host:
            return allowed | self.allowed.get(host, 0), denied | self.denied.get(host, 0)
        for mask in self.denied.values():
            denied |= mask
        return allowed, denied


@dataclass(slots=True)
class _Patterns:
    """Verdicts by pattern, found by the length of a prefix."""

    literal: dict[str, _Verdicts] = field(default_factory=dict)
    prefixed: dict[str, _Verdicts] = field(default_factory=dict)
    lengths: list[int] = field(default_factory=list)
    """Lengths of the prefixes, each once."""

    def add(self, rule: AccessRule) -> None:
        if rule.pattern is PatternKind.LITERAL:
            self.literal.setdefault(rule.name, _Verdicts()).add(rule)
            return
        self.prefixed.setdefault(rule.name, _Verdicts()).add(rule)
        if len(rule.name) not in self.lengths:
            self.lengths.append(len(rule.name))

    def matching(self, name: str) -> Iterator[_Verdicts]:
        """Yield the verdicts of all patterns that match a resource's name."""
        for literal in {name, WILDCARD}:
            if literal in self.literal:
                yield self.literal[literal]
        for length in self.lengths:
            if length <= len(name) and (found := self.prefixed.get(name[:length])) is not None:
                yield found

    def all(self) -> Iterable[_Verdicts]:
        return (*self.literal.values(), *self.prefixed.values())


MERGED_MAX = 2_000
"""Most patterns of one caller that are merged; those of a caller with more are asked principal by principal."""


class _Merged:
    """The patterns of all principals of one caller at one host, as one pair of masks (allowed, denied) for each name and prefix."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self, applying: Sequence[_Patterns], host: str) -> None:
        self.literal: dict[str, tuple[int, int]] = {}
        self.prefixed: dict[str, tuple[int, int]] = {}
        for patterns in applying:
            for merged, own in ((self.literal, patterns.literal), (self.prefixed, patterns.prefixed)):
                for name, verdicts in own.items():
                    allowed, denied = merged.get(name, (0, 0))
                    more_allowed, more_denied = verdicts.at(host)
                    merged[name] = allowed | more_allowed, denied | more_denied
        self.lengths = sorted({len(prefix) for prefix in self.prefixed})

    def granted(self, name: str) -> int:
        """Return the operations that these patterns grant."""
        allowed, denied = self.literal.get(name, (0, 0))
        more_allowed, more_denied = self.literal.get(WILDCARD, (0, 0))
        allowed, denied = allowed | more_allowed, denied | more_denied
        for length in self.lengths:
            if length > len(name):
                break
            found = self.prefixed.get(name[:length])
            if found is not None:
                allowed, denied = allowed | found[0], denied | found[1]
        return allowed & ~denied


@dataclass(frozen=True, slots=True)
class _Applying:
    """What applies to one caller. It is found once for each caller and snapshot: a caller may have many groups."""

    is_super: bool
    identities: Sequence[str]
    """The principals of rules that apply to the caller, each once."""
    patterns: dict[Resource, Sequence[_Patterns]] = field(default_factory=dict)
    """The patterns of these principals; filled when a resource of the kind is asked for."""
    merged: dict[Resource, _Merged | None] = field(default_factory=dict)
    """The same, merged for the caller's host; None: there are too many."""


class Snapshot:
    """The rules of one revision, with the settings that complete them."""

    __slots__ = ("_default_mask", "_patterns", "_patterns_of_all", "_super_users", "is_open", "revision")

    def __init__(
        self,
        rules: Collection[AccessRule],
        revision: int,
        *,
        super_users: Collection[str] = (),
        allows_by_default: bool = True,
    ) -> None:
        """`super_users`: principals (`User:name`, `Group:name`). `allows_by_default`: a resource without a matching rule is open to all."""
        self.revision = revision
        self.is_open = not rules and allows_by_default
        """Whether everything is allowed."""
        self._super_users = frozenset(super_users)
        self._default_mask = ALL_OPERATIONS if allows_by_default else 0
        self._patterns: dict[tuple[Resource, str], _Patterns] = {}
        self._patterns_of_all: dict[Resource, _Patterns] = {}
        """The patterns of all principals."""
        for rule in rules:
            self._patterns.setdefault((rule.resource, rule.principal), _Patterns()).add(rule)
            self._patterns_of_all.setdefault(rule.resource, _Patterns()).add(rule)

    def mask(self, who: Principal, kind: Resource, name: str) -> int:
        """Return the bits of the operations that `who` may do to the resource `name`."""
        applying = self._applying(who)
        if applying.is_super:
            return ALL_OPERATIONS
        found = self._patterns_of_all.get(kind)
        if found is None or next(found.matching(name), None) is None:
            return self._default_mask
        return self._granted(applying, kind, who.host, name)

    def prepare(self, who: Principal) -> None:
        """Find what applies to the caller, and keep it in its grants."""
        self._applying(who)

    def granted(self, who: Principal, kind: Resource, name: str) -> int:
        """As `mask`, but without the default: only what a rule, or being a super user, allows."""
        applying = self._applying(who)
        return ALL_OPERATIONS if applying.is_super else self._granted(applying, kind, who.host, name)

    def allows_any(self, who: Principal, operation: Operation, kind: Resource) -> bool:
        """Whether `who` may do `operation` to at least one resource of the kind that could exist.

        A rule that denies the operation on every resource of the kind decides; other rules that deny do not narrow the answer.
        """
        applying = self._applying(who)
        if applying.is_super:
            return True
        found = self._patterns_of(applying, kind)
        on_all = [patterns.literal[WILDCARD].at(who.host) for patterns in found if WILDCARD in patterns.literal]
        if any(denied & operation.bit for _, denied in on_all):
            return False
        if self._default_mask:
            return True
        return any(verdicts.at(who.host)[0] & operation.bit for patterns in found for verdicts in patterns.all())

    def _granted(self, applying: _Applying, kind: Resource, host: str, name: str) -> int:
        if kind not in applying.merged:
            patterns = self._patterns_of(applying, kind)
            count = sum(len(found.literal) + len(found.prefixed) for found in patterns)
            applying.merged[kind] = _Merged(patterns, host) if count <= MERGED_MAX else None
        merged = applying.merged[kind]
        if merged is not None:
            return merged.granted(name)
        return _granted(self._patterns_of(applying, kind), self._patterns_of_all[kind], host, name)

    def _applying(self, who: Principal) -> _Applying:
        cached = who.grants.applying
        if cached is None or cached[0] is not self:
            own = [str(who), *(f"Group:{group}" for group in who.groups)]
            is_super = who.kind == SERVER or not self._super_users.isdisjoint(own)
            cached = who.grants.applying = self, _Applying(is_super, [EVERYONE, *own])
        found: _Applying = cached[1]
        return found

    def _patterns_of(self, applying: _Applying, kind: Resource) -> Sequence[_Patterns]:
        found = applying.patterns.get(kind)
        if found is None:
            keys = [(kind, identity) for identity in applying.identities]
            found = applying.patterns[kind] = [self._patterns[key] for key in keys if key in self._patterns]
        return found


def _granted(applying: Sequence[_Patterns], ruled: _Patterns, host: str, name: str) -> int:
    """Ask the patterns principal by principal, but only those of all principals (`ruled`) that match the name."""
    literals = [literal for literal in {name, WILDCARD} if literal in ruled.literal]
    prefixes = [name[:length] for length in ruled.lengths if length <= len(name)]
    prefixes = [prefix for prefix in prefixes if prefix in ruled.prefixed]
    allowed = denied = 0
    for patterns in applying:
        for own, matching in ((patterns.literal, literals), (patterns.prefixed, prefixes)):
            for pattern in matching:
                if (verdicts := own.get(pattern)) is not None:
                    more_allowed, more_denied = verdicts.at(host)
                    allowed |= more_allowed
                    denied |= more_denied
    return allowed & ~denied
