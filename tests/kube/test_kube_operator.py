"""The operator process with a real API server and a real data layer, without nodes: scale, idleness, drift, leader election."""

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from fixtures.kubernetes import until
from fixtures.operator_process import OperatorProcess
from fixtures.operator_scene import NAMESPACE, USER, Scene, condition, is_synced, scene, stream

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

STREAM_COUNT = 1000
REST_S = 120
LEASE_S = 15
WRITES = "bearlake_operator_writes_total"
WRITING_VERBS = {"create", "update", "patch", "delete", "deletecollection"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture
def operator(found: Scene) -> Iterator[OperatorProcess]:
    with found.operator() as process:
        until("the operator leads", process.is_ready, LEASE_S * 4)
        yield process
        if process.process.poll() is None:
            process.stop()
        assert process.process.returncode == 0, process.log.read_text()


def written(found: Scene) -> int:
    """The number of the operator's writes to the API server, without its Lease."""
    asked = found.plane.audited(USER)
    return sum(request["verb"] in WRITING_VERBS and request["objectRef"]["resource"] != "leases" for request in asked)


def quiet(found: Scene, operator: OperatorProcess) -> None:
    """Wait until the operator has reconciled everything twice without a write."""

    def is_quiet() -> bool:
        before = written(found), operator.metric("bearlake_operator_reconciles_total")
        time.sleep(3)
        return before == (written(found), operator.metric("bearlake_operator_reconciles_total"))

    until("the operator has nothing to do", is_quiet, 60)


def test_a_thousand_streams_are_created_within_two_minutes_and_cost_little_when_idle(
    found: Scene, operator: OperatorProcess, record_testsuite_property: Any
) -> None:
    names = [f"many-{number:04}" for number in range(STREAM_COUNT)]
    manifests = "\n---\n".join(json.dumps(stream(name, retention={"time": "7d"})) for name in names)
    started = time.monotonic()
    found.plane.kubectl("apply", "-f", "-", given=manifests)

    until("all are made", lambda: found.are_synced(names), 120 - (time.monotonic() - started))
    record_testsuite_property("operator_1000_streams_s", round(time.monotonic() - started, 1))
    record_testsuite_property("operator_1000_streams_cpu_s", round(operator.cpu_s(), 1))
    assert set(names) <= set(found.data_layer())
    assert operator.metric("bearlake_operator_data_plane_requests_total") < STREAM_COUNT / 2, "not in batches"

    quiet(found, operator)
    before, cpu_s, at = written(found), operator.cpu_s(), time.monotonic()
    time.sleep(REST_S)
    share = (operator.cpu_s() - cpu_s) / (time.monotonic() - at)
    record_testsuite_property("operator_rest_cpu_percent", round(share * 100, 2))
    record_testsuite_property("operator_memory_mb", round(operator.memory_bytes(peak=True) / 1e6))
    assert written(found) == before
    assert share < 0.05
    assert operator.memory_bytes(peak=True) < 250e6


def test_a_restart_changes_nothing(found: Scene, operator: OperatorProcess) -> None:
    """Uses the thousand Streams of the previous test."""
    found.plane.apply(stream("restarted"))
    until("it is made", lambda: found.are_synced(["restarted"]), 60)
    quiet(found, operator)
    operator.stop()
    before = versions(found)

    with found.operator("successor") as successor:
        until("it leads", successor.is_ready, 60)
        until("it has worked", lambda: successor.metric("bearlake_operator_last_success_seconds", kind="tiers"), 60)
        quiet(found, successor)

        assert versions(found) == before
        assert successor.metric(WRITES, kind="Stream/status") == 0
        successor.stop()


def versions(found: Scene) -> dict[str, str]:
    """The resource version of the store, which grows with every write."""
    kinds = "configmaps,services,deployments,poddisruptionbudgets,streams"
    listed = json.loads(found.plane.kubectl("get", kinds, "-A", "-o", "json"))["items"]
    return {
        f"{resource['kind']} {resource['metadata']['namespace']} {resource['metadata']['name']}": resource["metadata"][
            "resourceVersion"
        ]
        for resource in listed
    }


def test_new_records_do_not_trigger_reconciliations(found: Scene, operator: OperatorProcess) -> None:
    """The status of a Stream shows the number of records. Writing it must not trigger another reconciliation."""
    found.plane.apply(stream("busy"))
    until("it is made", lambda: found.are_synced(["busy"]), 60)
    quiet(found, operator)
    rounds = "bearlake_operator_reconciles_total"
    before = operator.metric(rounds, kind="streams of default")
    producer = Producer({"bootstrap.servers": found.server.kafka})
    found.plane.apply(stream("busy", configs={"max.message.bytes": "1000000"}))
    end = time.monotonic() + 15
    while time.monotonic() < end:
        producer.produce("busy", b"x")
        producer.poll(0.01)
    assert producer.flush(30) == 0

    assert operator.metric(rounds, kind="streams of default") - before <= 4
    found.plane.apply(stream("busy"))
    until("they are seen", lambda: found.streams()["busy"]["status"]["recordCount"] > 0, 30)


def named(resource: str, **spec: Any) -> dict[str, Any]:
    """A Stream that claims a stream name other than its own name."""
    return stream(resource) | {"spec": {"name": "claimed", **spec}}


def test_the_older_stream_owns_the_name_and_the_younger_takes_over(found: Scene, operator: OperatorProcess) -> None:
    found.plane.apply(named("elder", configs={"max.message.bytes": "1000"}))
    until("it is made", lambda: found.are_synced(["elder"]), 60)
    time.sleep(1.1)  # creation times have a resolution of seconds
    found.plane.apply(named("younger", configs={"max.message.bytes": "2000"}, deletionPolicy="Delete"))

    until("it says so", lambda: condition(found.streams()["younger"], "Ready") == ("False", "NameTaken"), 30)
    assert "default/elder" in found.streams()["younger"]["status"]["conditions"][0]["message"]
    assert found.data_layer()["claimed"]["configs"]["max.message.bytes"] == "1000"
    events = json.loads(found.plane.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
    told = [event for event in events if event["regarding"]["name"] == "younger"]
    assert [(event["type"], event["reason"]) for event in told] == [("Warning", "NameTaken")]
    assert "finalizers" not in found.streams()["younger"]["metadata"]

    identity = found.data_layer()["claimed"]["id"]
    found.plane.kubectl("delete", "stream", "elder", "--timeout=30s")
    until("the younger has it", lambda: found.are_synced(["younger"]), 30)
    assert found.data_layer()["claimed"] | {"created_ms": 0} == {
        "name": "claimed",
        "id": identity,
        "partition_count": 1,
        "configs": {"max.message.bytes": "2000"},
        "created_ms": 0,
    }
    found.plane.kubectl("delete", "stream", "younger", "--timeout=30s")
    assert "claimed" not in found.data_layer()


def test_a_removed_field_is_unset_and_other_configs_stay(found: Scene, operator: OperatorProcess) -> None:
    found.plane.apply(stream("fields", retention={"time": "1d"}, configs={"max.message.bytes": "1000"}))
    until("it is made", lambda: found.are_synced(["fields"]), 60)
    found.admin(
        "PATCH", "/v1/streams", {"streams": [{"name": "fields", "set": {"message.timestamp.type": "LogAppendTime"}}]}
    )

    found.plane.apply(stream("fields", partitions=3))
    until("it is changed", lambda: found.are_synced(["fields"]), 30)

    seen = found.data_layer()["fields"]
    assert (seen["partition_count"], seen["configs"]) == (3, {"message.timestamp.type": "LogAppendTime"})
    refused = found.plane.kubectl(
        "apply", "-f", "-", given=json.dumps(stream("fields", partitions=2)), is_checked=False
    )
    assert "can only grow" in refused


def test_changes_made_elsewhere_are_reverted_and_recorded(found: Scene, operator: OperatorProcess) -> None:
    found.plane.apply(stream("drifting", retention={"time": "1d"}), stream("deleted"))
    until("they are made", lambda: found.are_synced(["drifting", "deleted"]), 60)
    found.admin("PATCH", "/v1/streams", {"streams": [{"name": "drifting", "set": {"retention.ms": "5"}}]})
    found.admin("DELETE", "/v1/streams?name=deleted")

    found.plane.apply(stream("unrelated"))  # any change triggers a full reconciliation

    until("it is there", lambda: "deleted" in found.data_layer(), 30)
    until("it is as it was", lambda: found.data_layer()["drifting"]["configs"] == {"retention.ms": "86400000"}, 30)

    def notes(name: str) -> list[str]:
        events = json.loads(found.plane.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
        about = [
            event for event in events if event["regarding"]["name"] == name and event["reason"] == "ChangedElsewhere"
        ]
        return [event["note"] for event in about]

    until("an Event is recorded", lambda: notes("deleted"), 30)
    assert len(notes("deleted")) == 1
    (drift,) = notes("drifting")
    assert "retention.ms" in drift
    assert notes("unrelated") == []


def test_the_data_layers_error_message_is_shown(found: Scene, operator: OperatorProcess) -> None:
    found.plane.apply(stream("refused", configs={"no.such.config": "1"}))

    until("it says so", lambda: condition(found.streams()["refused"], "Ready") == ("False", "Refused"), 30)
    described = found.plane.kubectl("describe", "stream", "refused")
    assert ["Warning", "Refused"] in [line.split()[:2] for line in described.splitlines()]
    assert "Unknown topic config name: no.such.config" in described
    found.plane.apply(stream("refused"))
    until("it is mended", lambda: found.are_synced(["refused"]), 30)


def test_manual_edits_and_deletions_are_reverted_within_five_seconds(found: Scene, operator: OperatorProcess) -> None:
    found.plane.apply(stream("edited"))
    until("it is made", lambda: found.are_synced(["edited"]), 60)
    quiet(found, operator)
    name = "bearlake-default-kafka"
    image = found.plane.get("deployment", name, NAMESPACE)["spec"]["template"]["spec"]["containers"][0]["image"]

    found.plane.kubectl("-n", NAMESPACE, "set", "image", f"deployment/{name}", "bearlake=example.test/evil:1")
    found.plane.kubectl("-n", NAMESPACE, "delete", "service", name)
    found.plane.kubectl("-n", NAMESPACE, "label", "configmap", name, "app.kubernetes.io/managed-by-")

    def is_repaired() -> bool:
        deployment = found.plane.get("deployment", name, NAMESPACE)
        config = found.plane.get("configmap", name, NAMESPACE)
        return (
            deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image
            and bool(found.plane.get("service", name, NAMESPACE))
            and config["metadata"]["labels"].get("app.kubernetes.io/managed-by") == "bearlake-operator"
        )

    until("all are as they were", is_repaired, 5)


def test_tiers_exist_while_streams_ask_for_them(found: Scene, operator: OperatorProcess) -> None:
    found.plane.apply(stream("tiered", protocols=["kafka", "grpc"]))
    until("there is a tier", lambda: found.plane.get("deployment", "bearlake-default-grpc", NAMESPACE), 30)

    found.plane.apply(stream("tiered", protocols=["kafka"]))

    until("it is gone", lambda: not found.plane.get("deployment", "bearlake-default-grpc", NAMESPACE), 30)
    assert found.plane.get("deployment", "bearlake-default-kafka", NAMESPACE)


def compactor(name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "bearlake.dev/v1alpha1",
        "kind": "Compactor",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def test_a_compactor_compacts_the_selected_streams(found: Scene, operator: OperatorProcess) -> None:
    labelled = stream("chosen")
    labelled["metadata"]["labels"] = {"team": "sales"}
    wish = {"names": ["orders-*"], "selector": {"matchLabels": {"team": "sales"}}}
    first = [{"streams": "orders-*", "priority": 10}]
    found.plane.apply(labelled, stream("unchosen"), compactor("some", streams=wish, priorities=first))

    def settings() -> Any:
        config = found.plane.get("configmap", "bearlake-compactor-default-some", NAMESPACE)
        return json.loads(config["data"]["bearlake.yaml"])["compaction"] if config else None

    expected = {"streams": ["orders-*", "chosen"], "priorities": first}
    until("the workers know", lambda: settings() == expected, 30)
    until("it says so", lambda: found.plane.get("compactor", "some")["status"].get("streams") == "orders-*,chosen", 30)
    until("figures", lambda: found.plane.get("compactor", "some")["status"].get("commitCount") == 0, 90)
    tables = {name: stream for name, stream in found.streams().items() if name in ("chosen", "unchosen")}
    assert condition(tables["chosen"], "TableReady") == ("Unknown", "NoRecords")
    assert condition(tables["unchosen"], "TableReady") == ("False", "NoCompactor")

    found.plane.kubectl("label", "stream", "chosen", "team-")
    until("it is not selected any more", lambda: settings()["streams"] == ["orders-*"], 30)
    for wrong, message in (
        ({"streams": {"names": ["no spaces"]}}, "should match"),
        ({"streams": {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}, "In and NotIn need values"),
        ({"priorities": [{"streams": "*", "priority": 1001}]}, "less than or equal to 1000"),
    ):
        refused = found.plane.kubectl(
            "apply", "-f", "-", given=json.dumps(compactor("wrong", **wrong)), is_checked=False
        )
        assert message in refused
    found.plane.kubectl("delete", "compactor", "some", "--timeout=30s")


def test_an_autoscaler_takes_over_the_current_number_of_pods(found: Scene, operator: OperatorProcess) -> None:
    """A field that its only owner drops falls back to its default: without a handover, from three workers to one."""
    name = "bearlake-compactor-default-handed"

    def deployment() -> dict[str, Any]:
        return found.plane.get("deployment", name, NAMESPACE) or {"spec": {}}

    found.plane.apply(compactor("handed", replicas=3))
    until("there are workers", lambda: deployment()["spec"].get("replicas") == 3, 30)

    found.plane.apply(compactor("handed", autoscaling={"maxReplicas": 5}))
    until("there is an autoscaler", lambda: found.plane.get("hpa", name, NAMESPACE), 30)

    assert deployment()["spec"]["replicas"] == 3
    found.plane.kubectl("-n", NAMESPACE, "scale", "deployment", name, "--replicas=4")  # as autoscalers do
    quiet(found, operator)
    assert deployment()["spec"]["replicas"] == 4
    found.plane.apply(compactor("handed", replicas=2))
    until("the number is ours", lambda: deployment()["spec"]["replicas"] == 2, 30)
    assert not found.plane.get("hpa", name, NAMESPACE)
    found.plane.kubectl("delete", "compactor", "handed", "--timeout=30s")


def test_the_api_servers_error_message_about_pods_is_shown(found: Scene, operator: OperatorProcess) -> None:
    template = {"spec": {"terminationGracePeriodSeconds": -1, "restartPolicy": "Sometimes"}}
    found.plane.apply(compactor("strange", NAMESPACE, podTemplate=template))

    def shown() -> dict[str, Any]:
        return found.plane.get("compactor", "strange", NAMESPACE)

    until("it says so", lambda: condition(shown(), "Ready") == ("False", "Invalid"), 60)
    assert '"Sometimes"' in json.dumps(shown()["status"]).replace("\\", "")
    found.plane.apply(compactor("strange", NAMESPACE))
    name = f"bearlake-compactor-{NAMESPACE}-strange"
    until("it is mended", lambda: found.plane.get("deployment", name, NAMESPACE), 60)
    found.plane.kubectl("-n", NAMESPACE, "delete", "compactor", "strange", "--timeout=30s")


def test_restricted_fields_of_compactors_in_other_namespaces_are_rejected(
    found: Scene, operator: OperatorProcess
) -> None:
    found.plane.apply(compactor("sly", podTemplate={"spec": {"serviceAccountName": "bl-operator"}}))

    until("it says so", lambda: "podTemplate: allowed" in described_compactor(found, "sly"), 60)
    assert not found.plane.get("deployment", "bearlake-compactor-default-sly", NAMESPACE)
    found.plane.kubectl("delete", "compactor", "sly", "--timeout=30s")


def described_compactor(found: Scene, name: str) -> str:
    return found.plane.kubectl("describe", "compactor", name)


def test_another_operator_leads_after_the_leader_is_killed(
    found: Scene, operator: OperatorProcess, record_testsuite_property: Any
) -> None:
    with found.operator("standby") as standby:
        assert not standby.is_ready()
        operator.process.send_signal(signal.SIGKILL)
        operator.process.wait()
        killed = time.monotonic()
        found.plane.apply(stream("orphan"))

        until("the other leads", standby.is_ready, LEASE_S * 3)
        record_testsuite_property("operator_takeover_s", round(time.monotonic() - killed, 1))
        assert time.monotonic() - killed > LEASE_S / 2, "it led before the lease had run out"
        until("it works", lambda: found.are_synced(["orphan"]), 30)
        standby.stop()
    operator.process.returncode = 0
    assert is_synced(found.streams()["orphan"])


def test_there_is_one_leader_and_a_stopped_leader_is_replaced_at_once(found: Scene, operator: OperatorProcess) -> None:
    with found.operator("next") as follower:
        assert not follower.is_ready()

        stopped = time.monotonic()
        operator.stop()
        until("the other leads", follower.is_ready, LEASE_S)

        assert time.monotonic() - stopped < LEASE_S
        follower.stop()


def test_a_thousand_streams_are_deleted(found: Scene, operator: OperatorProcess) -> None:
    """A hundred streams are deleted with their resources, the others are kept."""
    doomed = [f"many-{number:04}" for number in range(100)]
    manifests = "\n---\n".join(
        json.dumps(stream(name, retention={"time": "7d"}, deletionPolicy="Delete")) for name in doomed
    )
    found.plane.kubectl("apply", "-f", "-", given=manifests)

    def are_held() -> bool:
        streams = found.streams()
        return all(streams[name]["metadata"].get("finalizers") == ["bearlake.dev/stream"] for name in doomed)

    until("they are held", are_held, 60)

    found.plane.kubectl("delete", "streams", "--all", "--wait=false")

    until("they are gone", lambda: not found.streams(), 120)
    kept = set(found.data_layer())
    assert not kept & set(doomed)
    assert {f"many-{number:04}" for number in range(100, STREAM_COUNT)} <= kept


def rules_of(found: Scene, name: str) -> list[tuple[str, str, str]]:
    """Principal, operation and permission of the data layer's rules on a stream."""
    rows = found.admin("GET", f"/v1/access?resource=Topic&name={name}")["rules"]
    return [(row["principal"], row["operation"], row["permission"]) for row in rows]


def test_access_rules_live_with_their_stream_and_others_stay(found: Scene, operator: OperatorProcess) -> None:
    by_hand = {"resource": "Topic", "name": "guarded", "principal": "User:root", "operation": "All"}
    found.admin("POST", "/v1/access", {"rules": [by_hand]})
    root = ("User:root", "All", "Allow")
    alice = {"principal": "User:alice", "operations": ["Read", "Write"]}
    nobody = {"principal": "User:*", "operations": ["Delete"], "permission": "Deny"}

    found.plane.apply(stream("guarded", access=[alice, nobody]))
    until("it is made", lambda: condition(found.streams()["guarded"], "AccessSynced") == ("True", "InSync"), 60)
    assert set(rules_of(found, "guarded")) == {
        root,
        ("User:alice", "Read", "Allow"),
        ("User:alice", "Write", "Allow"),
        ("User:*", "Delete", "Deny"),
    }

    found.plane.apply(stream("guarded", access=[{"principal": "User:alice", "operations": ["Read"]}]))
    until("rules are deleted", lambda: len(rules_of(found, "guarded")) == 2, 30)
    found.plane.kubectl("delete", "stream", "guarded", "--timeout=30s")

    assert rules_of(found, "guarded") == [root]
    assert "guarded" in found.data_layer()
    found.admin("DELETE", "/v1/access", {"rules": [by_hand]})


def test_a_late_status_is_refused(found: Scene, operator: OperatorProcess) -> None:
    """As a former leader would send it: by server-side apply, with the version from which it was computed."""
    found.plane.apply(stream("watched"))
    until("it is made", lambda: found.are_synced(["watched"]), 60)
    former = found.streams()["watched"]
    found.plane.apply(stream("watched", access=[{"principal": "User:alice", "operations": ["Read"]}]))
    until("rules are listed", lambda: found.streams()["watched"]["status"].get("accessRules"), 30)

    metadata = {key: former["metadata"][key] for key in ("name", "namespace", "uid", "resourceVersion")}
    late = {key: former[key] for key in ("apiVersion", "kind", "status")} | {"metadata": metadata}
    words = ("apply", "--server-side", "--force-conflicts", "--subresource=status", "--field-manager=bearlake-operator")
    answer = found.plane.kubectl(*words, "-f", "-", given=json.dumps(late), is_checked=False)

    assert "has been modified" in answer
    assert found.streams()["watched"]["status"]["accessRules"]
    found.plane.kubectl("delete", "stream", "watched", "--timeout=30s")
