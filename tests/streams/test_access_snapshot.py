"""The decision of access rules, compared with an independent judge that reads the rules one by one."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.errors import Invalid
from bearlake.metadata.access_rules import (
    AccessRule,
    NameMatch,
    Operation,
    PatternKind,
    Permission,
    Resource,
    RuleFilter,
)
from bearlake.streams.access.control import AccessSettings
from bearlake.streams.access.snapshot import Snapshot
from bearlake.streams.principal import ANONYMOUS, INTERNAL, Principal, at_host, check_login_name, host_of

NAMES = ["a", "ab", "abc", "b", "*", "a*"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2", "::1"]
RULES = st.builds(
    AccessRule,
    resource=st.sampled_from([Resource.STREAM, Resource.GROUP]),
    name=st.sampled_from(NAMES),
    pattern=st.sampled_from(PatternKind),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*", "Group:ops", "Group:dev", "User:ops"]),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from(Operation),
    permission=st.sampled_from(Permission),
)
CALLERS = st.builds(
    Principal,
    kind=st.just("User"),
    name=st.sampled_from(["alice", "bob", "ops", "ANONYMOUS"]),
    groups=st.frozensets(st.sampled_from(["ops", "dev", "alice"])),
    host=st.sampled_from(HOSTS[1:]),
)


def judge(
    rules: Sequence[AccessRule],
    who: Principal,
    operation: Operation,
    kind: Resource,
    name: str,
    super_users: frozenset[str],
    default: bool,
) -> bool:
    """The sentences of KIP-11 and KIP-290, one after another."""
    me = {f"User:{who.name}"} | {f"Group:{group}" for group in who.groups}
    if me & super_users:
        return True
    about = [
        rule
        for rule in rules
        if rule.resource is kind
        and (
            (rule.pattern is PatternKind.LITERAL and (rule.name == name or rule.name == "*"))
            or (rule.pattern is PatternKind.PREFIXED and name[: len(rule.name)] == rule.name)
        )
    ]
    if not about:
        return default
    mine = [rule for rule in about if rule.principal in me | {"User:*"} and rule.host in ("*", who.host)]
    denying = {"All", operation.value}
    allowing = {"All", operation.value}
    if operation.value == "Describe":
        allowing |= {"Read", "Write", "Delete", "Alter"}
    if operation.value == "DescribeConfigs":
        allowing |= {"AlterConfigs"}
    if any(rule.permission is Permission.DENY and rule.operation.value in denying for rule in mine):
        return False
    return any(rule.permission is Permission.ALLOW and rule.operation.value in allowing for rule in mine)


@settings(max_examples=400, deadline=None)
@given(
    rules=st.lists(RULES, max_size=12),
    who=CALLERS,
    operation=st.sampled_from([operation for operation in Operation if operation is not Operation.ALL]),
    kind=st.sampled_from([Resource.STREAM, Resource.GROUP]),
    name=st.sampled_from(NAMES),
    super_users=st.frozensets(st.sampled_from(["User:alice", "Group:dev", "User:nobody"]), max_size=1),
    default=st.booleans(),
)
def test_the_snapshot_decides_as_the_rules_read_one_by_one(
    rules: list[AccessRule],
    who: Principal,
    operation: Operation,
    kind: Resource,
    name: str,
    super_users: frozenset[str],
    default: bool,
) -> None:
    snapshot = Snapshot(rules, 1, super_users=super_users, allows_by_default=default)
    expected = judge(rules, who, operation, kind, name, super_users, default)

    assert bool(snapshot.mask(who, kind, name) & operation.bit) is expected
    if snapshot.is_open:
        assert expected
    if expected:
        assert snapshot.allows_any(who, operation, kind) or judge_denies_all(rules, who, operation, kind)
    assert bool(snapshot.granted(who, kind, name) & operation.bit) is judge(
        rules, who, operation, kind, name, super_users, default=False
    )


def judge_denies_all(rules: Sequence[AccessRule], who: Principal, operation: Operation, kind: Resource) -> bool:
    """Whether no resource of the kind can be allowed: a rule denies it on all of them."""
    return not judge(rules, who, operation, kind, "a name that no other rule has", frozenset(), default=True)


@settings(max_examples=200, deadline=None)
@given(rules=st.lists(RULES, max_size=8), who=CALLERS, name=st.sampled_from(NAMES))
def test_a_caller_at_an_unknown_address_may_do_no_more_than_at_any_address(
    rules: list[AccessRule], who: Principal, name: str
) -> None:
    snapshot = Snapshot(rules, 1)
    unknown = snapshot.mask(at_host(who, ""), Resource.STREAM, name)
    for host in [*HOSTS[1:], "192.0.2.1"]:
        assert unknown & ~snapshot.mask(at_host(who, host), Resource.STREAM, name) == 0


@settings(max_examples=300, deadline=None)
@given(
    rule=RULES,
    name=st.none() | st.sampled_from(NAMES),
    match=st.sampled_from(NameMatch),
    pattern=st.none() | st.sampled_from(PatternKind),
    principal=st.sampled_from([None, "User:alice", "User:*"]),
    host=st.sampled_from([None, "*", "10.0.0.1"]),
    operation=st.none() | st.sampled_from(Operation),
)
def test_a_filter_selects_what_each_of_its_fields_selects(
    rule: AccessRule,
    name: str | None,
    match: NameMatch,
    pattern: PatternKind | None,
    principal: str | None,
    host: str | None,
    operation: Operation | None,
) -> None:
    expected = principal in (None, rule.principal) and host in (None, rule.host)
    expected = expected and operation in (None, rule.operation) and pattern in (None, rule.pattern)
    if name is not None and match is NameMatch.SAME:
        expected = expected and name == rule.name
    elif name is not None and rule.pattern is PatternKind.LITERAL:
        expected = expected and (name == rule.name or rule.name == "*")
    elif name is not None:
        expected = expected and name.startswith(rule.name)
    chosen = RuleFilter(None, name, pattern, match, principal, host, operation, None)

    assert chosen.matches(rule) is expected


def rule(principal: str, operation: Operation = Operation.READ, **fields: object) -> AccessRule:
    given = {"resource": Resource.STREAM, "name": "*", "pattern": PatternKind.LITERAL, "host": "*"} | fields
    return AccessRule(principal=principal, operation=operation, **({"permission": Permission.ALLOW} | given))  # type: ignore[arg-type]


def test_without_rules_everything_is_allowed_unless_the_setting_says_otherwise() -> None:
    assert Snapshot((), 0).is_open
    closed = Snapshot((), 0, allows_by_default=False)
    assert not closed.is_open
    assert closed.mask(ANONYMOUS, Resource.STREAM, "x") == 0


def test_the_server_itself_is_not_restricted_and_no_user_can_be_named_so() -> None:
    snapshot = Snapshot([rule("User:*", Operation.ALL, permission=Permission.DENY)], 1, allows_by_default=False)

    assert snapshot.mask(INTERNAL, Resource.STREAM, "x") & Operation.WRITE.bit
    for name in ("bearlake", "Server:bearlake", "admin"):
        assert snapshot.mask(Principal("User", name), Resource.STREAM, "x") == 0


def test_a_user_named_like_a_group_has_none_of_its_rights() -> None:
    snapshot = Snapshot([rule("Group:ops")], 1, super_users=["Group:admins"])

    assert snapshot.mask(Principal("User", "u", frozenset({"ops"})), Resource.STREAM, "x") & Operation.READ.bit
    for name in ("ops", "admins", "Group:ops", "Group:admins"):
        assert snapshot.mask(Principal("User", name), Resource.STREAM, "x") == 0


@pytest.mark.parametrize("name", ["ANONYMOUS", "*"])
def test_nobody_logs_in_by_a_name_that_stands_for_others(name: str) -> None:
    with pytest.raises(Invalid):
        check_login_name(name)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("*", "*"),
    ],
)
def test_an_address_has_one_form(address: str, host: str) -> None:
    assert host_of(address) == host
    denied = rule("User:*", host=address, permission=Permission.DENY)
    allowed = rule("User:*")
    mask = Snapshot([denied, allowed], 1).mask(Principal("User", "u", host=host), Resource.STREAM, "x")
    assert not mask & Operation.READ.bit


@pytest.mark.parametrize("name", ["alice", "User:*", "Server:bearlake", "User:"])
def test_super_users_are_users_or_groups(name: str) -> None:
    with pytest.raises(Invalid):
        AccessSettings(super_users=[name])
