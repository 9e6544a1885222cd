"""The pure decisions: claims, changes, tiers, schedules, statuses and selections."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from bearlake_operator.admin import Backlog, Commits, ObservedStream, StreamChange, StreamCommits
from bearlake_operator.api import compactor_spec, stream_spec
from bearlake_operator.errors import Invalid
from bearlake_operator.reconcile import (
    claims,
    endpoints,
    imports,
    required_tiers,
    schedule,
    selection,
    status,
    stream_changes,
)
from bearlake_operator.settings import AdminAccess, DataLayer, ImportSource, ListenerType, Settings, Tier, TierListener

NOW = "2026-01-01T00:00:00Z"


def stream(name="orders", namespace="a", created="2026-01-01T00:00:00Z", generation=1, **spec):
    return {
        "apiVersion": "bearlake.dev/v1alpha1",
        "kind": "Stream",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "creationTimestamp": created,
            "generation": generation,
            "uid": f"{namespace}/{name}",
        },
        "spec": spec,
    }


def settings(**tiers):
    layer = DataLayer(settings={}, admin=AdminAccess(secret="token"), tiers=tiers)
    return Settings(image="server", compactor_image="compactor", data_layers={"default": layer, "other": layer})


def observed(partitions=1, record_count=0, **configs):
    return ObservedStream(
        name="orders",
        id="id-1",
        partitions=partitions,
        configs={key.replace("_", "."): value for key, value in configs.items()},
        record_count=record_count,
    )


# Claims.


def test_the_oldest_stream_owns_the_name_in_any_order():
    young = stream("b", created="2026-01-02T00:00:00Z") | {"spec": {"name": "orders"}}
    old = stream("z", created="2026-01-01T00:00:00Z") | {"spec": {"name": "orders"}}

    for order in ([young, old], [old, young]):
        found = claims.resolve(order)
        assert found["a", "z"].is_owner
        assert found["a", "b"].owner == ("a", "z")


def test_streams_of_the_same_second_are_ordered_by_namespace_and_name():
    found = claims.resolve([stream("orders", namespace="b"), stream("orders", namespace="a")])

    assert found["a", "orders"].is_owner
    assert not found["b", "orders"].is_owner


def test_the_same_name_in_two_data_layers_is_not_a_conflict():
    found = claims.resolve(
        [stream("orders"), stream("more", namespace="b") | {"spec": {"name": "orders", "dataLayer": "other"}}]
    )

    assert all(claim.is_owner for claim in found.values())


def test_a_terminating_stream_claims_nothing():
    going = stream("a")
    going["metadata"]["deletionTimestamp"] = NOW
    going["spec"] = {"name": "orders"}

    found = claims.resolve([going, stream("orders", created="2026-02-01T00:00:00Z")])

    assert list(found) == [("a", "orders")]
    assert found["a", "orders"].is_owner


# Changes.


def test_a_missing_stream_is_created():
    spec = stream_spec(stream(partitions=3, retention={"time": "1d"}))

    assert stream_changes.change_for(spec, None, ()) == StreamChange(
        name="orders", is_new=True, partitions=3, set_configs={"retention.ms": "86400000"}
    )


def test_a_matching_stream_needs_no_change_and_other_configs_stay():
    spec = stream_spec(stream(partitions=3, configs={"max.message.bytes": "5"}))

    assert (
        stream_changes.change_for(spec, observed(3, max_message_bytes="5", retention_ms="7"), ["max.message.bytes"])
        is None
    )


def test_drift_is_reverted_and_a_removed_config_is_unset():
    spec = stream_spec(stream(partitions=4, configs={"max.message.bytes": "5"}))

    change = stream_changes.change_for(
        spec, observed(2, max_message_bytes="6", retention_ms="7"), ["max.message.bytes", "retention.ms", "segment.ms"]
    )

    assert change == StreamChange(
        name="orders",
        is_new=False,
        partitions=4,
        set_configs={"max.message.bytes": "5"},
        unset_configs=["retention.ms"],
    )


def test_a_drift_note_lists_the_changes():
    new = StreamChange(name="a", is_new=True, partitions=1, set_configs={})
    old = StreamChange(name="a", is_new=False, partitions=3, set_configs={"z": "1"}, unset_configs=["b"])

    assert "deleted" in stream_changes.describe_drift(new)
    assert stream_changes.describe_drift(old).endswith(": b, partitions, z.")


def test_excess_partitions_are_reported_and_kept():
    spec = stream_spec(stream(partitions=2))

    assert stream_changes.change_for(spec, observed(5), ()) is None
    assert re.search(r"\b5\b.*\b2\b", stream_changes.excess_partitions(spec, observed(5)))
    assert stream_changes.excess_partitions(spec, observed(2)) == ""


# Imports.


def importing_settings(*namespaces):
    source = ImportSource(bootstrap="old:9092", namespaces=namespaces)
    layer = DataLayer(settings={}, admin=AdminAccess(secret="token"), sources={"old": source})
    return Settings(image="server", compactor_image="compactor", data_layers={"default": layer})


def imported(*resources, namespaces=()):
    return imports.by_source(importing_settings(*namespaces), resources, claims.resolve(resources))


def test_an_imported_stream_is_created_and_partitioned_by_its_import():
    spec = stream_spec(stream(source={"name": "old"}, configs={"max.message.bytes": "5"}))

    assert stream_changes.change_for(spec, None, ()) is None
    change = stream_changes.change_for(spec, observed(7, import_source="kafka:c/1"), ["import.source"])
    assert change == StreamChange(
        name="orders", is_new=False, partitions=None, set_configs={"max.message.bytes": "5"}, unset_configs=[]
    )
    assert stream_changes.excess_partitions(spec, observed(7)) == ""


def test_a_stream_whose_source_is_removed_is_promoted():
    spec = stream_spec(stream(partitions=7))

    change = stream_changes.change_for(spec, observed(7, import_source="kafka:c/1"), ["import.source"])

    assert change is not None
    assert change.unset_configs == ["import.source"]


def test_a_stream_that_another_import_fills_is_not_promoted():
    spec = stream_spec(stream(partitions=7))

    assert stream_changes.change_for(spec, observed(7, import_source="kafka:c/1"), ()) is None


def test_streams_of_one_source_are_imported_together_until_they_are_promoted():
    first, second = stream("a", source={"name": "old"}), stream("b", source={"name": "old"})
    done = stream("c", source={"name": "old"}) | {"status": {"import": {"source": "old", "state": "Promoted"}}}

    assert imported(first, second, done, stream("d")) == {("default", "old"): ["a", "b"]}


def test_an_import_waits_for_the_access_rules_of_its_stream():
    rules = [{"principal": "User:a", "operations": ["Read"]}]
    waiting = stream("a", source={"name": "old"}, access=rules)
    granted = waiting | {"status": {"conditions": [{"type": "AccessSynced", "status": "True"}]}}

    assert imported(waiting) == {}
    assert imported(granted) == {("default", "old"): ["a"]}


def test_only_sources_that_exist_for_the_namespace_are_used():
    known, unknown = stream("a", source={"name": "old"}), stream("b", source={"name": "new"})

    assert imported(known, unknown) == {("default", "old"): ["a"]}
    assert imported(known, namespaces=("other",)) == {}
    assert "no source 'new'" in importing_settings().refused_source("a", stream_spec(unknown))
    assert "for the namespace 'a'" in importing_settings("other").refused_source("a", stream_spec(known))
    assert importing_settings("a").refused_source("a", stream_spec(known)) == ""


# Tiers and schedules.


def test_required_tiers_are_those_that_owners_ask_for():
    found = claims.resolve(
        [
            stream("one", protocols=["rest", "kafka"]),
            stream("two", protocols=["grpc"], dataLayer="other"),
            stream("late", created="2027-01-01T00:00:00Z", protocols=["pulsar"])
            | {"spec": {"name": "one", "protocols": ["pulsar"]}},
            stream("lost", protocols=["pulsar"], dataLayer="nowhere"),
        ]
    )

    assert required_tiers.required_tiers(settings(), found.values()) == {
        "default": ("kafka", "rest"),
        "other": ("grpc",),
    }


def test_the_catalog_runs_where_its_values_enable_it_whatever_streams_ask_for():
    base = settings()
    layer = base.data_layers["default"]
    on = replace(layer, tiers={**layer.tiers, "catalog": Tier(enabled=True)})
    found = claims.resolve([stream("one", protocols=["rest"])]).values()

    with_catalog = replace(base, data_layers={**base.data_layers, "default": on})

    assert required_tiers.required_tiers(with_catalog, found) == {"default": ("rest", "catalog"), "other": ()}
    assert required_tiers.required_tiers(with_catalog, ()) == {"default": ("catalog",), "other": ()}
    assert required_tiers.required_tiers(base, found) == {"default": ("rest",), "other": ()}


def test_the_tier_of_a_terminating_stream_stays_until_it_is_gone():
    going = stream(protocols=["rest"], deletionPolicy="Delete")
    going["metadata"] |= {"deletionTimestamp": NOW, "finalizers": [claims.FINALIZER]}
    gone = stream("gone", protocols=["grpc"])
    gone["metadata"] |= {"deletionTimestamp": NOW, "finalizers": ["example.com/other"]}
    cache = [going, gone, stream("kept", protocols=["kafka"])]

    found = required_tiers.required_tiers(settings(), claims.resolve(cache).values(), claims.terminating(cache))

    assert found == {"default": ("kafka", "rest"), "other": ()}


def compactor(**spec):
    return compactor_spec({"metadata": {"namespace": "a", "name": "main"}, "spec": spec})


NIGHT = {"days": ["Fri"], "start": "22:00", "end": "06:00", "timeZone": "Europe/Berlin", "replicas": 9}


@pytest.mark.parametrize(
    ("time", "replicas"),
    [
        ("2026-01-02T20:59:00", 2),  # Friday, 21:59 in Berlin
        ("2026-01-02T21:00:00", 9),
        ("2026-01-03T04:59:00", 9),  # Saturday morning belongs to Friday's window
        ("2026-01-03T05:00:00", 2),
        ("2026-01-03T22:00:00", 2),  # Saturday night
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_on_which_it_opens(time, replicas):
    now = datetime.fromisoformat(time).replace(tzinfo=UTC)

    assert schedule.replicas(compactor(replicas=2, schedule=[NIGHT]), now) == replicas


def test_the_next_change_is_when_a_window_opens_or_closes():
    now = datetime(2026, 1, 2, 12, tzinfo=UTC)

    assert schedule.next_change(compactor(schedule=[NIGHT]), now) == datetime(2026, 1, 2, 21, tzinfo=UTC)
    assert schedule.next_change(compactor(), now) is None


@pytest.mark.parametrize(("day", "replicas"), [(3, 2), (4, 2), (5, 0)])  # Saturday, Sunday, Monday
@pytest.mark.parametrize("time", [(0, 0), (12, 0), (23, 59)])
def test_a_window_with_equal_start_and_end_is_the_whole_day(day, time, replicas):
    weekend = {"days": ["Sat", "Sun"], "start": "00:00", "end": "00:00", "replicas": 2}

    now = datetime(2026, 1, day, *time, tzinfo=UTC)

    assert schedule.replicas(compactor(replicas=0, schedule=[weekend]), now) == replicas


def test_an_unknown_time_zone_is_rejected():
    with pytest.raises(Invalid, match="'Mars/Base'"):
        schedule.replicas(compactor(schedule=[NIGHT | {"timeZone": "Mars/Base"}]), datetime.now(UTC))


# Statuses.


def shown(resource, view, now=NOW, values=None):
    return status.stream(values or settings(), "bearlake", resource, view, now)


def view_of(resource, **more):
    (claim,) = claims.resolve([resource]).values()
    return status.StreamView(claim=claim, observed=more.pop("observed", None), **more)


def ready(found):
    (condition,) = [condition for condition in found["conditions"] if condition["type"] == "Ready"]
    return condition["status"], condition["reason"]


def test_the_status_of_a_ready_stream_shows_endpoints_and_figures():
    resource = stream(protocols=["kafka", "rest"])
    values = settings(
        kafka=Tier(listeners=(TierListener(name="EXTERNAL", type=ListenerType.NODE_PORT, port=9094, node_port=30094),))
    )
    hosts = endpoints.ExternalAddresses(nodes={"bearlake-default-kafka": ["192.0.2.1", "192.0.2.2"]})
    backlog = Backlog(size_bytes=5, age_ms=71_000)
    view = view_of(resource, observed=observed(1, record_count=7), backlog=backlog, addresses=hosts)

    found = shown(resource, view, values=values)

    assert ready(found) == ("True", "Serving")
    assert (found["recordCount"], found["table"]) == (
        7,
        {"name": "streams.orders", "freshness": "1m", "backlogBytes": 5},
    )
    assert [(endpoint["protocol"], endpoint["listener"], endpoint["address"]) for endpoint in found["endpoints"]] == [
        ("kafka", "internal", "bearlake-default-kafka.bearlake.svc:9092"),
        ("kafka", "EXTERNAL", "192.0.2.1:30094,192.0.2.2:30094"),
        ("rest", "internal", "http://bearlake-default-rest.bearlake.svc:8082"),
        ("registry", "internal", "http://bearlake-default-rest.bearlake.svc:8081"),
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, ("Unknown", "Pending")),
        ({"observed": observed(), "unready_tiers": ["kafka"]}, ("False", "TierNotReady")),
        ({"problem": "no", "is_reachable": False}, ("Unknown", "DataLayerUnavailable")),
        ({"problem": "no such config"}, ("False", "Refused")),
        ({"observed": observed(9), "conflict": "9 partitions"}, ("False", "MorePartitions")),
    ],
)
def test_a_stream_that_is_not_ready_shows_the_reason(more, expected):
    resource = stream()

    assert ready(shown(resource, view_of(resource, **more))) == expected


def test_figures_stay_while_the_data_layer_does_not_answer():
    resource = stream()
    resource["status"] = shown(resource, view_of(resource, observed=observed(3, record_count=5)))

    found = shown(resource, view_of(resource, problem="no answer", is_reachable=False))

    assert (found["recordCount"], found["partitions"], found["streamId"]) == (5, 3, "id-1")


def test_the_same_observation_gives_the_same_status_at_any_time():
    resource = stream()
    view = view_of(resource, observed=observed())
    resource["status"] = shown(resource, view, now="2026-01-01T00:00:00Z")

    assert shown(resource, view, now="2026-09-09T09:09:09Z") == resource["status"]


def test_an_unknown_condition_keeps_its_first_message():
    resource = stream()
    resource["status"] = shown(resource, view_of(resource, problem="timeout", is_reachable=False))

    again = shown(resource, view_of(resource, problem="connection refused", is_reachable=False))

    assert again == resource["status"]


def test_only_a_changed_condition_gets_a_new_transition_time():
    resource = stream()
    resource["status"] = shown(
        resource, view_of(resource, observed=observed(), unready_tiers=["kafka"]), now="2026-01-01T00:00:00Z"
    )

    found = shown(resource, view_of(resource, observed=observed()), now="2026-01-02T00:00:00Z")

    times = {condition["type"]: condition["lastTransitionTime"] for condition in found["conditions"]}
    assert times == {
        "Ready": "2026-01-02T00:00:00Z",
        "Synced": "2026-01-01T00:00:00Z",
        "Claimed": "2026-01-01T00:00:00Z",
        "TableReady": "2026-01-01T00:00:00Z",
    }


def test_a_younger_stream_names_the_owner_of_its_name():
    old, young = stream("orders"), stream("late", created="2027-01-01T00:00:00Z") | {"spec": {"name": "orders"}}
    claim = claims.resolve([old, young])["a", "late"]

    found = shown(young, status.StreamView(claim=claim, observed=None))

    assert ready(found) == ("False", "NameTaken")
    assert "a/orders" in found["conditions"][0]["message"]


def table_ready(found):
    return next(
        (
            (condition["status"], condition["reason"])
            for condition in found["conditions"]
            if condition["type"] == "TableReady"
        ),
        None,
    )


@pytest.mark.parametrize(
    ("seen", "backlog", "has_compactor", "expected"),
    [
        (observed(record_count=5), Backlog(), True, ("True", "Fresh")),
        (observed(record_count=5), Backlog(size_bytes=9, age_ms=119_000), True, ("True", "Fresh")),
        (observed(record_count=5), Backlog(size_bytes=9, age_ms=121_000), True, ("False", "Behind")),
        (
            observed(record_count=5, table_freshness_ms="60000"),
            Backlog(size_bytes=9, age_ms=599_000),
            True,
            ("True", "Fresh"),
        ),
        (observed(record_count=5), Backlog(size_bytes=9, age_ms=1), False, ("False", "NoCompactor")),
        (observed(record_count=5), Backlog(), False, ("True", "Fresh")),  # it was compacted before
        (observed(), Backlog(), False, ("False", "NoCompactor")),
        (observed(), Backlog(), True, ("Unknown", "NoRecords")),
        (observed(record_count=5, table_enable="false"), Backlog(), True, None),
        (None, Backlog(), True, None),
    ],
)
def test_table_ready_reflects_freshness_and_compactors(seen, backlog, has_compactor, expected):
    resource = stream()
    if seen is not None:
        seen = replace(
            seen, configs={key.replace("freshness.ms", "freshness_ms"): value for key, value in seen.configs.items()}
        )

    found = shown(resource, view_of(resource, observed=seen, backlog=backlog, has_compactor=has_compactor))

    assert table_ready(found) == expected


def test_a_load_balancer_becomes_an_endpoint_when_it_has_an_address():
    listener = TierListener(name="PUBLIC", type=ListenerType.LOAD_BALANCER, port=9095)
    values = settings(kafka=Tier(listeners=(listener,)))
    service = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}}

    found = [
        endpoints.endpoints(values, "bearlake", "default", ["kafka"], endpoints.ExternalAddresses(balancers))
        for balancers in ({}, {"bearlake-default-kafka-public": endpoints.load_balancer_host(service)})
    ]

    assert [len(group) for group in found] == [1, 2]
    assert found[1][1] == {"protocol": "kafka", "listener": "PUBLIC", "address": "192.0.2.7:9095"}
    assert endpoints.load_balancer_host({"status": {"loadBalancer": {}}}) == ""


def test_addresses_have_the_form_that_the_protocols_clients_expect():
    pulsar = Tier(
        listeners=(
            TierListener(
                name="TLS", type=ListenerType.LOAD_BALANCER, port=6651, advertised_host="p.test", tls_secret="x"
            ),
            TierListener(name="HTTP", type=ListenerType.NODE_PORT, port=8080, node_port=30080),
        )
    )
    rest = Tier(
        listeners=(
            TierListener(name="OUT", type=ListenerType.NODE_PORT, port=8081, node_port=30081),
            TierListener(name="MORE", type=ListenerType.INTERNAL, port=8443),
        )
    )

    nodes = {"bearlake-default-pulsar": ["192.0.2.1", "192.0.2.2"], "bearlake-default-rest": ["2001:db8::1"]}

    found = endpoints.endpoints(
        settings(pulsar=pulsar, rest=rest),
        "bearlake",
        "default",
        ["pulsar", "rest"],
        endpoints.ExternalAddresses(nodes=nodes),
    )

    assert [(endpoint["protocol"], endpoint["address"]) for endpoint in found] == [
        ("pulsar", "pulsar://bearlake-default-pulsar.bearlake.svc:6650"),
        ("pulsar-http", "http://bearlake-default-pulsar.bearlake.svc:8080"),
        ("pulsar", "pulsar+ssl://p.test:6651"),
        ("pulsar-http", "http://192.0.2.1:30080"),
        ("rest", "http://bearlake-default-rest.bearlake.svc:8082"),
        ("registry", "http://bearlake-default-rest.bearlake.svc:8081"),
        ("registry", "http://[2001:db8::1]:30081"),
        ("rest", "http://bearlake-default-rest-more.bearlake.svc:8443"),
    ]


def test_tls_settings_of_servers_give_secure_addresses():
    rest = Tier(
        settings={"listeners": {"rest": {"tls_certificate_file": "/c", "tls_key_file": "/k"}}},
        listeners=(TierListener(name="OUT", type=ListenerType.INTERNAL, port=443),),
    )

    found = endpoints.endpoints(settings(rest=rest), "bearlake", "default", ["rest"], endpoints.ExternalAddresses())

    assert [endpoint["address"] for endpoint in found] == [
        "https://bearlake-default-rest.bearlake.svc:8082",
        "http://bearlake-default-rest.bearlake.svc:8081",
        "https://bearlake-default-rest-out.bearlake.svc:443",
    ]


def test_an_address_has_at_most_three_nodes_and_none_before_one_is_ready():
    kafka = Tier(listeners=(TierListener(name="OUT", type=ListenerType.NODE_PORT, port=9094, node_port=30094),))

    def addresses(count):
        hosts = endpoints.ExternalAddresses(
            nodes={"bearlake-default-kafka": [f"192.0.2.{number}" for number in range(1, count + 1)]}
        )
        found = endpoints.endpoints(settings(kafka=kafka), "bearlake", "default", ["kafka"], hosts)
        return [endpoint["address"] for endpoint in found if endpoint["listener"] == "OUT"]

    assert addresses(0) == []
    assert addresses(4) == ["192.0.2.1:30094,192.0.2.2:30094,192.0.2.3:30094"]


def test_nodes_are_those_of_ready_pods_that_are_not_terminating():
    def pod(host, tier="kafka", ready="True", **metadata):
        pod_labels = {"bearlake.dev/data-layer": "default", "app.kubernetes.io/component": tier}
        conditions = [{"type": "Ready", "status": ready}]
        return {"metadata": {"labels": pod_labels, **metadata}, "status": {"hostIP": host, "conditions": conditions}}

    pods = [
        pod("192.0.2.3"),
        pod("192.0.2.1"),
        pod("192.0.2.3"),
        pod("192.0.2.4", ready="False"),
        pod("192.0.2.5", deletionTimestamp=NOW),
        pod("192.0.2.2", tier="rest"),
        {"metadata": {}},
    ]

    assert endpoints.nodes_of(pods) == {
        "bearlake-default-kafka": ["192.0.2.1", "192.0.2.3"],
        "bearlake-default-rest": ["192.0.2.2"],
    }


def test_the_reason_for_missing_pods_is_kubernetes_message():
    message = 'pods "x" is forbidden: exceeded quota'
    failing = {"status": {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": message}]}}

    assert status.why_not_ready(failing) == message
    assert status.why_not_ready({"status": {"conditions": [{"type": "Progressing", "status": "True"}]}}) == ""
    assert status.why_not_ready(None) == ""


# Selection of streams.


def patterns_of(*resources, namespace="a", **spec):
    resource = {"metadata": {"namespace": namespace, "name": "main"}, "spec": spec}
    return selection.patterns(compactor_spec(resource), resources, claims.resolve(resources))


def labelled(name, namespace="a", data_layer="default", **labels):
    resource = stream(name, namespace=namespace, dataLayer=data_layer)
    resource["metadata"]["labels"] = labels
    return resource


def test_a_compactor_without_selection_has_all_streams():
    assert patterns_of(labelled("x")) == ()
    assert selection.covers((), "anything")


def test_a_selector_selects_streams_of_its_namespace_in_addition_to_names():
    streams = [
        labelled("orders", team="a"),
        labelled("events", team="a", tier="hot"),
        labelled("orders-eu", team="a"),
        labelled("far", namespace="b", team="a"),
        labelled("elsewhere", data_layer="other", team="a"),
        labelled("others", team="b"),
    ]

    found = patterns_of(*streams, streams={"names": ["orders-*"], "selector": {"matchLabels": {"team": "a"}}})

    assert found == ("orders-*", "events", "orders")
    assert [name for name in ("orders", "orders-eu", "others") if selection.covers(found, name)] == [
        "orders",
        "orders-eu",
    ]


def test_an_empty_selection_does_not_select_everything():
    found = patterns_of(labelled("x"), streams={"selector": {"matchLabels": {"no": "such"}}})

    assert found == (selection.NO_STREAM_PATTERN,)
    assert not selection.covers(found, "x")


def test_a_stream_that_does_not_own_its_name_is_not_selected():
    old, young = labelled("orders", namespace="b"), labelled("orders", team="a")
    young["metadata"]["creationTimestamp"] = "2027-01-01T00:00:00Z"

    assert patterns_of(old, young, streams={"selector": {"matchLabels": {"team": "a"}}}) == (
        selection.NO_STREAM_PATTERN,
    )


@pytest.mark.parametrize(
    ("expression", "is_selected"),
    [
        ({"key": "team", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "team", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "other", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "operator": "DoesNotExist"}, False),
    ],
)
def test_selector_expressions(expression, is_selected):
    assert selection.matches({"matchExpressions": [expression]}, {"team": "a"}) is is_selected


def test_a_compactor_shows_its_last_commits():
    commits = [StreamCommits(stream=f"s{number}", count=number, time_ms=1_700_000_000_000) for number in range(7)]
    view = status.CompactorView(commits=Commits(count=21, streams=commits), streams=("a", "b", "c", "d"))

    found = status.compactor({"metadata": {}}, view, NOW)

    assert (found["commitCount"], found["lastCommitTime"], len(found["lastCommits"])) == (21, "2023-11-14T22:13:20Z", 5)
    assert found["lastCommits"][1] == {"stream": "s1", "time": "2023-11-14T22:13:20Z", "count": 1}
    assert found["streams"] == "a,b,c,… (1 more)"


def test_a_compactor_shows_its_backlog():
    resource = {"metadata": {"generation": 3}}
    view = status.CompactorView(
        replicas=2,
        ready_replicas=2,
        desired_replicas=2,
        backlog=Backlog(size_bytes=3 << 29, age_ms=125_000),
        quarantined_count=1,
    )

    found = status.compactor(resource, view, NOW)

    assert (found["backlog"], found["lag"], found["observedGeneration"]) == ("1.5Gi", "2m", 3)
    assert ready(found) == ("True", "Working")
    assert found["conditions"][1]["type"] == "TasksQuarantined"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        *((-1, "0s"), (9_999, "0s"), (59_000, "30s"), (60_000, "1m"), (299_000, "2m"), (7_300_000, "2h")),
        *((86_399_000, "12h"), (86_400_000, "1d"), (200_000_000, "2d")),
    ],
)
def test_ages_are_rounded_down_to_steps(milliseconds, text):
    assert status.age(milliseconds) == text


def test_a_growing_age_rarely_changes():
    ages_s = [status.age_s(second * 1000) for second in range(86_400)]

    assert len(set(ages_s)) == 15
    assert ages_s == sorted(ages_s)
