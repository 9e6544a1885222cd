"""Rates of pods' counters, and label selectors."""

from datetime import UTC, datetime, timedelta

import pytest

from bearlake_operator.errors import Invalid
from bearlake_operator.manifests.scaling import BYTES_METRIC, REQUESTS_METRIC
from bearlake_operator.metrics_api import rates, responses, selectors
from bearlake_operator.metrics_api.rates import RateTracker, Sample
from fixtures.kubernetes import REPOSITORY

START = datetime(2026, 1, 1, tzinfo=UTC)

TEXT = """\
# HELP bearlake_kafka_requests_total Requests by API.
# TYPE bearlake_kafka_requests_total counter
bearlake_kafka_requests_total{api="Produce"} 100.0
bearlake_kafka_requests_total{api="Fetch"} 20.0
bearlake_kafka_request_seconds_bucket{api="Fetch",le="+Inf"} 7.0
bearlake_kafka_received_bytes_total 1e+06
bearlake_kafka_sent_bytes_total 500.0
bearlake_append_bytes_total 900.0
"""


def sample(at_s, requests, **more):
    return Sample(at_s=at_s, time=START + timedelta(seconds=at_s), counts={REQUESTS_METRIC: requests, **more})


def with_samples(*samples, window_s=30):
    found = RateTracker(window_s=window_s, age_max_s=20)
    for sample in samples:
        found.record("a", sample)
    return found


def test_counters_are_summed_over_their_labels():
    assert rates.counts("kafka", TEXT) == {REQUESTS_METRIC: 120.0, BYTES_METRIC: 1_000_500.0}


def test_missing_counters_are_zero():
    assert rates.counts("grpc", "") == {REQUESTS_METRIC: 0.0, BYTES_METRIC: 0.0}


def test_invalid_prometheus_text_is_rejected():
    with pytest.raises(Invalid, match="text format"):
        rates.counts("kafka", "bearlake_kafka_requests_total{{ nothing")


def test_servers_declare_every_scraped_counter():
    files = ("metrics.py", "catalog_metrics.py")
    declared = "".join((REPOSITORY / "servers/bearlake/telemetry" / name).read_text() for name in files)

    for metrics in rates.COUNTERS.values():
        for name in (name for names in metrics.values() for name in names):
            assert f'"{name}"' in declared


def test_a_rate_needs_two_samples():
    found = with_samples(sample(0, 10))
    assert found.rate("a", REQUESTS_METRIC, 1) is None

    found.record("a", sample(10, 40))

    rate = found.rate("a", REQUESTS_METRIC, 11)
    assert (rate.value, rate.window_s, rate.time) == (3.0, 10, START + timedelta(seconds=10))


def test_a_rate_covers_the_window():
    found = with_samples(*(sample(at_s, at_s * at_s) for at_s in range(0, 101, 10)))

    rate = found.rate("a", REQUESTS_METRIC, 101)

    assert (rate.value, rate.window_s) == ((100**2 - 70**2) / 30, 30)


def test_old_samples_give_no_rate():
    found = with_samples(sample(0, 10), sample(10, 40))

    assert found.rate("a", REQUESTS_METRIC, 30) is not None
    assert found.rate("a", REQUESTS_METRIC, 31) is None


def test_a_restarted_process_starts_a_new_rate():
    found = with_samples(sample(0, 10), sample(10, 40), sample(20, 5))
    assert found.rate("a", REQUESTS_METRIC, 20) is None

    found.record("a", sample(30, 15))

    assert found.rate("a", REQUESTS_METRIC, 30).value == 1.0


def test_deleted_pods_are_dropped_and_samples_are_bounded():
    found = with_samples(*(sample(at_s, at_s) for at_s in range(1000)))
    found.record("b", sample(0, 1))

    found.retain({"b"})

    assert len(found) == 1
    assert found.rate("a", REQUESTS_METRIC, 1000) is None


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (12.0, "12"), (1.5, "1500m"), (0.0004, "0"), (1e12, "1000000000000"), (2 / 3, "667m")]
)
def test_numbers_are_rendered_as_quantities(value, text):
    assert responses.quantity(value) == text


LABELS = {"app": "bearlake", "bearlake.dev/data-layer": "default", "zone": "b"}


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("", True),
        ("app=bearlake", True),
        ("app==bearlake,bearlake.dev/data-layer=default", True),
        ("app=bearlake,zone=c", False),
        ("zone!=c", True),
        ("zone != b", False),
        ("other!=b", True),
        ("zone in (a, b)", True),
        ("app=bearlake,zone in (a,c)", False),
        ("zone notin (a,c),app", True),
        ("other notin (a)", True),
        ("other in (a)", False),
        ("other", False),
        ("!other", True),
        ("!zone", False),
        ("app=", False),
    ],
)
def test_label_selectors_match_as_in_kubernetes(text, is_selected):
    assert selectors.parse(text)(LABELS) is is_selected


@pytest.mark.parametrize("text", ["a=b=c", ",", "a in b", "a>1", "=b", "a in (b", "a,,b"])
def test_an_invalid_selector_is_rejected(text):
    with pytest.raises(Invalid, match="unable to parse the label selector"):
        selectors.parse(text)
