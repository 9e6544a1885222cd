"""Streams that own nothing, no longer or not yet: names of the same second, refused Streams, and finalizers of other field managers."""

from dataclasses import replace

import pytest

from bearlake_operator.errors import OperatorError, Unavailable
from bearlake_operator.reconcile.claims import FINALIZER
from fixtures.small_operator import GOING, SETTINGS, condition, resource, stream
from fixtures.stream_access import ALICE, BOB, edit, listed, rules

ONLY_OWN = replace(SETTINGS, stream_names={"*": ("{namespace}.",)})
GOING_NOW = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


# Names.


async def test_a_stream_made_later_in_the_same_second_does_not_take_a_claimed_name(cluster, operator):
    cluster.add(stream(access=[ALICE], deletionPolicy="Delete"))
    await operator.streams()

    cluster.add(resource("Stream", "orders", "aaa", access=[BOB], deletionPolicy="Delete"))
    await operator.streams()

    assert operator.lake.rules["orders"] == rules(ALICE)
    assert condition(cluster, "Stream", "orders", type_="Claimed")[:2] == ("True", "Owner")
    assert condition(cluster, "Stream", "orders", "aaa", "Claimed")[:2] == ("False", "NameTaken")
    cluster.change("Stream", "orders", "aaa", metadata=GOING_NOW)
    await operator.streams()
    assert set(operator.lake.kept) == {"orders"}


async def test_an_older_stream_gets_its_name_although_a_younger_one_has_claimed_it(cluster, operator):
    """The younger one had the name while the older one was refused."""
    operator.start(replace(SETTINGS, stream_names={"team": ("",)}))
    older = resource("Stream", "orders", "aaa", "2025-01-01T00:00:00Z")
    cluster.add(older, stream())
    await operator.streams()
    assert condition(cluster, "Stream", "orders", type_="Claimed")[0] == "True"

    operator.start()
    await operator.streams()

    assert condition(cluster, "Stream", "orders", "aaa", "Claimed")[:2] == ("True", "Owner")


# Refused Streams.


async def test_a_refused_stream_that_is_being_deleted_starts_no_servers_and_is_removed(cluster, operator):
    """Whoever may edit Streams may also write our finalizer into one."""
    operator.start(ONLY_OWN)
    foreign = stream("foreign", name="orders.all", protocols=["grpc"], deletionPolicy="Delete")
    foreign["metadata"] |= GOING
    cluster.add(foreign)
    operator.lake.is_silent = True

    await operator.tiers()
    assert cluster.get("Deployment", "bearlake-default-grpc") is None

    with pytest.raises(OperatorError):  # no server answers, for there are none
        await operator.streams()
    assert cluster.get("Stream", "foreign", "team") is None
    assert ("Warning", "RecordsKept", "foreign") in cluster.events()


async def test_servers_run_until_the_access_rules_of_a_refused_stream_are_deleted(cluster, operator):
    cluster.add(stream(access=[ALICE], protocols=["grpc"]))
    await operator.streams()
    operator.start(ONLY_OWN)
    cluster.change("Stream", "orders", "team", metadata=GOING_NOW)

    await operator.tiers()
    assert cluster.get("Deployment", "bearlake-default-grpc") is not None

    await operator.streams()
    assert operator.lake.rules["orders"] == set()
    assert cluster.get("Stream", "orders", "team") is None


# Finalizers that another field manager has set, as by `kubectl get -o yaml | kubectl apply -f -` or a restored backup.


@pytest.mark.parametrize("layer", ["default", None], ids=["known", "unknown-data-layer"])
async def test_a_restored_stream_is_deleted_with_what_belongs_to_it(cluster, operator, layer):
    cluster.add(stream(access=[ALICE], deletionPolicy="Delete"))
    await operator.streams()
    restored = cluster.get("Stream", "orders", "team")
    restored = {**restored, "spec": {**restored["spec"], **({} if layer else {"dataLayer": "gone"})}}
    cluster.add(restored)
    await operator.streams()
    operator.start(layer=layer)

    cluster.change("Stream", "orders", "team", metadata=GOING_NOW)
    await operator.streams()

    assert cluster.get("Stream", "orders", "team") is None


async def test_a_stream_whose_finalizer_another_client_has_set_is_deleted(cluster, operator):
    made = stream(access=[ALICE])
    made["metadata"]["finalizers"] = [FINALIZER]
    cluster.add(made)
    await operator.streams()
    assert listed(cluster) == rules(ALICE)

    cluster.change("Stream", "orders", "team", metadata=GOING_NOW)
    await operator.streams()

    assert operator.lake.rules["orders"] == set()
    assert cluster.get("Stream", "orders", "team") is None


async def test_finalizers_of_others_stay(cluster, operator):
    made = stream(access=[ALICE])
    made["metadata"]["finalizers"] = ["example.com/audit", FINALIZER]
    cluster.add(made)
    await operator.streams()

    edit(cluster)
    for _ in range(2):
        await operator.streams()

    assert cluster.get("Stream", "orders", "team")["metadata"]["finalizers"] == ["example.com/audit"]


async def test_a_finalizer_that_another_client_adds_meanwhile_is_not_removed(cluster, operator):
    cluster.add(stream(access=[ALICE]))
    await operator.streams()
    cluster.change("Stream", "orders", "team", metadata=GOING_NOW)
    await operator.resync.list_all()
    cluster.change("Stream", "orders", "team", metadata={"finalizers": [FINALIZER, "example.com/audit"]})

    with pytest.raises(OperatorError):
        await operator._streams.reconcile()  # noqa: SLF001 - with an outdated cache

    for _ in range(2):
        await operator.streams()
    assert cluster.get("Stream", "orders", "team")["metadata"]["finalizers"] == ["example.com/audit"]


async def test_a_former_leader_does_not_delete_records_that_are_to_be_kept_since(cluster, operator):
    cluster.add(stream(deletionPolicy="Delete"))
    await operator.streams()
    cluster.change("Stream", "orders", "team", metadata=GOING)
    await operator.resync.list_all()

    cluster.change("Stream", "orders", "team", spec={"deletionPolicy": "Retain"})
    with pytest.raises(Unavailable):
        await operator.streams(is_outdated=True)
    assert set(operator.lake.kept) == {"orders"}

    await operator.streams()
    assert cluster.get("Stream", "orders", "team") is None
    assert set(operator.lake.kept) == {"orders"}
