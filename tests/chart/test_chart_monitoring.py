"""Alerts and dashboards query only metrics and labels that servers, workers and the operator have, and in ways that suit the types."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client.metrics_core import Metric

from bearlake.telemetry import exposition as of_servers
from bearlake_operator import metrics as of_operator
from fixtures.chart import CHART, objects, render

FOLDER = CHART / "files/monitoring"
DASHBOARDS = sorted(FOLDER.glob("*.json"))
SCRAPE_LABELS = {"namespace", "pod", "container", "endpoint", "job", "instance"}
RELABELED = {"data_layer", "tier"}
"""Labels that the chart's PodMonitor gives to servers and workers."""
OF_COUNTERS = {"rate", "increase"}


@dataclass(frozen=True)
class Known:
    """A time series as Prometheus has it."""

    labels: frozenset[str]
    is_counter: bool


@dataclass
class Asked:
    """The labels and values of one metric that an expression uses."""

    name: str
    labels: set[str]
    function: str = ""


@dataclass
class Expression:
    """The metrics that one expression uses; `grouped` are the labels by which it aggregates or matches."""

    asked: list[Asked] = field(default_factory=list)
    grouped: set[str] = field(default_factory=set)


def series(metric: Metric, label_names: set[str], labels: set[str]) -> Iterator[tuple[str, Known]]:
    """The time series of a metric. A label that the scrape has too is renamed by Prometheus."""
    renamed = {f"exported_{label}" if label in SCRAPE_LABELS else label for label in label_names}
    found = frozenset(renamed | labels)
    if metric.type == "histogram":
        yield f"{metric.name}_bucket", Known(found | {"le"}, is_counter=True)
        yield f"{metric.name}_sum", Known(found, is_counter=True)
        yield f"{metric.name}_count", Known(found, is_counter=True)
    elif metric.type == "counter":
        yield f"{metric.name}_total", Known(found, is_counter=True)
    else:
        yield metric.name, Known(found, is_counter=False)


def known() -> dict[str, Known]:
    found = {"up": Known(frozenset(SCRAPE_LABELS | RELABELED), is_counter=False)}
    for metric in of_servers.REGISTRY.collect():
        found |= dict(series(metric, set(getattr(metric, "_labelnames", ())), SCRAPE_LABELS | RELABELED))
    for collector in vars(of_operator).values():
        if hasattr(collector, "_labelnames"):
            (metric,) = collector.describe()
            found |= dict(series(metric, set(collector._labelnames), SCRAPE_LABELS))  # noqa: SLF001 - no public attribute of prometheus_client has the label names
    return found


def parsed(text: str) -> Expression:
    """Parse an expression. Grafana's variables are replaced by values as Grafana does."""
    text = text.replace("$__rate_interval", "5m").replace("$__range", "1h")
    found = Expression()

    def visit(part: Any, function: str) -> None:
        match part:
            case promql.VectorSelector():
                labels = {matcher.name for matcher in part.matchers.matchers}
                found.asked.append(Asked(part.name, labels, function))
            case promql.MatrixSelector():
                visit(part.vector_selector, function)
            case promql.Call():
                for argument in part.args:
                    visit(argument, part.func.name)
            case promql.AggregateExpr():
                found.grouped.update(part.modifier.labels if part.modifier else ())
                visit(part.expr, "")
            case promql.BinaryExpr():
                matching = part.modifier.matching if part.modifier else None
                found.grouped.update(matching.labels if matching else ())
                visit(part.lhs, "")
                visit(part.rhs, "")
            case promql.ParenExpr() | promql.UnaryExpr():
                visit(part.expr, function)
            case promql.NumberLiteral() | promql.StringLiteral():
                pass
            case _:
                pytest.fail(f"not looked into: {type(part).__name__} in {text}")

    visit(promql.parse(text), "")
    return found


def problems(text: str) -> list[str]:
    """The faults of the expression."""
    series, expression = known(), parsed(text)
    found = [f"no metric: {selector.name}" for selector in expression.asked if selector.name not in series]
    asked = [(selector, series[selector.name]) for selector in expression.asked if selector.name in series]
    for selector, there in asked:
        found += [f"no label: {selector.name}{{{label}}}" for label in selector.labels - there.labels]
        if there.is_counter != (selector.function in OF_COUNTERS):
            found.append(f"{selector.name} is {'' if there.is_counter else 'not '}a counter")
        found += [f"no label: {label} of {selector.name}" for label in expression.grouped - there.labels]
    return found


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    return {rule["alert"]: rule for rule in rules}


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in json.loads(path.read_text())["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("name", list(alerts()))
def test_alerts_query_only_existing_metrics(name: str) -> None:
    rule = alerts()[name]

    assert problems(rule["expr"]) == []
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.parametrize("name", list(alerts()))
def test_alerts_use_labels_that_their_expression_keeps(name: str) -> None:
    rule = alerts()[name]
    expression = parsed(rule["expr"])
    kept = expression.grouped or known()[expression.asked[0].name].labels

    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))

    assert named - kept == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_query_only_existing_metrics(path: Path) -> None:
    found = panels(path)
    expressions = [target["expr"] for panel in found for target in panel["targets"]]

    assert len(expressions) >= 10
    assert {text: wrong for text in expressions if (wrong := problems(text))} == {}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_define_their_variables(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    text = path.read_text()

    used = set(re.findall(r"\$\{?([a-z]\w*)", text))
    assert used == set(variables)
    for variable in variables.values():
        if variable["type"] == "query":
            metric = re.match(r"label_values\((\w+)", variable["query"]["query"])
            assert metric is not None
            assert variable["name"] in known()[metric[1]].labels
    assert dashboard["uid"] == path.stem


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    dashboard = json.loads(path.read_text())
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bearlake_no_such_thing", "no metric: bearlake_no_such_thing"),
        ('rate(bearlake_kafka_requests_total{topic="x"}[5m])', "no label: bearlake_kafka_requests_total{topic}"),
        (
            "sum by (error) (rate(bearlake_kafka_requests_total[5m]))",
            "no label: error of bearlake_kafka_requests_total",
        ),
        ("bearlake_kafka_requests_total > 1", "bearlake_kafka_requests_total is a counter"),
        ("rate(bearlake_append_open_puts[5m])", "bearlake_append_open_puts is not a counter"),
        (
            "sum by (job) (rate(bearlake_sweep_errors_total{kind='x'}[5m]))",
            "no label: bearlake_sweep_errors_total{kind}",
        ),
    ],
)
def test_wrong_expressions_are_found(text: str, problem: str) -> None:
    assert problems(text) == [problem]


def test_the_chart_has_all_alerts_and_dashboards(helm: str) -> None:
    wanted = (
        "quickstart.enabled=true,monitoring.prometheusRule=true,monitoring.dashboards=true,monitoring.podMonitor=true"
    )
    labels = "monitoring.labels.release=prometheus,monitoring.dashboardLabels.shown=here"

    found = objects(render(helm, "--set", wanted, "--set-string", labels).stdout)

    (rule,) = [resource for resource in found if resource["kind"] == "PrometheusRule"]
    assert rule["spec"] == yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    shown = [
        resource
        for resource in found
        if resource["kind"] == "ConfigMap" and resource["metadata"]["labels"].get("shown") == "here"
    ]
    assert {name: json.loads(text) for config_map in shown for name, text in config_map["data"].items()} == {
        path.name: json.loads(path.read_text()) for path in DASHBOARDS
    }
    monitors = [resource for resource in found if resource["kind"] == "PodMonitor"]
    assert [resource["metadata"]["labels"]["release"] for resource in (rule, *monitors)] == ["prometheus"] * (
        1 + len(monitors)
    )
    servers = monitors[0]["spec"]["podMetricsEndpoints"][0]
    assert {relabeling["targetLabel"] for relabeling in servers["relabelings"]} == RELABELED
