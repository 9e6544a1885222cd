"""Medians, ratios and tables; parsing of other programs' output."""

import pytest
from bench.bearlake_server import sum_of
from bench.cases import BY_NAME, CASES, EXTRA
from bench.figures import Goal, Run
from bench.loading import java_figures
from bench.report import OURS, PEER, Result

from bench import configured_server, figures, report


def _run(mb_per_s: float, **changes: object) -> Run:
    figures_of_run: dict[str, object] = {
        "seconds": 2.0, "requests": 1000, "payload_bytes": int(mb_per_s * 2e6), "mb_per_s": mb_per_s, "p50_ms": 1.0,
        "p99_ms": 4.0, "p999_ms": 8.0, "client_cpu_s": 0.5, "server_cpu_s": 1.0, "cpu_payload_bytes": 500_000_000,
        "cpu_requests": 1000, "rss_bytes": 10**8, "other_cores": 0.0,
    }  # fmt: skip
    return Run(**figures_of_run | changes)


def test_a_runs_derived_figures_have_the_units_of_their_names() -> None:
    run = _run(250)

    assert run.requests_per_s == 500
    assert run.cpu_s_per_gb == 2.0
    assert run.cpu_us_per_request == 1000


def test_a_figure_is_the_median_and_its_spread_the_extremes() -> None:
    runs = [_run(300), _run(100), _run(110)]

    assert figures.of_runs(runs, lambda run: run.mb_per_s) == 110
    assert figures.spread(runs, lambda run: run.mb_per_s) == (100, 300)


def test_a_figure_that_no_run_has_is_none() -> None:
    assert figures.of_runs([_run(1)], lambda run: run.objects) is None
    assert figures.of_runs([], lambda run: run.mb_per_s) is None


def test_a_ratio_is_that_of_the_medians() -> None:
    ours = [_run(100, server_cpu_s=0.5), _run(120, server_cpu_s=0.5), _run(900, server_cpu_s=0.5)]
    peers = [_run(60), _run(60), _run(1)]

    found = figures.ratios(ours, peers)

    assert found == figures.Ratios(throughput=2.0, cpu=0.5, p50=1.0, p99=1.0)


def test_without_runs_of_both_sides_there_is_no_ratio() -> None:
    assert figures.ratios([_run(1)], []) is None
    assert figures.ratios([], [_run(1)]) is None


def test_consumers_have_no_latency_and_no_ratio_of_it() -> None:
    runs = [_run(100, p50_ms=None, p99_ms=None)]

    found = figures.ratios(runs, runs)

    assert found == figures.Ratios(throughput=1.0, cpu=1.0, p50=None, p99=None)
    assert "p50         p99" in report.line(OURS, runs[0])


@pytest.mark.parametrize(
    ("goal", "missed"),
    [
        (Goal(throughput_ratio_min=1.0, cpu_ratio_max=0.6), []),
        (Goal(throughput_ratio_min=2.5), ["throughput"]),
        (Goal(cpu_ratio_max=0.4), ["CPU"]),
        (Goal(p50_ratio_max=1.3), ["p50"]),
        (Goal(), []),
    ],
)
def test_a_missed_goal_is_named(goal: Goal, missed: list[str]) -> None:
    found = figures.Ratios(throughput=2.0, cpu=0.5, p50=1.5, p99=1.0)

    assert figures.missed(goal, found) == missed


def test_the_table_names_figures_ratios_goals_and_failures() -> None:
    good = Result(
        case=BY_NAME["produce-64k"], runs={PEER: [_run(200)], OURS: [_run(300, server_cpu_s=0.5, objects=4.0)]}
    )
    bad = Result(case=BY_NAME["fetch-1m"], failures={OURS: "connection 0: closed by the server"})

    text = report.text({"cores": "2"}, "1 repetition.", [good, bad])

    assert "| produce 64 KiB" in text
    assert "200 [200-200]" in text
    assert "reached" in text
    assert "- fetch-1m, bearlake: connection 0: closed by the server" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {len(report.HEADS) + 1, len(report.RATIO_HEADS) + 1}


def test_a_metric_is_summed_over_its_labels_and_not_mixed_with_longer_names() -> None:
    page = '# HELP a_total x\n# TYPE a_total counter\na_total{k="1"} 2.0\na_total{k="2"} 3.5\na_total_more 100.0\n'

    assert sum_of(page, "a_total") == 5.5
    assert sum_of(page, "b_total") is None


def test_the_last_summary_line_of_the_java_producer_counts() -> None:
    line = (
        "{} records sent, {} records/sec ({} MB/sec), 11.2 ms avg latency, 90.00 ms max latency, "
        "{} ms 50th, 20 ms 95th, 31 ms 99th, 40 ms 99.9th"
    )
    output = line.format(1000, "100.5", "0.10", 9) + ".\n" + line.format(800, "200000.0", "195.31", 6) + ".\n"

    assert java_figures(output) == {"records": 800, "rate": 200000, "mib": 195.31, "p50": 6, "p99": 31, "p999": 40}
    assert java_figures("no such line") is None


def test_dotted_settings_become_sections() -> None:
    assert configured_server.nested({"a.b.c": 1, "a.d": 2, "e": 3}) == {"a": {"b": {"c": 1}, "d": 2}, "e": 3}


def test_every_case_has_a_name_of_its_own() -> None:
    assert len(BY_NAME) == len(CASES) + len(EXTRA)
