"""The metrics API over TLS, asked as the API server asks, with pods and a Kubernetes API that answer over HTTP."""

import asyncio
import json
import shutil
import ssl
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web

from bearlake_operator import document
from bearlake_operator.errors import Invalid, Unavailable
from bearlake_operator.kube import Access, Kube
from bearlake_operator.manifests import labels
from bearlake_operator.metrics_api import front_proxy
from bearlake_operator.metrics_api.process import Follower
from bearlake_operator.metrics_api.scraper import Scraper
from bearlake_operator.metrics_api.server import Server
from bearlake_operator.settings import Settings

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
KAFKA = f"{CUSTOM}/namespaces/lake/pods/*/bearlake_requests_per_second"
BACKLOG = f"{EXTERNAL}/namespaces/lake/bearlake_compaction_backlog_bytes"
AUTOSCALER = {
    "X-Remote-User": "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    "X-Remote-Group": "system:authenticated",
}
SETTINGS = document.read(
    Settings,
    {"image": "i", "compactorImage": "c", "dataLayers": {"default": {"settings": {}, "admin": {"secret": "s"}}}},
)


class World:
    """A Kubernetes API with pods, and the pods: what they count is in `pods`, by name."""

    def __init__(self, authority):
        self.pods = {}
        self.asked = []
        self.token = "first"
        self.authentication = {
            "requestheader-client-ca-file": authority,
            "requestheader-allowed-names": '["alice"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
        }

    def add(self, name, address, marks, *, is_ready=True, **status):
        self.pods[name] = SimpleNamespace(
            address=address,
            labels=labels.managed(marks),
            annotations={},
            count=0,
            is_ready=is_ready,
            status=status,
            answer=200,
        )
        return self.pods[name]

    async def list(self, request):
        assert request.query["labelSelector"] == "app.kubernetes.io/managed-by=bearlake-operator"
        items = [
            {
                "metadata": {"name": name, "uid": name, "labels": pod.labels, "annotations": pod.annotations},
                "status": {
                    "phase": "Running",
                    "podIP": pod.address,
                    "conditions": [{"type": "Ready", "status": str(pod.is_ready)}],
                }
                | pod.status,
            }
            for name, pod in self.pods.items()
        ]
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def config_map(self, request):
        return web.json_response({"data": self.authentication})

    async def metrics(self, request):
        return self.of_pod(request, lambda pod: web.Response(text=f"bearlake_kafka_requests_total {pod.count}\n"))

    async def backlog(self, request):
        self.asked.append(request.query.getall("streams", []))
        return self.of_pod(request, lambda pod: web.json_response({"size_bytes": pod.count}))

    def of_pod(self, request, answer):
        pod = next(pod for pod in self.pods.values() if pod.address == request.host.rpartition(":")[0])
        if request.headers["Authorization"] != f"Bearer {self.token}":
            return web.Response(status=401)
        return answer(pod) if pod.answer == 200 else web.Response(status=pod.answer)


async def serve(stack, routes, *addresses):
    """Serve at all addresses, at one port; returns it."""
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app)
    await runner.setup()
    stack.append(runner.cleanup)
    port = 0
    for address in addresses:
        site = web.TCPSite(runner, address, port)
        await site.start()
        port = runner.addresses[0][1]
    return port


@pytest.fixture
async def stack():
    closers = []
    yield closers
    for close in reversed(closers):
        await close()


@pytest.fixture
def world(certificates):
    return World(certificates["authority"].read_text())


@pytest.fixture
async def scraper(world, stack, tmp_path):
    pod_port = await serve(
        stack,
        {"/metrics": world.metrics, "/v1/compaction/backlog": world.backlog},
        *("127.0.0.2", "127.0.0.3", "127.0.0.4"),
    )
    api_port = await serve(
        stack,
        {
            "/api/v1/namespaces/lake/pods": world.list,
            "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication": world.config_map,
        },
        "127.0.0.1",
    )
    (tmp_path / "default").mkdir()
    (tmp_path / "default/token").write_text("first\n")
    kube = Kube(Access(server=f"http://127.0.0.1:{api_port}", namespace="lake"))
    stack.append(kube.close)
    opened = Scraper(SETTINGS, kube, tmp_path, period_s=0.01, window_s=0.02, port=pod_port)
    stack.append(opened.close)
    opened.kube, opened.token_file = kube, tmp_path / "default/token"
    return opened


@pytest.fixture
async def api(scraper, stack, certificates, tmp_path):
    """Asks as a user of the front proxy; `api.server` is what is asked."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    shutil.copy(certificates["server"], folder / "tls.crt")
    shutil.copy(certificates["server_key"], folder / "tls.key")
    server = Server(scraper, "lake", "127.0.0.1", 0)
    stack.append(server.close)
    follower = Follower(scraper.kube, server, folder)
    await follower.follow()
    session = aiohttp.ClientSession()
    stack.append(session.close)

    of_proxy = proxy_of(certificates)

    async def ask(path, headers=AUTOSCALER, trust=of_proxy):
        async with session.get(f"https://localhost:{server.port}{path}", headers=headers, ssl=trust) as answer:
            return answer.status, json.loads(await answer.read())

    return SimpleNamespace(ask=ask, server=server, follower=follower, folder=folder, session=session)


def proxy_of(certificates, name="client"):
    trust = ssl.create_default_context(cafile=certificates["authority"])
    trust.load_cert_chain(certificates[name], certificates[f"{name}_key"])
    return trust


async def counted(world, scraper, **counts):
    """Two rounds, between which pods have counted."""
    await scraper.round()
    for name, count in counts.items():
        world.pods[name].count += count
    await scraper.round()


def kafka(world, name, address, **more):
    return world.add(name, address, labels.selector("default", "kafka"), **more)


def worker(world, name, address, compactor="nightly", **more):
    return world.add(name, address, labels.compactor_selector("default", compactor), **more)


async def test_every_pod_has_its_own_rate(world, scraper, api):
    kafka(world, "a", "127.0.0.2")
    kafka(world, "b", "127.0.0.3")
    await counted(world, scraper, a=1000)

    status, found = await api.ask(f"{KAFKA}?labelSelector=app.kubernetes.io%2Fcomponent%3Dkafka")

    assert (status, found["kind"], found["apiVersion"]) == (200, "MetricValueList", "custom.metrics.k8s.io/v1beta2")
    busy, idle = found["items"]
    assert busy["describedObject"] == {"kind": "Pod", "namespace": "lake", "name": "a", "apiVersion": "v1"}
    assert busy["metric"] == {"name": "bearlake_requests_per_second", "selector": None}
    assert float(busy["value"].removesuffix("m")) > 0
    assert busy["timestamp"].endswith("Z")
    assert (idle["describedObject"]["name"], idle["value"]) == ("b", "0")


async def test_one_pod_and_only_those_selected(world, scraper, api):
    kafka(world, "a", "127.0.0.2")
    world.add("r", "127.0.0.3", labels.selector("default", "rest"))
    await counted(world, scraper)

    _, one = await api.ask(f"{CUSTOM}/namespaces/lake/pods/r/bearlake_bytes_per_second")
    _, selected = await api.ask(f"{KAFKA}?labelSelector=app.kubernetes.io%2Fcomponent+in+(rest)")
    _, nobody = await api.ask(f"{KAFKA}?labelSelector=app.kubernetes.io%2Fcomponent%3Dgrpc")

    assert [item["describedObject"]["name"] for item in one["items"]] == ["r"]
    assert [item["describedObject"]["name"] for item in selected["items"]] == ["r"]
    assert nobody["items"] == []


async def test_a_pod_that_cannot_be_read_is_left_out_and_is_not_zero(world, scraper, api):
    kafka(world, "a", "127.0.0.2")
    kafka(world, "b", "127.0.0.3").answer = 500
    await counted(world, scraper)

    _, found = await api.ask(KAFKA)

    assert [item["describedObject"]["name"] for item in found["items"]] == ["a"]


async def test_when_no_pod_can_be_read_there_is_no_answer(world, scraper, api):
    kafka(world, "a", "127.0.0.2").answer = 503
    worker(world, "w", "127.0.0.3").answer = 503
    await counted(world, scraper)

    status, found = await api.ask(KAFKA)
    assert (status, found["kind"], found["reason"]) == (503, "Status", "ServiceUnavailable")
    assert found["message"] == "bearlake_requests_per_second is not known of any of 1 pods now"

    status, found = await api.ask(BACKLOG)
    assert (status, found["reason"]) == (503, "ServiceUnavailable")


async def test_pods_that_wait_for_a_node_or_are_about_to_go_are_not_asked(world, scraper, api):
    kafka(world, "a", "127.0.0.2", phase="Pending")
    kafka(world, "b", "127.0.0.3")
    world.pods["b"].status = {"phase": "Succeeded"}
    await counted(world, scraper)

    _, found = await api.ask(KAFKA)

    assert found["items"] == []


async def test_the_backlog_is_that_of_the_compactor_that_is_selected(world, scraper, api):
    worker(world, "w", "127.0.0.2").count = 5000
    worker(world, "x", "127.0.0.3", "weekly").count = 70
    await scraper.round()

    _, one = await api.ask(
        f"{BACKLOG}?labelSelector=bearlake.dev%2Fcompactor%3Dnightly,bearlake.dev%2Fdata-layer%3Ddefault"
    )
    _, both = await api.ask(BACKLOG)
    _, none = await api.ask(f"{BACKLOG}?labelSelector=bearlake.dev%2Fcompactor%3Dyearly")

    (item,) = one["items"]
    assert (one["kind"], one["apiVersion"]) == ("ExternalMetricValueList", "external.metrics.k8s.io/v1beta1")
    assert (item["metricName"], item["value"]) == ("bearlake_compaction_backlog_bytes", "5000")
    assert item["metricLabels"] == {"bearlake.dev/compactor": "nightly", "bearlake.dev/data-layer": "default"}
    assert [item["value"] for item in both["items"]] == ["5000", "70"]
    assert none["items"] == []


async def test_the_backlog_of_a_compactor_is_that_of_its_streams(world, scraper):
    worker(world, "w", "127.0.0.2").annotations = {"bearlake.dev/streams": '["orders-*", "a&b"]'}
    worker(world, "x", "127.0.0.3", "weekly").annotations = {"bearlake.dev/streams": "by hand"}

    await scraper.round()

    assert sorted(world.asked) == [[], ["orders-*", "a&b"]]


async def test_any_worker_tells_the_backlog_and_only_ready_ones_are_asked(world, scraper, api):
    worker(world, "v", "127.0.0.2", is_ready=False).count = 1
    worker(world, "w", "127.0.0.3").answer = 500
    worker(world, "x", "127.0.0.4").count = 42
    await scraper.round()

    _, found = await api.ask(BACKLOG)

    assert [item["value"] for item in found["items"]] == ["42"]


async def test_a_rotated_token_counts_at_once_and_the_one_before_still_does(world, scraper, api):
    worker(world, "w", "127.0.0.2").count = 1
    await scraper.round()
    scraper.token_file.write_text("second")
    world.pods["w"].count = 2
    await scraper.round()
    _, before = await api.ask(BACKLOG)
    world.token = "second"
    world.pods["w"].count = 3

    await scraper.round()

    _, after = await api.ask(BACKLOG)
    assert (before["items"][0]["value"], after["items"][0]["value"]) == ("2", "3")


async def test_what_there_is_can_be_discovered_in_both_forms(api):
    for path, known in ((CUSTOM, "pods/bearlake_bytes_per_second"), (EXTERNAL, "bearlake_compaction_backlog_bytes")):
        _, found = await api.ask(path, {"X-Remote-User": "system:kube-aggregator"})
        assert found["groupVersion"] == path.removeprefix("/apis/")
        assert known in [resource["name"] for resource in found["resources"]]
        assert {(resource["namespaced"], *resource["verbs"]) for resource in found["resources"]} == {(True, "get")}
        _, group = await api.ask(path.rpartition("/")[0])
        assert group["preferredVersion"]["groupVersion"] == found["groupVersion"]
    _, groups = await api.ask("/apis")
    assert [group["name"] for group in groups["groups"]] == ["custom.metrics.k8s.io", "external.metrics.k8s.io"]

    _, whole = await api.ask(
        "/apis", AUTOSCALER | {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    )

    assert (whole["kind"], whole["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    pods, external = (item["versions"][0]["resources"][0] for item in whole["items"])
    assert [one["subresource"] for one in pods["subresources"]] == [
        "bearlake_requests_per_second",
        "bearlake_bytes_per_second",
    ]
    assert external["resource"] == "bearlake_compaction_backlog_bytes"


async def test_there_is_nothing_to_explain_and_that_is_an_answer(api):
    assert (await api.ask("/openapi/v2"))[1]["paths"] == {}
    assert (await api.ask("/openapi/v3"))[1] == {"paths": {}}


@pytest.mark.parametrize(
    ("path", "status", "reason", "words"),
    [
        (KAFKA.replace("lake/", "other/"), 404, "NotFound", "the namespace other has no pods of Bearlake's"),
        (KAFKA.replace("requests", "smiles"), 404, "NotFound", "there is no metric bearlake_smiles_per_second"),
        (KAFKA.replace("*", "nobody"), 404, "NotFound", "there is no server in a pod nobody"),
        (f"{KAFKA}?labelSelector=a%3Eb", 400, "BadRequest", "unable to parse the label selector 'a>b'"),
        (f"{KAFKA}?metricLabelSelector=a%3Db", 400, "BadRequest", "has no labels to select by"),
        (f"{BACKLOG}s", 404, "NotFound", "there are bearlake_compaction_backlog_bytes"),
        ("/api/v1", 404, "NotFound", "Not Found"),
    ],
)
async def test_refusals_are_in_the_words_of_kubernetes(api, path, status, reason, words):
    found_status, found = await api.ask(path)

    assert (found_status, found["code"], found["kind"], found["status"]) == (status, status, "Status", "Failure")
    assert found["reason"] == reason
    assert words in found["message"]


async def test_values_are_for_authenticated_users(api):
    for groups in ({}, {"X-Remote-Group": "system:unauthenticated"}):
        status, found = await api.ask(KAFKA, {"X-Remote-User": "system:anonymous"} | groups)
        assert (status, found["reason"]) == (403, "Forbidden")

    status, found = await api.ask(KAFKA, {})
    assert (status, found["message"]) == (401, "the front proxy names no user")


async def test_a_certificate_of_another_name_is_not_the_front_proxys(api, certificates):
    status, found = await api.ask(KAFKA, trust=proxy_of(certificates, "server"))

    assert (status, found["message"]) == (401, "only the API server's front proxy is answered")


async def test_without_a_certificate_there_is_no_connection(api, certificates):
    with pytest.raises(aiohttp.ClientError):
        await api.ask(KAFKA, trust=ssl.create_default_context(cafile=certificates["authority"]))


async def test_without_allowed_names_any_certificate_of_the_authority_is_the_front_proxys(
    world, scraper, api, certificates
):
    world.authentication["requestheader-allowed-names"] = "[]"
    await api.follower.follow()

    status, _ = await api.ask(CUSTOM, trust=proxy_of(certificates, "server"))

    assert status == 200


async def test_new_certificates_are_served_and_open_connections_go_on(api, certificates):
    assert (await api.ask(CUSTOM))[0] == 200
    shutil.copy(certificates["client"], api.folder / "tls.crt")
    shutil.copy(certificates["client_key"], api.folder / "tls.key")

    await api.follower.follow()

    assert (await api.ask(CUSTOM))[0] == 200  # over the connection that is kept
    fresh = proxy_of(certificates)
    fresh.check_hostname = False
    _, writer = await asyncio.open_connection("localhost", api.server.port, ssl=fresh)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    assert certificate["subject"] == ((("commonName", "alice"),),)


async def test_certificates_that_cannot_be_used_change_nothing(world, api):
    (api.folder / "tls.crt").write_text("half written")

    with pytest.raises(Invalid, match="cannot use the certificate"):
        await api.follower.follow()

    assert (await api.ask(CUSTOM))[0] == 200


async def test_a_cluster_without_aggregation_is_told_of(world, scraper):
    del world.authentication["requestheader-client-ca-file"]

    with pytest.raises(Unavailable, match="names no authority of a front proxy"):
        await front_proxy.find(scraper.kube)


async def test_a_window_without_two_periods_is_refused(scraper, tmp_path):
    with pytest.raises(ValueError, match="must hold two periods"):
        Scraper(SETTINGS, scraper.kube, tmp_path, period_s=10, window_s=15)


async def test_pods_of_a_data_layer_that_is_not_configured_are_not_asked(world, scraper):
    world.add("a", "127.0.0.2", labels.selector("other", "kafka"))

    await counted(world, scraper)

    assert scraper.rates(scraper.pods(lambda _: True), "bearlake_requests_per_second") == {}
