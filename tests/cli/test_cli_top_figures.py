"""`bearlake top` without a server: pages of metrics, rates, and frames that fit any screen."""

from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.cli.top.frame import SPARKS, History, frame, short, sparkline
from bearlake.cli.top.metrics_page import MetricsPage, quantile
from bearlake.cli.top.rates import Prices, figures
from bearlake.cli.top.readings import Reading, ServerReading

PRICES = Prices(put=5.0, get=0.4)
HOSTILE = "evil\x1b[2J\nname"


def page(factor: float) -> MetricsPage:
    """A page whose counters have counted `factor` seconds."""
    return MetricsPage(
        f"""
# HELP bearlake_append_records_total Records.
# TYPE bearlake_append_records_total counter
bearlake_append_records_total {100 * factor}
bearlake_append_bytes_total {10_000 * factor}
bearlake_fetch_bytes_total {5_000 * factor}
bearlake_kafka_requests_total{{api="Produce"}} {7 * factor}
bearlake_kafka_requests_total{{api="Fetch"}} {3 * factor}
bearlake_rest_requests_total{{status="2xx"}} {1 * factor}
bearlake_log_commits_total {4 * factor}
process_cpu_seconds_total {0.5 * factor}
process_resident_memory_bytes 200000000
bearlake_kafka_open_connections 12
bearlake_objects_calls_total{{operation="put",outcome="ok"}} {4 * factor}
bearlake_objects_calls_total{{operation="put",outcome="unavailable"}} {1 * factor}
bearlake_objects_calls_total{{operation="read",outcome="ok"}} {10 * factor}
bearlake_append_seconds_bucket{{le="0.1"}} {50 * factor}
bearlake_append_seconds_bucket{{le="0.2"}} {100 * factor}
bearlake_append_seconds_bucket{{le="+Inf"}} {100 * factor}
not a sample
"""
    )


def reading(at_s: float, *, name: str = "one", epoch: int = 1, page_of: MetricsPage | None = None) -> Reading:
    server = {
        "node_id": 0,
        "epoch": epoch,
        "name": name,
        "zone": None,
        "endpoints": {},
        "is_draining": False,
        "heartbeat_age_ms": 3,
    }
    stream = {
        "id": "x",
        "name": name,
        "partition_count": 2,
        "record_count": int(1000 + 100 * at_s),
        "size_bytes": int(10_000 * at_s),
    }
    waiting = {"stream": name, "record_count": 250, "age_ms": 4_200}
    return Reading(
        at_s=at_s,
        time_ms=1_700_000_000_000,
        servers=[ServerReading(row=server, page=page_of or page(at_s))],
        streams=[stream],
        groups=[
            {"group": "small", "lag": 1, "partition_count": 1, "streams": [{"stream": name, "lag": 1}]},
            {"group": name, "lag": 77, "partition_count": 2, "streams": [{"stream": name, "lag": 77}]},
        ],
        backlog={
            "size_bytes": 9,
            "record_count": 250,
            "age_ms": 4_200,
            "quarantined_count": 1,
            "streams": [waiting],
        },
    )


def test_rates_latencies_lag_and_cost_come_from_two_readings() -> None:
    found = figures(reading(10), reading(20), PRICES)

    totals = found["totals"]
    assert (totals["append_records_per_s"], totals["append_bytes_per_s"]) == (100, 10_000)
    assert (totals["requests_per_s"], totals["commits_per_s"], totals["cpu_cores"]) == (11, 4, 0.5)
    assert totals["append_p99_ms"] == pytest.approx(198, abs=1)
    assert found["object_store"]["requests_per_s"] == {"put": 5, "read": 10, "size": 0, "list": 0, "delete": 0}
    assert found["object_store"]["cost_per_day"] == pytest.approx((5 * 0.005 + 10 * 0.0004) * 86_400)
    (stream,) = found["streams"]
    assert (stream["records_per_s"], stream["bytes_per_s"], stream["table_lag_records"]) == (100, 10_000, 250)
    assert stream["freshness_ms"] == 4_200
    assert [(group["group"], group["lag"]) for group in found["groups"]] == [("one", 77), ("small", 1)]
    assert found["compaction"]["quarantined_count"] == 1


def test_a_server_that_has_started_anew_counts_from_zero() -> None:
    found = figures(reading(10, page_of=page(1_000)), reading(20, page_of=page(2)), PRICES)

    assert found["totals"]["append_records_per_s"] == pytest.approx(20)


def test_a_new_server_and_a_new_stream_have_no_rates_yet() -> None:
    before = reading(10, epoch=1)
    after = reading(20, epoch=2)

    found = figures(Reading(**{**fields(before), "streams": []}), after, PRICES)

    assert found["servers"][0]["requests_per_s"] is None
    assert found["streams"][0]["records_per_s"] is None
    assert "-" in "\n".join(frame(found, History(), 100, 40))


def fields(found: Reading) -> dict[str, Any]:
    return {name: getattr(found, name) for name in Reading.__dataclass_fields__}


def test_a_server_without_metrics_is_shown_with_the_reason() -> None:
    silent = reading(20)
    silent = Reading(
        **{**fields(silent), "servers": [ServerReading(row=silent.servers[0].row, page=None, problem="no answer")]}
    )

    lines = frame(figures(reading(10), silent, PRICES), History(), 100, 40)

    assert any("does not answer: no answer" in line for line in lines)
    assert any("no metrics" in line for line in lines)


@given(width=st.integers(1, 250), height=st.integers(1, 60), count=st.integers(0, 80))
def test_frames_fit_the_screen_and_have_nothing_that_a_terminal_obeys(width: int, height: int, count: int) -> None:
    after = reading(20, name=HOSTILE)
    streams = [{**after.streams[0], "id": str(index), "name": f"{HOSTILE}{index}"} for index in range(count)]
    found = figures(reading(10, name=HOSTILE), Reading(**{**fields(after), "streams": streams}), PRICES)
    history = History()
    history.add(found)

    lines = [click.unstyle(line) for line in frame(found, history, width, height)]

    assert len(lines) <= max(height, 8)
    assert all(len(line) <= max(width, 40) and line.isprintable() for line in lines)


def test_a_high_screen_shows_all_rows_and_a_low_one_says_how_many_it_hides() -> None:
    after = reading(20)
    streams = [{**after.streams[0], "id": str(index), "name": f"stream-{index:02}"} for index in range(30)]
    found = figures(reading(10), Reading(**{**fields(after), "streams": streams}), PRICES)

    high = frame(found, History(), 120, 1_000)
    low = frame(found, History(), 120, 24)

    assert sum("stream-" in line and "GROUP" not in line for line in high) >= 30
    assert any("more" in line and line.startswith("…") for line in low)
    assert len(low) == 24


def test_sparklines_show_the_newest_values() -> None:
    assert sparkline([9, 0, 1, 2, 4], 4) == SPARKS[0] + SPARKS[2] + SPARKS[4] + SPARKS[7]
    assert sparkline([0, 0], 5) == SPARKS[0] * 2
    assert sparkline([], 5) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (1_234, "1.23 kB"), (5_000_000, "5 MB"), (2.5, "2.5 B")],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert short(value, "B") == text


def test_quantiles_are_interpolated_and_absent_without_observations() -> None:
    after = {0.1: 90.0, 0.2: 100.0, float("inf"): 100.0}

    assert quantile(0.5, {}, after) == pytest.approx(0.1 * 50 / 90)
    assert quantile(0.95, {}, after) == pytest.approx(0.15)
    assert quantile(0.5, after, after) is None
    assert quantile(0.99, {}, {0.1: 0.0, float("inf"): 5.0}) == pytest.approx(0.1)


@given(st.text())
def test_any_text_is_a_page(text: str) -> None:
    MetricsPage(text).total("x")


def test_labels_are_unescaped() -> None:
    found = MetricsPage('x_total{a="1 \\"quoted\\" \\\\ \\n",b="}"} 3\nx_total{a="2"} nan_\n')

    assert found.by_label("x_total", "a") == {'1 "quoted" \\ \n': 3.0}
