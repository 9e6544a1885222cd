"""Access rules of a later version, with values that this version does not know: they restrict, and never permit."""

import logging
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bearlake.metadata.access_rules import (
    AccessRule,
    Operation,
    PatternKind,
    Permission,
    Resource,
    RuleFilter,
    restrictions,
)
from bearlake.metadata.open import open_metadata
from bearlake.streams.access.control import AccessControl, AccessSettings
from bearlake.streams.access.snapshot import Snapshot
from bearlake.streams.principal import INTERNAL, Principal
from bearlake.telemetry import metrics
from fixtures.later_versions import FIELDS, later, later_row, store_rules

ALICE, BOB, ROOT = Principal("User", "alice"), Principal("User", "bob"), Principal("User", "root")
DENY = AccessRule(Resource.STREAM, "orders", PatternKind.LITERAL, "User:alice", "*", Operation.WRITE, Permission.DENY)
ALLOW = DENY._replace(permission=Permission.ALLOW)


async def control_with(*rules: AccessRule, allow_if_no_rule: bool = True) -> AccessControl:
    """An authorizer that has read these rules from a store."""
    metadata = await open_metadata("memory:///")
    await store_rules(metadata, rules)
    access = AccessControl(
        metadata.access, AccessSettings(super_users=["User:root"], allow_if_no_rule=allow_if_no_rule)
    )
    await access.refresh()
    await metadata.close()
    return access


def may(access: AccessControl, who: Principal, operation: Operation = Operation.WRITE, name: str = "orders") -> bool:
    return access.allows(who, operation, Resource.STREAM, name)


@pytest.mark.parametrize("field", FIELDS)
async def test_a_rule_that_denies_something_unknown_denies_what_it_may_mean(field: str) -> None:
    allowing = [ALLOW._replace(name="*"), ALLOW._replace(name="*", principal="User:bob")]
    access = await control_with(*allowing, later(DENY, field))

    assert not may(access, ALICE)
    assert may(access, BOB) is (field != "principal")
    assert may(access, ROOT)
    assert may(access, INTERNAL)


async def test_an_unknown_operation_denies_all_operations_of_its_resource_only() -> None:
    access = await control_with(ALLOW._replace(name="*", operation=Operation.ALL), later(DENY, "operation"))

    assert [operation for operation in Operation if may(access, ALICE, operation)] == []
    assert may(access, ALICE, name="payments")


@pytest.mark.parametrize("field", [name for name in FIELDS if name != "permission"])
async def test_a_rule_that_allows_something_unknown_still_protects_its_resources(field: str) -> None:
    """Without it, a server that allows everything without a rule would open to everybody what the rule allows to one."""
    access = await control_with(later(ALLOW, field))

    assert [may(access, who) for who in (ALICE, BOB, ROOT)] == [False, False, True]
    assert may(access, BOB, name="payments") is (field not in ("resource", "pattern"))


async def test_unknown_rules_are_reported_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    metadata = await open_metadata("memory:///")
    unknown = later(DENY, "resource", "operation")
    await store_rules(metadata, [ALLOW, unknown])
    access = AccessControl(metadata.access)
    with caplog.at_level(logging.WARNING, "bearlake.streams.access.control"):
        await access.refresh()
    deleted = await access.delete([RuleFilter()])
    found = await metadata.access.read()
    await metadata.close()

    assert [record.rules for record in caplog.records][:1] == [  # type: ignore[attr-defined]
        "Tenant orders Literal User:alice * Peek Deny"
    ]
    assert deleted == [[ALLOW]]
    assert (found.rules, found.unknown) == ([], (later_row(DENY, "resource", "operation"),))
    assert metrics.ACCESS_UNKNOWN_RULES.value == 1


NAMES = ["a", "ab", "b"]
KINDS = [Resource.STREAM, Resource.GROUP]
RULES = st.builds(
    AccessRule,
    resource=st.sampled_from(KINDS),
    name=st.sampled_from(["a", "ab", "*"]),
    pattern=st.sampled_from(PatternKind),
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.just("*"),
    operation=st.sampled_from([Operation.ALL, Operation.READ, Operation.DESCRIBE, Operation.ALTER]),
    permission=st.sampled_from(Permission),
)


@settings(max_examples=300, deadline=None)
@given(
    known=st.lists(RULES, max_size=4),
    rule=RULES,
    fields=st.sets(st.sampled_from([*FIELDS]), min_size=1),
    meaning=RULES,
    default=st.booleans(),
)
def test_whatever_an_unknown_value_means_this_server_permits_no_more(
    known: Sequence[AccessRule], rule: AccessRule, fields: set[str], meaning: AccessRule, default: bool
) -> None:
    meant = rule._replace(**{name: getattr(meaning, name) for name in fields})
    if {"resource", "pattern"} & fields:
        meant = meant._replace(name=meaning.name)
    if "resource" in fields:
        meant = meant._replace(operation=meaning.operation)
    there = Snapshot([*known, meant], 1, super_users=[], allows_by_default=default)
    here = Snapshot([*known, *restrictions(later_row(rule, *fields))], 1, super_users=[], allows_by_default=default)

    for who, kind, name in product((ALICE, BOB), KINDS, NAMES):
        assert here.mask(who, kind, name) & ~there.mask(who, kind, name) & ~Operation.CLUSTER_ACTION.bit == 0
