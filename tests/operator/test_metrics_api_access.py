"""Authentication, discovery and errors of the metrics API, and changing certificates."""

import asyncio
import shutil
import ssl

import aiohttp
import pytest

from bearlake_operator.errors import Invalid, Unavailable
from bearlake_operator.metrics_api import front_proxy
from fixtures.metrics_api_scene import AUTOSCALER, BACKLOG, CUSTOM, EXTERNAL, KAFKA, proxy_of


async def test_both_forms_of_discovery_list_the_metrics(api):
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
    assert [subresource["subresource"] for subresource in pods["subresources"]] == [
        "bearlake_requests_per_second",
        "bearlake_bytes_per_second",
    ]
    assert external["resource"] == "bearlake_compaction_backlog_bytes"


async def test_openapi_documents_exist_and_are_empty(api):
    assert (await api.ask("/openapi/v2"))[1]["paths"] == {}
    assert (await api.ask("/openapi/v3"))[1] == {"paths": {}}


@pytest.mark.parametrize(
    ("path", "status", "reason", "words"),
    [
        (KAFKA.replace("lake/", "other/"), 404, "NotFound", "namespace other"),
        (KAFKA.replace("requests", "smiles"), 404, "NotFound", "bearlake_smiles_per_second"),
        (KAFKA.replace("*", "nobody"), 404, "NotFound", "nobody"),
        (f"{KAFKA}?labelSelector=a%3Eb", 400, "BadRequest", "label selector 'a>b'"),
        (f"{KAFKA}?metricLabelSelector=a%3Db", 400, "BadRequest", "metricLabelSelector"),
        (f"{BACKLOG}s", 404, "NotFound", "its metrics are bearlake_compaction_backlog_bytes"),
        ("/api/v1", 404, "NotFound", "Not Found"),
    ],
)
async def test_errors_are_kubernetes_status_objects(api, path, status, reason, words):
    found_status, found = await api.ask(path)

    assert (found_status, found["code"], found["kind"], found["status"]) == (status, status, "Status", "Failure")
    assert found["reason"] == reason
    assert words in found["message"]


async def test_only_authenticated_users_read_values(api):
    for groups in ({}, {"X-Remote-Group": "system:unauthenticated"}):
        status, found = await api.ask(KAFKA, {"X-Remote-User": "system:anonymous"} | groups)
        assert (status, found["reason"]) == (403, "Forbidden")

    status, found = await api.ask(KAFKA, {})
    assert (status, found["reason"]) == (401, "Unauthorized")
    assert "user" in found["message"]


async def test_a_certificate_with_another_name_is_rejected(api, certificates):
    status, found = await api.ask(KAFKA, trust=proxy_of(certificates, "server"))

    assert (status, found["reason"]) == (401, "Unauthorized")
    assert "front proxy" in found["message"]


async def test_a_connection_without_client_certificate_fails(api, certificates):
    with pytest.raises(aiohttp.ClientError):
        await api.ask(KAFKA, trust=ssl.create_default_context(cafile=certificates["authority"]))


async def test_without_allowed_names_any_certificate_of_the_ca_is_accepted(fake_cluster, scraper, api, certificates):
    fake_cluster.authentication["requestheader-allowed-names"] = "[]"
    await api.reloader.reload()

    status, _ = await api.ask(CUSTOM, trust=proxy_of(certificates, "server"))

    assert status == 200


async def test_new_certificates_are_served_and_open_connections_continue(api, certificates):
    assert (await api.ask(CUSTOM))[0] == 200
    shutil.copy(certificates["client"], api.folder / "tls.crt")
    shutil.copy(certificates["client_key"], api.folder / "tls.key")

    await api.reloader.reload()

    assert (await api.ask(CUSTOM))[0] == 200  # over the open connection
    fresh = proxy_of(certificates)
    fresh.check_hostname = False
    _, writer = await asyncio.open_connection("localhost", api.server.port, ssl=fresh)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    await writer.wait_closed()
    assert certificate["subject"] == ((("commonName", "alice"),),)


async def test_an_invalid_certificate_keeps_the_current_one(fake_cluster, api):
    (api.folder / "tls.crt").write_text("half written")

    with pytest.raises(Invalid, match="certificate"):
        await api.reloader.reload()

    assert (await api.ask(CUSTOM))[0] == 200


async def test_a_cluster_without_aggregation_layer_is_reported(fake_cluster, scraper):
    del fake_cluster.authentication["requestheader-client-ca-file"]

    with pytest.raises(Unavailable, match="requestheader-client-ca-file"):
        await front_proxy.load(scraper.kube)


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("?labelSelector=" + "a%3Db," * 20_000, {}),
        ("", {f"X-Filler-{at}": "x" * 1_000 for at in range(500)}),
        ("?labelSelector=" + "a%20in%20(" * 500, {}),
        ("?labelSelector=" + "(" * 2_000, {}),
    ],
)
async def test_huge_or_nested_requests_are_refused_and_others_are_answered(api, query, headers):
    try:
        status, _ = await api.ask(KAFKA + query, AUTOSCALER | headers)
    except (aiohttp.ClientError, ValueError):
        status = 400  # refused before it was read, without a Status object

    assert status in (400, 431)
    assert (await api.ask(KAFKA, AUTOSCALER))[0] == 200
