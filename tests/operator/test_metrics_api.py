"""The values that the metrics API serves over TLS to the API server, with pods that serve HTTP."""

import pytest

from bearlake_operator.manifests import labels
from bearlake_operator.metrics_api.scraper import Scraper
from fixtures.metrics_api_scene import BACKLOG, CUSTOM, KAFKA, SETTINGS, counted, kafka, worker


async def test_every_pod_has_its_own_rate(fake_cluster, scraper, api):
    kafka(fake_cluster, "a", "127.0.0.2")
    kafka(fake_cluster, "b", "127.0.0.3")
    await counted(fake_cluster, scraper, a=1000)

    status, found = await api.ask(f"{KAFKA}?labelSelector=app.kubernetes.io%2Fcomponent%3Dkafka")

    assert (status, found["kind"], found["apiVersion"]) == (200, "MetricValueList", "custom.metrics.k8s.io/v1beta2")
    busy, idle = found["items"]
    assert busy["describedObject"] == {"kind": "Pod", "namespace": "lake", "name": "a", "apiVersion": "v1"}
    assert busy["metric"] == {"name": "bearlake_requests_per_second", "selector": None}
    assert float(busy["value"].removesuffix("m")) > 0
    assert busy["timestamp"].endswith("Z")
    assert (idle["describedObject"]["name"], idle["value"]) == ("b", "0")


async def test_a_single_pod_and_a_selector_return_only_matching_pods(fake_cluster, scraper, api):
    kafka(fake_cluster, "a", "127.0.0.2")
    fake_cluster.add("r", "127.0.0.3", labels.selector("default", "rest"))
    await counted(fake_cluster, scraper)

    _, answer = await api.ask(f"{CUSTOM}/namespaces/lake/pods/r/bearlake_bytes_per_second")
    _, selected = await api.ask(f"{KAFKA}?labelSelector=app.kubernetes.io%2Fcomponent+in+(rest)")
    _, nothing = await api.ask(f"{KAFKA}?labelSelector=app.kubernetes.io%2Fcomponent%3Dgrpc")

    assert [item["describedObject"]["name"] for item in answer["items"]] == ["r"]
    assert [item["describedObject"]["name"] for item in selected["items"]] == ["r"]
    assert nothing["items"] == []


async def test_a_pod_that_cannot_be_scraped_is_omitted_rather_than_zero(fake_cluster, scraper, api):
    kafka(fake_cluster, "a", "127.0.0.2")
    kafka(fake_cluster, "b", "127.0.0.3").answer = 500
    await counted(fake_cluster, scraper)

    _, found = await api.ask(KAFKA)

    assert [item["describedObject"]["name"] for item in found["items"]] == ["a"]


async def test_without_any_scraped_pod_the_response_is_503(fake_cluster, scraper, api):
    kafka(fake_cluster, "a", "127.0.0.2").answer = 503
    worker(fake_cluster, "w", "127.0.0.3").answer = 503
    await counted(fake_cluster, scraper)

    status, found = await api.ask(KAFKA)
    assert (status, found["kind"], found["reason"]) == (503, "Status", "ServiceUnavailable")
    assert "bearlake_requests_per_second" in found["message"]

    status, found = await api.ask(BACKLOG)
    assert (status, found["reason"]) == (503, "ServiceUnavailable")


async def test_pending_and_finished_pods_are_not_scraped(fake_cluster, scraper, api):
    kafka(fake_cluster, "a", "127.0.0.2", phase="Pending")
    kafka(fake_cluster, "b", "127.0.0.3")
    fake_cluster.pods["b"].status = {"phase": "Succeeded"}
    await counted(fake_cluster, scraper)

    _, found = await api.ask(KAFKA)

    assert found["items"] == []


async def test_a_selector_returns_the_backlog_of_its_compactor(fake_cluster, scraper, api):
    worker(fake_cluster, "w", "127.0.0.2").count = 5000
    worker(fake_cluster, "x", "127.0.0.3", "weekly").count = 70
    await scraper.scrape()

    _, answer = await api.ask(
        f"{BACKLOG}?labelSelector=bearlake.dev%2Fcompactor%3Dnightly,bearlake.dev%2Fdata-layer%3Ddefault"
    )
    _, both = await api.ask(BACKLOG)
    _, none = await api.ask(f"{BACKLOG}?labelSelector=bearlake.dev%2Fcompactor%3Dyearly")

    (item,) = answer["items"]
    assert (answer["kind"], answer["apiVersion"]) == ("ExternalMetricValueList", "external.metrics.k8s.io/v1beta1")
    assert (item["metricName"], item["value"]) == ("bearlake_compaction_backlog_bytes", "5000")
    assert item["metricLabels"] == {"bearlake.dev/compactor": "nightly", "bearlake.dev/data-layer": "default"}
    assert [item["value"] for item in both["items"]] == ["5000", "70"]
    assert none["items"] == []


async def test_the_backlog_covers_only_the_streams_of_the_compactor(fake_cluster, scraper):
    worker(fake_cluster, "w", "127.0.0.2").annotations = {"bearlake.dev/streams": '["orders-*", "a&b"]'}
    worker(fake_cluster, "x", "127.0.0.3", "weekly").annotations = {"bearlake.dev/streams": "by hand"}

    await scraper.scrape()

    assert sorted(fake_cluster.asked) == [[], ["orders-*", "a&b"]]


async def test_the_backlog_comes_from_any_ready_worker(fake_cluster, scraper, api):
    worker(fake_cluster, "v", "127.0.0.2", is_ready=False).count = 1
    worker(fake_cluster, "w", "127.0.0.3").answer = 500
    worker(fake_cluster, "x", "127.0.0.4").count = 42
    await scraper.scrape()

    _, found = await api.ask(BACKLOG)

    assert [item["value"] for item in found["items"]] == ["42"]


async def test_a_rotated_token_is_used_at_once_and_the_previous_one_still_works(fake_cluster, scraper, api):
    worker(fake_cluster, "w", "127.0.0.2").count = 1
    await scraper.scrape()
    scraper.token_file.write_text("second")
    fake_cluster.pods["w"].count = 2
    await scraper.scrape()
    _, before = await api.ask(BACKLOG)
    fake_cluster.token = "second"
    fake_cluster.pods["w"].count = 3

    await scraper.scrape()

    _, after = await api.ask(BACKLOG)
    assert (before["items"][0]["value"], after["items"][0]["value"]) == ("2", "3")


async def test_a_window_shorter_than_two_periods_is_rejected(scraper, tmp_path):
    with pytest.raises(ValueError, match="two periods"):
        Scraper(SETTINGS, scraper.kube, tmp_path, period_s=10, window_s=15)


async def test_pods_of_an_unknown_data_layer_are_not_scraped(fake_cluster, scraper):
    fake_cluster.add("a", "127.0.0.2", labels.selector("other", "kafka"))

    await counted(fake_cluster, scraper)

    assert scraper.rates(scraper.pods(lambda _: True), "bearlake_requests_per_second") == {}


@pytest.mark.parametrize("token", [b"two\nlines", b"\xff"])
async def test_a_token_that_cannot_be_sent_does_not_stop_the_scraper(fake_cluster, scraper, token):
    """Other data layers have other tokens."""
    kafka(fake_cluster, "a", "127.0.0.2")
    scraper.token_file.write_bytes(token)

    for _ in range(2):
        await scraper.scrape()

    assert scraper.rates(scraper.pods(lambda _: True), "bearlake_requests_per_second") == {}
    assert scraper.has_rates.is_set()
