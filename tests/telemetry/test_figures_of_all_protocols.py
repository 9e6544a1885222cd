"""Figures about clients leave no protocol out: on the console, in `bearlake top` and on the dashboard of servers."""

import json
import re
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from bearlake.cli.top import rates
from bearlake.serving import console
from bearlake.telemetry.exposition import REGISTRY
from fixtures.chart import CHART

READS_METRICS = Path(console.__file__).parent / "static/metrics.js"
NOT_OF_CLIENTS = {"bearlake_admin_requests_total", "bearlake_console_requests_total"}
NAME = re.compile(r"bearlake_[a-z_0-9]+")


def declared() -> set[str]:
    return {sample for metric in REGISTRY.collect() for sample in sampled(metric.name, metric.type)}


def sampled(name: str, kind: str) -> Collection[str]:
    return {
        "histogram": (name, f"{name}_bucket", f"{name}_count"),
        "counter": (f"{name}_total",),
    }.get(kind, (name,))


def requests_of_clients() -> set[str]:
    pattern = re.compile(r"bearlake_[a-z]+(_http)?_(requests|commands|calls)_total")
    found = {name for name in declared() if pattern.fullmatch(name)}
    return found - NOT_OF_CLIENTS - {"bearlake_objects_calls_total"}


def of_console() -> str:
    return READS_METRICS.read_text()


def of_top() -> str:
    return Path(rates.__file__).read_text()


def of_dashboard(title: str = "Requests") -> str:
    dashboard = json.loads((CHART / "files/monitoring/bearlake-servers.json").read_text())
    (panel,) = (panel for panel in dashboard["panels"] if panel["title"] == title)
    return json.dumps(panel)


def connections_of_dashboard() -> str:
    return of_dashboard("Open connections and calls")


@pytest.mark.parametrize("text_of", [of_console, of_top, of_dashboard])
def test_requests_are_those_of_all_protocols(text_of: Callable[[], str]) -> None:
    protocols = {name.split("_")[1] for name in requests_of_clients()}

    assert protocols == {"kafka", "pulsar", "rest", "registry", "catalog", "grpc"}
    assert requests_of_clients() - set(NAME.findall(text_of())) == set()


@pytest.mark.parametrize("text_of", [of_console, of_top, connections_of_dashboard])
def test_connections_are_those_of_all_protocols(text_of: Callable[[], str]) -> None:
    gauges = {name for name in declared() if name.endswith("_open_connections")}

    assert {name.split("_")[1] for name in gauges} == {"kafka", "pulsar", "rest", "registry", "catalog", "grpc"}
    assert gauges - set(NAME.findall(text_of())) == set()


@pytest.mark.parametrize("text_of", [of_console, of_top])
def test_figures_read_metrics_that_servers_have(text_of: Callable[[], str]) -> None:
    assert set(NAME.findall(text_of())) - declared() == set()


@pytest.mark.parametrize("text_of", [of_console, of_top])
def test_the_time_of_appends_is_not_that_of_one_protocol(text_of: Callable[[], str]) -> None:
    assert re.search(r'"bearlake_append_seconds", 0\.99\)', text_of())
    assert "bearlake_kafka_request_seconds" not in text_of()
