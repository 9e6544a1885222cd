"""What the metrics API answers autoscalers, asked over TLS as the API server asks, with pods that answer over HTTP."""

import pytest

from bearlake_operator.manifests import labels
from bearlake_operator.metrics_api.scraper import Scraper
from fixtures.metrics_api_scene import BACKLOG, CUSTOM, KAFKA, SETTINGS, counted, kafka, worker


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
    assert "bearlake_requests_per_second" in found["message"]

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
    await scraper.scrape()

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

    await scraper.scrape()

    assert sorted(world.asked) == [[], ["orders-*", "a&b"]]


async def test_any_worker_tells_the_backlog_and_only_ready_ones_are_asked(world, scraper, api):
    worker(world, "v", "127.0.0.2", is_ready=False).count = 1
    worker(world, "w", "127.0.0.3").answer = 500
    worker(world, "x", "127.0.0.4").count = 42
    await scraper.scrape()

    _, found = await api.ask(BACKLOG)

    assert [item["value"] for item in found["items"]] == ["42"]


async def test_a_rotated_token_counts_at_once_and_the_one_before_still_does(world, scraper, api):
    worker(world, "w", "127.0.0.2").count = 1
    await scraper.scrape()
    scraper.token_file.write_text("second")
    world.pods["w"].count = 2
    await scraper.scrape()
    _, before = await api.ask(BACKLOG)
    world.token = "second"
    world.pods["w"].count = 3

    await scraper.scrape()

    _, after = await api.ask(BACKLOG)
    assert (before["items"][0]["value"], after["items"][0]["value"]) == ("2", "3")


async def test_a_window_without_two_periods_is_refused(scraper, tmp_path):
    with pytest.raises(ValueError, match="two periods"):
        Scraper(SETTINGS, scraper.kube, tmp_path, period_s=10, window_s=15)


async def test_pods_of_a_data_layer_that_is_not_configured_are_not_asked(world, scraper):
    world.add("a", "127.0.0.2", labels.selector("other", "kafka"))

    await counted(world, scraper)

    assert scraper.rates(scraper.pods(lambda _: True), "bearlake_requests_per_second") == {}
