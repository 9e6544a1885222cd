"""The Kubernetes client, the applier and leader election against an API server that fails."""

import asyncio
import json

import pytest
from aiohttp import web

from bearlake_operator import kube
from bearlake_operator.controllers import external_addresses
from bearlake_operator.controllers.apply import Applier
from bearlake_operator.controllers.cache import ResourceCache
from bearlake_operator.controllers.leader_election import LeaderElector, LeadershipLost
from bearlake_operator.errors import Conflict, Invalid, Unavailable
from bearlake_operator.kube import KubeClient
from bearlake_operator.kube_config import ClientConfig
from bearlake_operator.settings import AdminAccess, DataLayer, ListenerType, Settings, Tier, TierListener
from fixtures.small_cluster import served

MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "n", "name": "a"}, "data": {"k": "v"}}


class ApiServer:
    """Sends the scripted responses first, then those of `answer`; records all requests."""

    def __init__(self):
        self.script = []
        self.asked = []
        self.version = 0
        self.answer = self.echo

    def echo(self, request, body):
        """A rough server-side apply: returns the sent object in a new version."""
        self.version += 1
        metadata = {"uid": "1", **body.get("metadata", {}), "resourceVersion": str(self.version)}
        return 200, {**body, "metadata": metadata}

    async def handle(self, request):
        text = await request.text()
        body = json.loads(text) if text else {}
        self.asked.append((request.method, request.path_qs, body, dict(request.headers)))
        if self.script:
            scripted = self.script.pop(0)
            if scripted == "cut":
                request.transport.close()
                return web.Response()
            status, headers = scripted if isinstance(scripted, tuple) else (scripted, {})
            return web.json_response({"message": f"scripted {status}"}, status=status, headers=headers)
        status, answer = self.answer(request, body)
        return web.json_response(answer, status=status)


@pytest.fixture
async def api():
    server = ApiServer()
    async with served(server.handle) as server.url:
        yield server


@pytest.fixture
async def client(api, tmp_path, monkeypatch):
    naps = []

    async def nap(seconds):
        naps.append(seconds)

    monkeypatch.setattr(kube.asyncio, "sleep", nap)
    (tmp_path / "token").write_text("first\n")
    access = ClientConfig(server=api.url, namespace="n", token_file=tmp_path / "token")
    opened = KubeClient(access)
    opened.naps = naps
    opened.token_file = tmp_path / "token"
    yield opened
    await opened.close()


@pytest.mark.parametrize("failure", [409, 429, 500, 502, 503, 504, "cut"])
async def test_temporary_failures_are_retried(api, client, failure):
    api.script = [failure] * 3

    found = await client.apply(MANIFEST)

    assert found["data"] == {"k": "v"}
    assert len(api.asked) == 4
    assert client.naps == sorted(client.naps) or len(client.naps) == 3


async def test_retry_after_is_respected(api, client):
    api.script = [(429, {"Retry-After": "7"})]

    await client.apply(MANIFEST)

    assert client.naps == [7.0]


async def test_persistent_failures_are_unavailable(api, client, monkeypatch):
    monkeypatch.setattr(kube, "DEADLINE_S", 0.5)
    api.script = [503] * 100

    with pytest.raises(Unavailable, match="scripted 503"):
        await client.apply(MANIFEST)


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_invalid_requests_raise_the_servers_message_at_once(api, client, status):
    api.script = [status]

    with pytest.raises(Invalid, match=f"PATCH /api/v1/namespaces/n/configmaps/a: scripted {status}"):
        await client.apply(MANIFEST)
    assert len(api.asked) == 1


async def test_the_token_is_read_for_every_request(api, client):
    await client.apply(MANIFEST)
    client.token_file.write_text("second")
    await client.apply(MANIFEST)

    assert [headers["Authorization"] for *_, headers in api.asked] == ["Bearer first", "Bearer second"]


async def test_lists_are_paged_and_a_missing_optional_kind_is_empty(api, client):
    def page(request, body):
        if "scaledobjects" in request.path:
            return 404, {}
        more = "" if "continue" in request.query else "next"
        return 200, {
            "items": [{"metadata": {}}],
            "metadata": {"continue": more, "resourceVersion": "7" if more else "9"},
        }

    api.answer = page

    found = await client.list("Stream", None)

    assert (len(found.resources), found.version) == (2, 7)
    assert found.resources[0]["kind"] == "Stream"
    assert (await client.list("ScaledObject", "n")).resources == []


async def test_a_list_with_expired_pages_is_restarted(api, client):
    expired = []

    def page(request, body):
        if "continue" in request.query and not expired:
            expired.append(True)
            return 410, {"message": "the provided continue parameter is too old"}
        more = "" if "continue" in request.query else "next"
        return 200, {
            "items": [{"metadata": {}}],
            "metadata": {"continue": more, "resourceVersion": str(len(api.asked))},
        }

    api.answer = page

    found = await client.list("Stream", None)

    assert (len(found.resources), found.version, len(api.asked)) == (2, 3, 4)


async def test_deleting_a_missing_or_recreated_resource_is_a_no_op(api, client):
    api.script = [404]
    await client.delete("ConfigMap", "n", "a", "uid")
    api.script = [409]
    await client.delete("ConfigMap", "n", "a", "uid")

    assert api.asked[0][2]["preconditions"] == {"uid": "uid"}


async def test_replacing_another_version_is_a_conflict(api, client):
    api.script = [409]

    with pytest.raises(Conflict):
        await client.replace({"kind": "Lease", "metadata": {"namespace": "n", "name": "a", "resourceVersion": "1"}})
    assert api.asked[0][:2] == ("PUT", "/apis/coordination.k8s.io/v1/namespaces/n/leases/a")


# Applier.


def manifest(name="a", **data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "bearlake-operator"}},
        "data": data,
    }


async def test_unchanged_objects_are_not_sent(api, client):
    applier = Applier(client, ResourceCache(), lambda: None)
    desired = [manifest("a", k="1"), manifest("b")]
    assert await applier.apply(desired) == []
    asked = len(api.asked)

    for _ in range(10):
        await applier.apply(desired)
        await applier.prune(desired)

    assert (asked, len(api.asked)) == (2, 2)


async def test_drift_deletions_and_new_manifests_are_sent(api, client):
    cache = ResourceCache()
    applier = Applier(client, cache, lambda: None)
    await applier.apply([manifest("a", k="1")])
    live = cache.get("ConfigMap", "n", "a")

    cache.put("ConfigMap", {**live, "data": {"k": "edited"}, "metadata": {**live["metadata"], "resourceVersion": "50"}})
    api.version = 60
    await applier.apply([manifest("a", k="1")])
    assert len(api.asked) == 2
    cache.remove("ConfigMap", cache.get("ConfigMap", "n", "a"))
    api.version = 70
    await applier.apply([manifest("a", k="1")])
    assert len(api.asked) == 3
    await applier.apply([manifest("a", k="2")])
    assert len(api.asked) == 4


async def test_status_and_kubernetes_annotations_are_not_drift(api, client):
    cache = ResourceCache()
    applier = Applier(client, cache, lambda: None)
    await applier.apply([manifest("a")])
    live = cache.get("ConfigMap", "n", "a")

    metadata = {**live["metadata"], "resourceVersion": "50", "annotations": {"deployment.kubernetes.io/revision": "2"}}
    cache.put("ConfigMap", {**live, "status": {"replicas": 3}, "metadata": metadata})
    await applier.apply([manifest("a")])

    assert len(api.asked) == 1


async def test_a_changed_annotation_of_the_manifest_is_drift(api, client):
    cache, note = ResourceCache(), "service.beta.kubernetes.io/aws-load-balancer-type"
    applier, wanted = Applier(client, cache, lambda: None), manifest("a")
    wanted["metadata"]["annotations"] = {note: "external"}
    await applier.apply([wanted])
    live = cache.get("ConfigMap", "n", "a")

    cache.put(
        "ConfigMap",
        {**live, "metadata": {**live["metadata"], "resourceVersion": "50", "annotations": {note: "nlb"}}},
    )
    await applier.apply([wanted])

    assert len(api.asked) == 2


async def test_prune_deletes_only_our_undesired_objects(api, client):
    cache = ResourceCache()
    applier = Applier(client, cache, lambda: None)
    await applier.apply([manifest("a"), manifest("b")])
    foreign = {"namespace": "n", "name": "foreign", "uid": "2", "resourceVersion": "1", "labels": {}}
    cache.put("ConfigMap", {"kind": "ConfigMap", "metadata": foreign})

    await applier.prune([manifest("a")])

    assert [(verb, path) for verb, path, *_ in api.asked if verb == "DELETE"] == [
        ("DELETE", "/api/v1/namespaces/n/configmaps/b")
    ]


@pytest.mark.parametrize(
    ("listener", "expected"),
    [
        ({"type": ListenerType.NODE_PORT, "node_port": 30094}, {"bearlake-default-kafka": ["192.0.2.1"]}),
        ({"type": ListenerType.NODE_PORT, "node_port": 30094, "advertised_host": "kafka.example.com"}, None),
        ({"type": ListenerType.LOAD_BALANCER}, None),
    ],
)
async def test_pods_are_listed_only_for_listeners_that_advertise_nodes(api, client, listener, expected):
    pod_labels = {"bearlake.dev/data-layer": "default", "app.kubernetes.io/component": "kafka"}
    status = {"hostIP": "192.0.2.1", "conditions": [{"type": "Ready", "status": "True"}]}
    pod = {"metadata": {"namespace": "n", "name": "a", "labels": pod_labels}, "status": status}
    api.answer = lambda *_: (200, {"metadata": {"resourceVersion": "7"}, "items": [pod]})
    tier = Tier(listeners=(TierListener(name="OUT", port=9094, **listener),))
    layer = DataLayer(settings={}, admin=AdminAccess(secret="token"), tiers={"kafka": tier})
    values = Settings(image="server", compactor_image="compactor", data_layers={"default": layer})

    found = await external_addresses.of_data_layer(values, "default", client, ResourceCache())

    assert found.nodes == (expected or {})
    assert [path.partition("?")[0] for _, path, *_ in api.asked] == (["/api/v1/namespaces/n/pods"] if expected else [])


async def test_a_rejected_object_does_not_affect_others(api, client):
    api.script = [422]

    applier = Applier(client, ResourceCache(), lambda: None)

    problems = await applier.apply([manifest("a"), manifest("b")])

    assert len(problems) == 1
    assert "scripted 422" in problems[0]
    assert len(api.asked) == 2
    assert (applier.error_of("a"), applier.error_of("b")) == (problems[0], "")
    assert await applier.apply([manifest("a")]) == []
    assert applier.error_of("a") == ""


# Leader election.


class Leases:
    """A fake Lease with versions, creation and conflicts."""

    def __init__(self, api):
        self.lease = None
        api.answer = self.answer

    def answer(self, request, body):
        if request.method == "GET":
            return (200, self.lease) if self.lease else (404, {})
        if request.method == "POST" and self.lease is not None:
            return 409, {"message": "exists"}
        if request.method == "PUT" and self.lease is None:
            return 404, {"message": "not found"}
        if request.method == "PUT" and body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        version = int(self.lease["metadata"]["resourceVersion"]) + 1 if self.lease else 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
        return 200, self.lease


async def test_a_second_operator_leads_after_the_first_releases_the_lease(api, client):
    leases = Leases(api)
    first, second = LeaderElector(client, "first", 15), LeaderElector(client, "second", 15)
    await first.acquire()

    waiting = asyncio.ensure_future(second.acquire())
    while len(api.asked) < 10:
        await asyncio.wait({waiting}, timeout=0.01)
    assert leases.lease["spec"]["holderIdentity"] == "first"
    await first.release()
    await waiting

    assert leases.lease["spec"]["holderIdentity"] == "second"
    assert leases.lease["spec"]["leaseTransitions"] >= 1


async def test_an_expired_lease_is_taken_over(api, client, monkeypatch):
    leases = Leases(api)
    now = 100.0
    monkeypatch.setattr("bearlake_operator.controllers.leader_election.time.monotonic", lambda: now)
    await LeaderElector(client, "first", 15).acquire()
    second = LeaderElector(client, "second", 15)

    assert not await second.attempt(5)
    now += 14
    assert not await second.attempt(5)
    now += 2
    assert await second.attempt(5)
    assert leases.lease["spec"]["holderIdentity"] == "second"


async def test_an_undisturbed_renewal_is_one_request(api, client):
    leases = Leases(api)
    first = LeaderElector(client, "first", 15)
    await first.acquire()
    api.asked.clear()

    assert await first.attempt(5)
    assert await first.attempt(5)

    assert [verb for verb, *_ in api.asked] == ["PUT", "PUT"]
    assert leases.lease["metadata"]["resourceVersion"] == "3"


async def test_a_changed_or_deleted_lease_is_renewed_at_the_next_attempt(api, client):
    leases = Leases(api)
    first = LeaderElector(client, "first", 15)
    await first.acquire()

    leases.lease = {**leases.lease, "metadata": {**leases.lease["metadata"], "resourceVersion": "7"}}
    assert not await first.attempt(5)
    assert await first.attempt(5)
    assert leases.lease["metadata"]["resourceVersion"] == "8"
    leases.lease = None
    assert not await first.attempt(5)
    assert await first.attempt(5)
    assert leases.lease["spec"]["holderIdentity"] == "first"


async def test_a_lease_held_by_another_operator_is_not_taken_back(api, client):
    leases = Leases(api)
    first, second = LeaderElector(client, "first", 15), LeaderElector(client, "second", 15)
    await first.acquire()
    await first.release()
    await second.acquire()

    assert not await first.attempt(5)
    assert not await first.attempt(5)
    assert leases.lease["spec"]["holderIdentity"] == "second"


async def test_a_leader_that_cannot_renew_stops_before_the_lease_expires(api, client, monkeypatch):
    Leases(api)
    now = 100.0
    monkeypatch.setattr("bearlake_operator.controllers.leader_election.time.monotonic", lambda: now)
    first = LeaderElector(client, "first", 15)
    await first.acquire()
    naps = []

    async def nap(seconds):
        nonlocal now
        naps.append(seconds)
        now += seconds + 4.9  # each attempt takes 4.9 s, and fails
        api.script = [500] * 100

    monkeypatch.setattr("bearlake_operator.controllers.leader_election.asyncio.sleep", nap)
    monkeypatch.setattr(kube, "DEADLINE_S", 0.001)

    with pytest.raises(LeadershipLost):
        await first.renew()

    assert now - 100 < 15
