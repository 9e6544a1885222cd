"""Limits of access rules of Streams: of a namespace, of the list in a status, and of one request."""

from contextlib import suppress
from dataclasses import replace

import pytest

from bearlake_operator.errors import Invalid, Unavailable
from bearlake_operator.reconcile import access
from fixtures.small_operator import GOING, SETTINGS, condition, resource, stream
from fixtures.stream_access import ALICE, BOB, edit, failing, listed, rules

THREE = replace(SETTINGS, access_rule_count_max=3)
ITEM_COUNT_MAX, OPERATION_COUNT = 32, 9
REQUEST_COUNT_MAX = 1000
"""Rules that servers accept in one request."""


def access_of(cluster, name="orders", namespace="team"):
    return condition(cluster, "Stream", name, namespace, "AccessSynced")


def full(start=0):
    """As many rules as a Stream can name; another `start` names others."""
    operations = ["Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs"]
    return [
        {
            "principal": f"User:{start + number}",
            "operations": operations,
            "permission": "Deny" if number % 2 else "Allow",
        }
        for number in range(ITEM_COUNT_MAX)
    ]


async def test_a_namespace_cannot_use_up_the_rules_of_all(cluster, operator):
    operator.start(THREE)
    theirs = resource("Stream", "theirs", "other", access=[ALICE])
    cluster.add(stream("a", access=[ALICE]), stream("b", access=[BOB]), stream("c", access=[ALICE]), theirs)

    await failing(operator)

    assert operator.lake.rules == {"a": rules(ALICE), "b": rules(BOB), "theirs": rules(ALICE)}
    assert "c" not in operator.lake.kept, "it would be open until its rules exist"
    status, reason, message = access_of(cluster, "c")
    assert (status, reason) == ("False", "AccessRefused")
    assert "namespace team have 3 access rules" in message
    assert "limit is 3 (accessRuleCountMax" in message
    assert listed(cluster, "c") == set()


async def test_the_streams_of_all_namespaces_leave_rules_to_administrators(cluster, operator):
    operator.start(replace(SETTINGS, access_rule_count_max=2, access_rule_total_count_max=3))
    cluster.add(*(resource("Stream", name, name, access=[BOB]) for name in "ab"), stream("c", access=[ALICE]))

    await failing(operator)

    assert operator.lake.rules == {"a": rules(BOB), "c": rules(ALICE)}
    _, reason, message = access_of(cluster, "b", "b")
    assert reason == "AccessRefused"
    assert "all namespaces may have 3 access rules" in message


async def test_a_stream_of_a_full_data_layer_may_replace_its_rules(cluster, operator):
    cluster.add(stream("a", access=[ALICE]), resource("Stream", "b", "other", access=[BOB]))
    await operator.streams()

    operator.start(replace(SETTINGS, access_rule_total_count_max=1))
    edit(cluster, "a", access=[{**ALICE, "permission": "Deny"}])
    await operator.streams()

    assert operator.lake.rules["a"] == rules({**ALICE, "permission": "Deny"})


def test_ten_full_namespaces_leave_rules_of_the_10_000_of_a_data_layer():
    grown = [
        access.Growth(stream=(f"n{number}", f"s{part}"), listed_count=0, new_count=250, more_count=250)
        for number in range(10)
        for part in range(4)
    ]
    limits = SETTINGS.access_rule_count_max, SETTINGS.access_rule_total_count_max
    refused = access.refusals(grown, {}, *limits)

    assert 250 * (len(grown) - len(refused)) == 8000


async def test_a_refused_stream_gets_its_rules_when_another_one_is_deleted(cluster, operator):
    operator.start(THREE)
    cluster.add(stream("a", access=[ALICE]), stream("b", access=[BOB]), stream("c", access=[ALICE]))
    await failing(operator)

    cluster.change("Stream", "a", "team", metadata=GOING)
    await failing(operator)
    await operator.streams()

    assert operator.lake.rules["c"] == rules(ALICE)


async def test_a_stream_of_a_full_namespace_may_replace_its_rules(cluster, operator):
    operator.start(THREE)
    cluster.add(stream("a", access=[ALICE]), stream("b", access=[BOB]))
    await operator.streams()

    edit(cluster, "b", access=[{**BOB, "permission": "Deny"}])
    await operator.streams()

    assert operator.lake.rules["b"] == rules({**BOB, "permission": "Deny"})


async def test_a_limit_of_zero_means_no_limit(cluster, operator):
    operator.start(replace(SETTINGS, access_rule_count_max=0))
    cluster.add(*(stream(f"s{number}", access=full()) for number in range(5)))

    await operator.streams()

    assert {len(found) for found in operator.lake.rules.values()} == {len(rules(*full()))}


async def test_rules_are_taken_over_in_a_full_namespace(cluster, operator):
    operator.start(replace(SETTINGS, access_rule_count_max=2))
    heir = resource("Stream", "heir", "team", "2026-01-02T00:00:00Z", name="orders", access=[BOB])
    cluster.add(stream(access=[BOB]), heir)
    await operator.streams()

    cluster.change("Stream", "orders", "team", metadata=GOING)
    for _ in range(2):
        await operator.streams()

    assert cluster.get("Stream", "orders", "team") is None
    assert listed(cluster, "heir") == operator.lake.rules["orders"] == rules(BOB)


async def test_a_stream_whose_heir_is_refused_does_not_wait_for_it(cluster, operator):
    operator.start(replace(SETTINGS, access_rule_count_max=2))
    more = [ALICE, {"principal": "User:carol", "operations": ["Read", "Write"]}]
    heir = resource("Stream", "heir", "other", "2026-01-02T00:00:00Z", name="orders", access=more)
    cluster.add(stream(access=[ALICE]), heir, resource("Stream", "full", "other", access=[BOB]))
    await operator.streams()

    cluster.change("Stream", "orders", "team", metadata=GOING)
    await failing(operator)

    assert cluster.get("Stream", "orders", "team") is None
    assert operator.lake.rules["orders"] == set()


async def test_rules_that_another_namespace_leaves_count_where_they_are_taken_over(cluster, operator):
    """Two namespaces that hand over their rules again and again would use up the rules of all."""
    operator.start(replace(SETTINGS, access_rule_count_max=1))

    async def settle():
        for _ in range(3):
            with suppress(Unavailable):
                await operator.streams()

    for name in ("a", "b", "c"):
        cluster.add(stream(name, access=[ALICE]))
        await settle()
        assert operator.lake.rules[name] == rules(ALICE)
        cluster.add(resource("Stream", name, "other", "2026-01-02T00:00:00Z", access=[ALICE]))
        cluster.change("Stream", name, "team", metadata=GOING)
        await settle()
        assert cluster.get("Stream", name, "team") is None

    assert operator.lake.rules == {"a": rules(ALICE), "b": set(), "c": set()}
    assert access_of(cluster, "b", "other")[1] == "AccessRefused"


async def test_refused_edits_do_not_accumulate_and_the_rules_in_force_stay(cluster, operator):
    cluster.add(stream(access=full()))
    await operator.streams()

    def refuse_creation(verb, *request):
        if verb == "create":
            raise Invalid("a host is not an address")

    operator.lake.on_rules = refuse_creation
    for version in range(1, 8):
        edit(cluster, access=full(100 * version))
        await failing(operator)
        assert operator.lake.rules["orders"] == rules(*full())
        assert listed(cluster) == rules(*full()) | rules(*full(100 * version))

    cluster.change("Stream", "orders", "team", metadata=GOING)
    await operator.streams()
    assert operator.lake.rules["orders"] == set()
    assert cluster.get("Stream", "orders", "team") is None


async def test_a_list_that_cannot_shrink_has_a_limit_and_recovers(cluster, operator):
    """The data layer refuses every change for a while."""
    cluster.add(stream(access=full()))
    await operator.streams()
    operator.lake.refused_rules = {"orders"}

    for version in range(1, 8):
        edit(cluster, access=full(100 * version))
        await failing(operator)
        assert len(listed(cluster)) <= access.LISTED_COUNT_MAX
    assert "limit is 864" in access_of(cluster)[2]

    operator.lake.refused_rules = set()
    await failing(operator)
    await operator.streams()
    assert operator.lake.rules["orders"] == listed(cluster) == rules(*full(700))


async def test_any_number_of_listed_rules_can_be_deleted(cluster, operator):
    """Lists of an earlier version have no limit. What is allowed never grows: rules that deny go last."""
    found = stream(access=[ALICE])
    own = rules(*(item for version in range(6) for item in full(100 * version)))
    found["status"] = {"accessRules": [rule._asdict() for rule in sorted(own)]}
    found["metadata"] |= GOING
    cluster.add(found)
    operator.lake.by_hand("orders", *own)
    seen = []

    def limit(verb, stream_rules, revision):
        if len(stream_rules) > REQUEST_COUNT_MAX:
            raise Invalid(f"{len(stream_rules)} changes of access rules at once")
        seen.extend(rule.permission for _, rule in stream_rules)

    operator.lake.on_rules = limit
    assert len(own) > REQUEST_COUNT_MAX
    await operator.streams()

    assert operator.lake.rules["orders"] == set()
    assert cluster.get("Stream", "orders", "team") is None
    assert seen == sorted(seen), "Allow before Deny"


async def test_a_refused_deletion_of_many_rules_leaves_those_that_deny(cluster, operator):
    cluster.add(stream(access=full()), stream("other", access=[BOB]))
    await operator.streams()
    before = operator.lake.rules["orders"].copy()
    assert len(before) > access.DELETED_COUNT

    def refuse(verb, stream_rules, revision):
        if {name for name, _ in stream_rules} == {"orders"} and any(
            rule.permission == "Allow" for _, rule in stream_rules
        ):
            raise Invalid("refused")

    operator.lake.on_rules = refuse
    edit(cluster)
    await failing(operator)

    assert operator.lake.rules["orders"] == before


def test_the_longest_list_has_three_versions_of_a_spec():
    assert access.LISTED_COUNT_MAX == 3 * ITEM_COUNT_MAX * OPERATION_COUNT < REQUEST_COUNT_MAX


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="accessRuleCountMax"):
        replace(SETTINGS, access_rule_count_max=-1)
    with pytest.raises(ValueError, match="accessRuleTotalCountMax"):
        replace(SETTINGS, access_rule_total_count_max=-1)


async def test_a_stream_may_replace_its_rules_after_the_limit_was_lowered(cluster, operator):
    cluster.add(stream("a", access=[ALICE]), stream("b", access=[BOB]))
    await operator.streams()

    operator.start(replace(SETTINGS, access_rule_count_max=1))
    edit(cluster, "b", access=[{**BOB, "permission": "Deny"}])
    await operator.streams()

    assert operator.lake.rules["b"] == rules({**BOB, "permission": "Deny"})
