"""Access rules of Streams: created before the stream, removed with the Stream, and no other rule ever removed."""

from dataclasses import replace

import pytest

from bearlake_operator.controllers.streams import UNREACHABLE_S
from bearlake_operator.errors import Conflict, Unavailable
from bearlake_operator.reconcile.claims import FINALIZER
from fixtures.small_operator import GOING, SETTINGS, condition, resource, stream
from fixtures.stream_access import ALICE, BOB, edit, failing, listed, rules

NOBODY = {"principal": "User:*", "operations": ["All"], "permission": "Deny", "host": "10.0.0.1"}


def access_of(cluster, name="orders"):
    return condition(cluster, "Stream", name, type_="AccessSynced")


async def test_rules_are_created_before_the_stream_and_deleted_when_they_leave_the_spec(cluster, operator):
    cluster.add(stream(access=[ALICE, NOBODY]))

    await operator.streams()

    assert operator.lake.rules["orders"] == rules(ALICE, NOBODY)
    assert operator.lake.steps == ["create rules of orders", "stream orders"]
    assert access_of(cluster) == ("True", "InSync", "")
    assert cluster.get("Stream", "orders", "team")["metadata"]["finalizers"] == [FINALIZER]

    edit(cluster, access=[BOB, ALICE])
    await operator.streams()
    assert operator.lake.rules["orders"] == rules(ALICE, BOB)

    edit(cluster)
    await operator.streams()
    assert operator.lake.rules["orders"] == set()
    await operator.streams()
    assert cluster.get("Stream", "orders", "team")["metadata"]["finalizers"] == []
    assert "accessRules" not in cluster.get("Stream", "orders", "team")["status"]


async def test_a_stream_without_access_makes_no_request_about_rules_and_has_no_finalizer(cluster, operator):
    cluster.add(stream())
    operator.lake.access_rules = None

    await operator.streams()

    assert set(operator.lake.kept) == {"orders"}
    assert "finalizers" not in cluster.get("Stream", "orders", "team")["metadata"]


async def test_other_rules_stay_when_the_spec_changes_and_when_the_stream_is_deleted(cluster, operator):
    """Alice's rule was made by hand before the Stream named it, and Bob's is not named."""
    operator.lake.by_hand("orders", *rules(ALICE, BOB))
    operator.lake.by_hand("more", *rules(NOBODY))
    cluster.add(stream(access=[ALICE, NOBODY]))
    await operator.streams()
    status, reason, message = access_of(cluster)
    assert (status, reason) == ("True", "ExistingRules")
    assert "Allow Read to User:alice" in message
    assert listed(cluster) == rules(NOBODY)

    edit(cluster, access=[NOBODY])
    await operator.streams()
    assert operator.lake.rules["orders"] == rules(ALICE, BOB, NOBODY)
    cluster.change("Stream", "orders", "team", metadata=GOING)
    await operator.streams()

    assert cluster.get("Stream", "orders", "team") is None
    assert operator.lake.rules == {"orders": rules(ALICE, BOB), "more": rules(NOBODY)}
    assert set(operator.lake.kept) == {"orders"}


async def test_a_rule_that_was_made_by_hand_and_deleted_becomes_one_of_the_stream(cluster, operator):
    operator.lake.by_hand("orders", *rules(ALICE))
    cluster.add(stream(access=[ALICE]))
    await operator.streams()

    operator.lake.rules["orders"].clear()
    operator.lake.revision += 1
    await operator.streams()

    assert operator.lake.rules["orders"] == rules(ALICE)
    assert listed(cluster) == rules(ALICE)


async def test_rules_that_were_deleted_elsewhere_are_created_again_with_an_event(cluster, operator):
    cluster.add(stream(access=[ALICE]))
    await operator.streams()

    operator.lake.rules["orders"].clear()
    operator.lake.revision += 1
    await operator.streams()

    assert operator.lake.rules["orders"] == rules(ALICE)
    assert ("Normal", "ChangedElsewhere", "orders") in cluster.events()


async def test_a_changed_spec_never_leaves_the_stream_without_rules(cluster, operator):
    """A stream without any rule may be open to everybody."""
    cluster.add(stream(access=[ALICE]))
    await operator.streams()
    seen = []
    operator.lake.after_rules = lambda: seen.append(set(operator.lake.rules["orders"]))

    edit(cluster, access=[BOB])
    await operator.streams()

    assert seen == [rules(ALICE, BOB), rules(BOB)]


# Crashes and lost answers. The next run is one of a new process.


async def test_a_crash_before_the_rules_are_created_loses_none(cluster, operator):
    cluster.add(stream(access=[ALICE]))

    def crash(*request):
        raise Unavailable("the process is killed")

    operator.lake.on_rules = crash
    await failing(operator)
    assert operator.lake.rules == {}
    assert "orders" not in operator.lake.kept, "it would be open until its rules exist"

    operator.lake.on_rules = lambda *request: None
    operator.start()
    await operator.streams()
    assert operator.lake.rules["orders"] == rules(ALICE)
    edit(cluster)
    await operator.streams()
    assert operator.lake.rules["orders"] == set()


async def test_rules_whose_creation_was_not_answered_are_deleted_with_the_stream(cluster, operator):
    cluster.add(stream(access=[ALICE]))

    def lose_answer():
        raise Unavailable("connection reset")

    operator.lake.after_rules = lose_answer
    await failing(operator)
    assert operator.lake.rules["orders"] == rules(ALICE)

    operator.lake.after_rules = lambda: None
    cluster.change("Stream", "orders", "team", metadata=GOING)
    operator.start()
    await operator.streams()

    assert operator.lake.rules["orders"] == set()
    assert cluster.get("Stream", "orders", "team") is None


async def test_a_creation_that_arrives_after_its_rule_left_the_spec_creates_nothing(cluster, operator):
    cluster.add(stream(access=[ALICE]))
    late = []

    def delay(*request):
        late.append(request)
        raise Unavailable("timeout")

    operator.lake.on_rules = delay
    await failing(operator)
    operator.lake.on_rules = lambda *request: None
    edit(cluster)
    await operator.streams()
    assert listed(cluster) == set()

    with pytest.raises(Conflict):
        operator.lake.change_rules(*late[0])

    assert operator.lake.rules.get("orders", set()) == set()


async def test_a_deletion_that_arrives_after_the_rule_was_made_by_hand_deletes_nothing(cluster, operator):
    cluster.add(stream(access=[ALICE]))
    await operator.streams()
    late = []

    def delay(*request):
        late.append(request)
        raise Unavailable("timeout")

    operator.lake.on_rules = delay
    edit(cluster)
    await failing(operator)
    operator.lake.on_rules = lambda *request: None
    await operator.streams()
    operator.lake.by_hand("orders", *rules(ALICE))

    with pytest.raises(Conflict):
        operator.lake.change_rules(*late[0])

    assert operator.lake.rules["orders"] == rules(ALICE)


async def test_a_late_status_of_a_former_leader_does_not_hide_rules(cluster, operator):
    cluster.add(stream())
    await operator.streams()
    former = cluster.get("Stream", "orders", "team")
    edit(cluster, access=[ALICE])
    await operator.streams()

    with pytest.raises(Conflict):
        await operator.status_writer.write(former, {**former["status"], "recordCount": 7})

    assert listed(cluster) == rules(ALICE)


async def test_nothing_is_created_while_the_status_cannot_list_it(cluster, operator):
    cluster.refuse[("PATCH", "/streams/orders/status")] = 403
    cluster.add(stream(access=[ALICE]), stream("fine", access=[BOB]))

    await failing(operator)

    assert operator.lake.rules == {"fine": rules(BOB)}
    assert set(operator.lake.kept) == {"fine"}


async def test_rules_are_created_while_others_change_rules(cluster, operator):
    cluster.add(stream(access=[ALICE]))
    others = [rules(BOB)]

    def change_first(*request):
        if others:
            operator.lake.by_hand("more", *others.pop())

    operator.lake.on_rules = change_first
    await operator.streams()

    assert operator.lake.rules == {"orders": rules(ALICE), "more": rules(BOB)}


# Refusals and deletion.


async def test_refused_rules_do_not_affect_other_streams_and_their_stream_is_not_created(cluster, operator):
    operator.lake.refused_rules = {"orders"}
    cluster.add(stream(access=[ALICE]), stream("fine", access=[BOB]))

    await failing(operator)

    assert operator.lake.rules == {"fine": rules(BOB)}
    assert set(operator.lake.kept) == {"fine"}
    status, reason, message = condition(cluster, "Stream", "orders")
    assert (status, reason, "are refused" in message) == ("False", "AccessRefused", True)
    assert access_of(cluster)[:2] == ("False", "AccessRefused")
    assert access_of(cluster, "fine")[:2] == ("True", "InSync")


async def test_a_stream_is_deleted_before_its_rules(cluster, operator):
    cluster.add(stream(access=[ALICE], deletionPolicy="Delete"))
    await operator.streams()
    operator.lake.steps.clear()

    cluster.change("Stream", "orders", "team", metadata=GOING)
    await operator.streams()

    assert operator.lake.steps == ["no stream orders", "delete rules of orders"]
    assert cluster.get("Stream", "orders", "team") is None


async def test_a_stream_waits_for_its_rules_to_be_deleted_and_says_how_to_skip_this(cluster, operator, monkeypatch):
    now = 100.0
    monkeypatch.setattr("bearlake_operator.controllers.streams.time.monotonic", lambda: now)
    cluster.add(stream(access=[ALICE]))
    await operator.streams()
    cluster.change("Stream", "orders", "team", metadata=GOING)
    operator.lake.is_silent = True

    await failing(operator)
    now += UNREACHABLE_S + 1
    await failing(operator)

    _, reason, message = condition(cluster, "Stream", "orders")
    assert reason == "DeletionBlocked"
    assert """patch stream orders --type merge -p '{"metadata":{"finalizers":null}}'""" in message
    operator.lake.is_silent = False
    await operator.streams()
    assert operator.lake.rules["orders"] == set()
    assert cluster.get("Stream", "orders", "team") is None


async def test_rules_that_the_next_stream_of_the_name_also_names_are_handed_over_without_a_gap(cluster, operator):
    heir = resource("Stream", "heir", "team", "2026-01-02T00:00:00Z", name="orders", access=[NOBODY, BOB])
    cluster.add(stream(access=[ALICE, NOBODY]), heir)
    await operator.streams()
    assert operator.lake.rules["orders"] == rules(ALICE, NOBODY)
    operator.lake.after_rules = lambda: (
        pytest.fail("a gap") if not operator.lake.rules["orders"] & rules(NOBODY) else None
    )

    cluster.change("Stream", "orders", "team", metadata=GOING)
    for _ in range(2):
        await operator.streams()

    assert cluster.get("Stream", "orders", "team") is None
    assert operator.lake.rules["orders"] == rules(NOBODY, BOB)
    assert listed(cluster, "heir") == rules(NOBODY, BOB)
    operator.lake.after_rules = lambda: None
    cluster.change("Stream", "heir", "team", metadata=GOING)
    await operator.streams()
    assert operator.lake.rules["orders"] == set()


async def test_the_rules_of_a_stream_that_does_not_own_its_name_are_not_created(cluster, operator):
    younger = resource("Stream", "young", "team", "2026-01-02T00:00:00Z", name="orders", access=[BOB])
    cluster.add(stream(access=[ALICE]), younger)

    await operator.streams()

    assert operator.lake.rules["orders"] == rules(ALICE)


# Names that a namespace may use.


ONLY_OWN = replace(SETTINGS, stream_names={"ops": ("",), "*": ("{namespace}.",)})


async def test_a_namespace_can_neither_change_nor_create_nor_delete_streams_of_other_names(cluster, operator):
    operator.start(ONLY_OWN)
    foreign = stream("foreign", name="orders.all", access=[ALICE], deletionPolicy="Delete", configs={"a": "b"})
    new = stream("new", name="teams.new")
    mine = stream("mine", name="team.mine")
    theirs = resource("Stream", "theirs", "ops", "2026-01-02T00:00:00Z", name="orders.all")
    cluster.add(foreign, new, mine, theirs)

    await operator.streams()

    assert set(operator.lake.kept) == {"team.mine", "orders.all"}
    assert operator.lake.kept["orders.all"].configs == {}
    assert operator.lake.rules == {}
    for name in ("foreign", "new"):
        status, reason, message = condition(cluster, "Stream", name)
        assert (status, reason) == ("False", "NameNotAllowed")
        assert "begin with team." in message
        assert condition(cluster, "Stream", name, type_="Claimed")[:2] == ("False", "NameNotAllowed")
    assert condition(cluster, "Stream", "theirs", "ops")[1] == "TierNotReady", "the older Stream may not use the name"


@pytest.mark.parametrize("named", [{"table": {"name": "ops_orders"}}, {"configs": {"table.name": "ops_orders"}}])
async def test_a_namespace_cannot_take_the_table_of_another_namespace(cluster, operator, named):
    operator.start(ONLY_OWN)
    cluster.add(stream("taker", name="team.taker", **named), stream("fair", name="team.fair", table={"name": "team_t"}))

    await operator.streams()

    assert operator.lake.kept["team.fair"].configs["table.name"] == "team_t"
    assert "team.taker" not in operator.lake.kept
    status, reason, message = condition(cluster, "Stream", "taker")
    assert (status, reason) == ("False", "Refused")
    assert "must begin with team_, and ops_orders does not" in message


async def test_a_stream_that_may_no_longer_use_its_name_keeps_the_records(cluster, operator):
    cluster.add(stream(access=[ALICE], deletionPolicy="Delete"))
    await operator.streams()

    operator.start(ONLY_OWN)
    await operator.streams()
    assert condition(cluster, "Stream", "orders")[1] == "NameNotAllowed"
    assert operator.lake.rules["orders"] == rules(ALICE)
    cluster.change("Stream", "orders", "team", metadata=GOING)
    await operator.streams()

    assert set(operator.lake.kept) == {"orders"}
    assert operator.lake.rules["orders"] == set()
    assert cluster.get("Stream", "orders", "team") is None
    assert ("Warning", "RecordsKept", "orders") in cluster.events()


async def test_a_stream_of_another_name_starts_no_servers(cluster, operator):
    operator.start(ONLY_OWN)
    cluster.add(stream("foreign", name="orders.all", protocols=["grpc"]), stream("mine", name="team.mine"))

    await operator.tiers()

    assert cluster.get("Deployment", "bearlake-default-kafka") is not None
    assert cluster.get("Deployment", "bearlake-default-grpc") is None


async def test_without_the_setting_every_namespace_may_use_every_name(cluster, operator):
    cluster.add(stream("foreign", name="orders.all"))

    await operator.streams()

    assert set(operator.lake.kept) == {"orders.all"}


async def test_a_stream_of_another_name_does_not_keep_the_records_of_the_owner(cluster, operator):
    operator.start(ONLY_OWN)
    foreign = resource("Stream", "foreign", "other", "2026-01-02T00:00:00Z", name="team.mine")
    cluster.add(stream("mine", name="team.mine", deletionPolicy="Delete"), foreign)
    await operator.streams()

    cluster.change("Stream", "mine", "team", metadata=GOING)
    await operator.streams()

    assert operator.lake.kept == {}
    assert cluster.get("Stream", "mine", "team") is None
