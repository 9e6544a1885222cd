"""The operator while the API server or the network fails: it converges, does not spin, and loses nothing."""

import json
import time
from collections.abc import Iterator

import pytest

from fixtures.api_proxy import Fault, Proxy, proxy
from fixtures.kubernetes import until
from fixtures.operator_process import OperatorProcess
from fixtures.operator_scene import NAMESPACE, Scene, scene, stream

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 20
LEASE_S = 15
OUTAGE_S = 4.0
REQUESTS_PER_S_MAX = 60
WRITES = ("PATCH", "POST", "DELETE")
FAULTS = {
    "409 to writes": [Fault(status=409, verbs=WRITES, paths="bearlake", share=0.3)],
    "429 with a time to wait": [Fault(status=429, share=0.3, headers={"Retry-After": "1"})],
    "500": [Fault(status=500, share=0.3)],
    "503": [Fault(status=503, share=0.3)],
    "no JSON from something between": [Fault(status=502, verbs=WRITES, share=0.3)],
    "cut connections": [Fault(status=0, share=0.3)],
    "answers that are lost": [Fault(status=0, verbs=WRITES, is_done=True, share=0.3)],
    "answers that are late": [Fault(delay_s=1.0)],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture(scope="module")
def api(found: Scene) -> Iterator[Proxy]:
    with proxy(found.plane.url, found.plane.authority) as made:
        yield made


@pytest.fixture(scope="module")
def operator(found: Scene, api: Proxy) -> Iterator[OperatorProcess]:
    """One process for all faults of this module."""
    with found.operator(server=api.url) as process:
        until("the operator leads", process.is_ready, LEASE_S * 4)
        yield process


def apply_all(found: Scene, prefix: str, **spec: object) -> list[str]:
    names = [f"{prefix}-{number}" for number in range(COUNT)]
    manifests = "\n---\n".join(json.dumps(stream(name, **spec)) for name in names)
    found.plane.kubectl("apply", "-f", "-", given=manifests)
    return names


def check_alive(operator: OperatorProcess) -> None:
    assert operator.process.poll() is None, operator.log.read_text()
    assert "alive" in operator.ask("/livez")


@pytest.mark.parametrize("name", FAULTS)
def test_streams_are_created_changed_and_deleted_while_requests_fail(
    found: Scene, api: Proxy, operator: OperatorProcess, name: str
) -> None:
    prefix = "".join(letter for letter in name if letter.isalnum()).lower()
    asked, started = api.asked.total(), time.monotonic()
    with api.failing(*FAULTS[name]):
        names = apply_all(found, prefix, deletionPolicy="Delete")
        until("they are made", lambda: found.are_synced(names), 120)
        apply_all(found, prefix, deletionPolicy="Delete", partitions=2)
        until("they grow", lambda: found.are_synced(names), 120)
        assert {found.data_layer()[name]["partition_count"] for name in names} == {2}
        found.plane.kubectl("delete", "stream", *names, "--wait=false")
        until("they are gone", lambda: not set(names) & set(found.streams()), 120)

    assert not set(names) & set(found.data_layer())
    assert api.failed.total() > 0 or FAULTS[name][0].status < 0
    assert (api.asked.total() - asked) / (time.monotonic() - started) < REQUESTS_PER_S_MAX
    check_alive(operator)


def test_no_change_is_missed_after_dropped_and_expired_watches(
    found: Scene, api: Proxy, operator: OperatorProcess
) -> None:
    until("all watches are open", lambda: api.watch_count >= 7, 60)
    missed = operator.metric("bearlake_operator_missed_events_total")
    for number in range(6):
        (api.cut_watches if number % 2 else api.expire_watches)()
        name = f"unwatched-{number}"
        found.plane.apply(stream(name))
        until("it is seen", lambda name=name: found.are_synced([name]), 30)
        found.plane.kubectl("delete", "stream", name, "--timeout=30s")
        until("the watches are open again", lambda: api.watch_count >= 7, 60)

    assert operator.metric("bearlake_operator_missed_events_total") == missed
    check_alive(operator)


def test_an_outage_of_a_few_seconds_is_survived(found: Scene, api: Proxy, operator: OperatorProcess) -> None:
    names = apply_all(found, "before")
    until("they are made", lambda: found.are_synced(names), 60)
    asked = api.asked.total()
    started = time.monotonic()
    api.fail_for(OUTAGE_S, Fault(status=0))
    api.cut_watches()
    names += apply_all(found, "during")
    found.plane.kubectl("-n", NAMESPACE, "delete", "service", "bearlake-default-kafka")
    assert api.asked.total() - asked < max(OUTAGE_S, time.monotonic() - started) * REQUESTS_PER_S_MAX

    until("all are made", lambda: found.are_synced(names), 60)
    until("the service is back", lambda: found.plane.get("service", "bearlake-default-kafka", NAMESPACE), 60)
    check_alive(operator)


def test_a_rotation_of_the_admin_token_fails_no_request_in_any_order(found: Scene, operator: OperatorProcess) -> None:
    found.plane.apply(stream("unrotated"))
    until("it is made", lambda: found.are_synced(["unrotated"]), 60)
    refused = operator.metric("bearlake_operator_data_plane_requests_total", outcome="4xx")
    first, second = "the-second-token-of-this-test", "the-third-token-of-this-test"
    for number, rotate in enumerate(
        (
            lambda: found.rotate(first),
            lambda: found.rotate_servers(first),
            lambda: found.rotate_servers(second),
            lambda: found.rotate(second),
        )
    ):
        rotate()
        for again in range(3):
            name = f"rotated-{number}-{again}"
            found.plane.apply(stream(name))
            until("it is made", lambda name=name: found.are_synced([name]), 15)

    assert operator.metric("bearlake_operator_data_plane_requests_total", outcome="4xx") > refused
    events = json.loads(found.plane.kubectl("get", "events.events.k8s.io", "-o", "json"))["items"]
    assert not [event for event in events if event["reason"] == "DataLayerUnavailable"]


def test_a_leader_that_cannot_renew_stops_before_another_leads(
    found: Scene, api: Proxy, operator: OperatorProcess
) -> None:
    with found.operator("standby") as standby, api.failing(Fault(status=503)):
        cut = time.monotonic()
        until("the leader has ended", lambda: operator.process.poll() is not None, LEASE_S)
        assert not standby.is_ready(), "two lead"
        assert operator.process.returncode == 1
        assert time.monotonic() - cut < LEASE_S

        until("the other leads", standby.is_ready, LEASE_S * 3)
        names = apply_all(found, "after")
        until("it works", lambda: found.are_synced(names), 60)
        assert any("could not be renewed" in line.get("error", "") for line in operator.said("ERROR"))
        standby.stop()
