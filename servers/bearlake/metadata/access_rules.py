"""Access rules: who may do what to which resources. Kafka's model of access control lists.

A rule allows or denies one operation (or all) to one principal, from one host (or all), on the resources that its pattern matches.

    pattern    literal `orders`: that resource · literal `*`: all of the kind · prefixed `orders-`: all whose names begin so
    principal  `User:alice` · `Group:ops`, a group of the caller's token · `User:*`, every caller
    host       `*` or the client's IP address

All rules share one revision, which grows with every change and never repeats. A change names the revision that its caller read, so a late
change of any process cannot bring back a rule that was deleted in the meantime, or delete one that its caller has not seen (I12). Every
change is a POLICY entry of the commit log, which servers follow.

Source: KIP-11 (model), KIP-290 (prefixed patterns, filters); Kafka's `AclBinding`, `ResourcePatternFilter`, `AccessControlEntryFilter`.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from bearlake.errors import Invalid
from bearlake.metadata.names import check_name

WILDCARD = "*"
"""The name of a literal pattern that matches all resources of its kind; as a host: every host."""

EVERYONE = "User:*"
"""The principal of rules for every caller."""

RULE_COUNT_MAX = 10_000
"""Maximum number of rules of a deployment. Every server holds all of them in memory."""

CHANGED_COUNT_MAX = 10_000
"""Maximum number of rules that one change creates and deletes."""

RULE_NAME_BYTES_MAX = 512
"""Maximum length of the name, of the principal and of the host of a rule."""

PRINCIPAL_KINDS = ("User", "Group")
"""Kinds of principals that rules may name. Other kinds stand for the server itself, which rules do not restrict."""


class Operation(Enum):
    """What a caller does to a resource. `number` is Kafka's, and `bit` its place in a mask of operations."""

    ALL = "All", 2
    """In rules only: every operation."""
    READ = "Read", 3
    WRITE = "Write", 4
    CREATE = "Create", 5
    DELETE = "Delete", 6
    ALTER = "Alter", 7
    DESCRIBE = "Describe", 8
    CLUSTER_ACTION = "ClusterAction", 9
    """Only stored, so that clients' rules are kept: no request needs it."""
    DESCRIBE_CONFIGS = "DescribeConfigs", 10
    ALTER_CONFIGS = "AlterConfigs", 11
    IDEMPOTENT_WRITE = "IdempotentWrite", 12

    number: int
    bit: int

    def __new__(cls, text: str, number: int) -> "Operation":
        """Create the operation whose value is `text`."""
        member = object.__new__(cls)
        member._value_ = text
        member.number = number
        member.bit = 1 << number
        return member


class Resource(Enum):
    """Kinds of resources."""

    STREAM = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    """The deployment; its only name is `CLUSTER_NAME`."""
    TRANSACTIONAL_ID = "TransactionalId"
    SUBJECT = "Subject"
    """A subject of the schema registry."""
    NAMESPACE = "Namespace"
    """A namespace of Pulsar: `tenant/namespace`."""


CLUSTER_NAME = "kafka-cluster"
"""The name of the cluster as a resource, as in Kafka."""


class PatternKind(Enum):
    """How a rule's name matches names of resources."""

    LITERAL = "Literal"
    PREFIXED = "Prefixed"


class Permission(Enum):
    """What a rule does. A rule that denies wins over all that allow."""

    ALLOW = "Allow"
    DENY = "Deny"


class AccessRule(NamedTuple):
    """One rule."""

    resource: Resource
    name: str
    pattern: PatternKind
    principal: str
    """`User:name`, `Group:name` or `User:*`."""
    host: str
    operation: Operation
    permission: Permission

    def covers(self, name: str) -> bool:
        """Whether the pattern matches the resource `name` of the rule's kind."""
        if self.pattern is PatternKind.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class NameMatch(Enum):
    """How a filter's name is compared with a rule's pattern."""

    SAME = "Same"
    """The names are equal, whatever the kind of pattern."""
    COVERED = "Covered"
    """The rule's pattern matches a resource of that name."""


class RuleFilter(NamedTuple):
    """Selects rules; None matches everything."""

    resource: Resource | None = None
    name: str | None = None
    pattern: PatternKind | None = None
    match: NameMatch = NameMatch.SAME
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def matches(self, rule: AccessRule) -> bool:
        """Whether the filter selects the rule."""
        wanted = (
            (self.resource, rule.resource),
            (self.pattern, rule.pattern),
            (self.principal, rule.principal),
            (self.host, rule.host),
            (self.operation, rule.operation),
            (self.permission, rule.permission),
        )
        if any(asked is not None and asked != present for asked, present in wanted):
            return False
        if self.name is None:
            return True
        return rule.covers(self.name) if self.match is NameMatch.COVERED else rule.name == self.name


Row = tuple[str, str, str, str, str, str, str]
"""A rule as stores keep it: the fields of `AccessRule` in order, enumerations as their values."""


class RuleSet(NamedTuple):
    """All rules as of one revision."""

    revision: int
    rules: Sequence[AccessRule]
    """In no order."""
    unknown: Sequence[Row] = ()
    """Rules of a later version, with values that this version does not know. `restrictions` says what they mean here."""


class AccessRules(Protocol):
    """The rules of the deployment."""

    async def revision(self) -> int:
        """Return how often the rules were changed."""

    async def read(self) -> RuleSet:
        """Return all rules with their revision, as of one moment."""

    async def change(self, *, created: Sequence[AccessRule], deleted: Sequence[AccessRule], revision: int) -> int:
        """Delete rules, then create rules, in one step with an entry of the commit log; returns the new revision.

        A rule that exists is not created twice, and deleting one that does not exist changes nothing.

        Raises:
            Conflict: the rules have another revision; they were changed after the caller read it.
            Invalid: a rule that cannot be stored (`check_rule`), more than `CHANGED_COUNT_MAX` rules at once, or there would be more than
                `RULE_COUNT_MAX` rules.
        """


def check_rule(rule: AccessRule) -> None:
    """Raise `Invalid`, naming the expected value, unless the rule can be stored."""
    check_name("a rule's resource name", rule.name, RULE_NAME_BYTES_MAX)
    check_name("a rule's principal", rule.principal, RULE_NAME_BYTES_MAX)
    check_name("a rule's host", rule.host, RULE_NAME_BYTES_MAX)
    kind, separator, name = rule.principal.partition(":")
    if kind not in PRINCIPAL_KINDS or not separator or not name:
        raise Invalid(f"principal {rule.principal!r}: expected User:name, Group:name or {EVERYONE}")
    if rule.resource is Resource.CLUSTER and rule.name not in (CLUSTER_NAME, WILDCARD):
        raise Invalid(f"the cluster is named {CLUSTER_NAME}, not {rule.name!r}")


def check_rules(created: Sequence[AccessRule], deleted: Sequence[AccessRule]) -> None:
    """Raise `Invalid` as `AccessRules.change` does."""
    count = len(created) + len(deleted)
    if count > CHANGED_COUNT_MAX:
        raise Invalid(f"{count} changes of access rules at once; the limit is {CHANGED_COUNT_MAX}")
    for rule in created:
        check_rule(rule)


def check_count(count: int) -> None:
    """Raise `Invalid` if a deployment may not have so many rules."""
    if count > RULE_COUNT_MAX:
        raise Invalid(f"there would be {count} access rules; the limit is {RULE_COUNT_MAX}")


def row_of(rule: AccessRule) -> Row:
    """Return the stored form of a rule."""
    return (
        rule.resource.value,
        rule.name,
        rule.pattern.value,
        rule.principal,
        rule.host,
        rule.operation.value,
        rule.permission.value,
    )


def rule_set(revision: int, rows: Iterable[Row]) -> RuleSet:
    """Return the rules of stored rows. Later versions may store other values; rows that have any are kept apart."""
    rules: list[AccessRule] = []
    unknown: list[Row] = []
    for row in rows:
        resource, name, pattern, principal, host, operation, permission = row
        if _is_known(row):
            rules.append(
                AccessRule(
                    _RESOURCES[resource],
                    name,
                    _PATTERNS[pattern],
                    principal,
                    host,
                    _OPERATIONS[operation],
                    _PERMISSIONS[permission],
                )
            )
        else:
            unknown.append(row)
    return RuleSet(revision, rules, tuple(unknown))


def restrictions(row: Row) -> Sequence[AccessRule]:
    """Return rules that permit no more than this rule with unknown values, whatever those mean.

    An unknown kind of resource stands for all kinds, an unknown pattern for all names, an unknown operation for all operations, and an
    unknown kind of principal for every caller. An unknown permission denies. A rule that allows something unknown allows nothing here, but
    its resources count as resources with a rule: the default does not apply to them.
    """
    resource, name, pattern, principal, host, operation, permission = row
    is_kind_known = resource in _RESOURCES
    if not is_kind_known or pattern not in _PATTERNS:
        name, pattern = WILDCARD, PatternKind.LITERAL.value
    if permission == Permission.ALLOW.value:
        meant, done = Permission.ALLOW, Operation.CLUSTER_ACTION  # no request needs this operation
    else:
        meant = Permission.DENY
        done = _OPERATIONS.get(operation, Operation.ALL) if is_kind_known else Operation.ALL
    who = principal if _is_principal(principal) else EVERYONE
    kinds = [_RESOURCES[resource]] if is_kind_known else list(Resource)
    return [AccessRule(kind, name, _PATTERNS[pattern], who, host, done, meant) for kind in kinds]


def _is_known(row: Row) -> bool:
    resource, _, pattern, principal, _, operation, permission = row
    is_match = resource in _RESOURCES and pattern in _PATTERNS and _is_principal(principal)
    return is_match and operation in _OPERATIONS and permission in _PERMISSIONS


def _is_principal(principal: str) -> bool:
    return principal.partition(":")[0] in PRINCIPAL_KINDS


_RESOURCES = {kind.value: kind for kind in Resource}
_PATTERNS = {pattern.value: pattern for pattern in PatternKind}
_PERMISSIONS = {permission.value: permission for permission in Permission}
_OPERATIONS = {operation.value: operation for operation in Operation}


def operation_of(text: str) -> Operation:
    """Return the operation of that name. Raises `Invalid`."""
    if text not in _OPERATIONS:
        raise Invalid(f"operation {text!r}, expected {', '.join(_OPERATIONS)}")
    return _OPERATIONS[text]
