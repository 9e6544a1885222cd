"""The rules of metric names and labels, and what a scrape looks like."""

import re
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bearlake.telemetry import declaring, exposition, metrics
from bearlake.telemetry.exposition import registry_of
from bearlake.telemetry.meters import Counter, Families, Family, Gauge, Histogram

PARTS = (
    "server",
    "disk",
    "admin",
    "console",
    "kafka",
    "objects",
    "log",
    "append",
    "fetch",
    "index",
    "cache",
    "group",
    "lease",
    "history",
    "compaction",
    "sweep",
    "registry",
    "catalog",
    "live",
    "grpc",
    "pulsar",
    "subscription",
    "rest",
    "transactions",
    "key_compaction",
    "import",
)
NAME = re.compile(rf"bearlake_({'|'.join(PARTS)})(_[a-z]+)+")
LABELS = {"api", "error", "operation", "outcome", "reason", "source", "status", "store", "version", "kernel"} | {
    "call",
    "code",
    "command",
    "delivery",
    "direction",
    "job",
    "method",
    "state",
    "kind",
    "mechanism",
    "request",
    "step",
    "stream",
    "what",
}


def declared() -> list[Family[Counter] | Family[Gauge] | Family[Histogram]]:
    return list(declaring.FAMILIES)


def test_every_metric_is_recorded_by_some_part() -> None:
    folder = Path(metrics.__file__).parents[1]
    text = "".join(path.read_text() for path in folder.rglob("*.py") if path != Path(metrics.__file__))
    names = [name for name, value in vars(metrics).items() if isinstance(value, Family | Counter | Gauge | Histogram)]

    assert [name for name in names if f"metrics.{name}" not in text] == []


def test_every_name_has_a_part_and_a_help_text() -> None:
    assert len(declared()) > 40
    for family in declared():
        assert NAME.fullmatch(family.name), family.name
        assert family.doc.endswith("."), family.name


def test_counters_and_only_counters_end_in_total() -> None:
    for family in declared():
        is_counter = isinstance(family.make(), Counter)

        assert family.name.endswith("_total") == is_counter, family.name


def test_histograms_end_in_their_unit() -> None:
    for family in declared():
        if isinstance(family.make(), Histogram):
            assert family.name.endswith(("_seconds", "_bytes")), family.name


def test_labels_are_of_the_bounded_kinds() -> None:
    assert {label for family in declared() for label in family.label_names} <= LABELS


def test_a_full_family_counts_further_labels_as_other() -> None:
    families = Families()
    family = Family(families, "bearlake_test_things_total", "Things.", Counter, ("kind",), children_max=2)
    for kind in ("a", "b", "c", "d"):
        family.labels(kind).inc()

    text = generate_latest(registry_of(families)).decode()

    assert 'bearlake_test_things_total{kind="a"} 1.0' in text
    assert 'bearlake_test_things_total{kind="other"} 2.0' in text
    assert 'kind="c"' not in text


def test_a_histogram_is_exposed_with_cumulated_buckets() -> None:
    families = Families()
    histogram = Family(families, "bearlake_test_wait_seconds", "Wait.", lambda: Histogram((0.1, 1.0)), ()).labels()
    for seconds in (0.05, 0.1, 0.5, 3.0):
        histogram.observe(seconds)

    (family,) = text_string_to_metric_families(generate_latest(registry_of(families)).decode())

    assert {sample.labels.get("le", sample.name): sample.value for sample in family.samples} == {
        "0.1": 2,
        "1.0": 3,
        "+Inf": 4,
        "bearlake_test_wait_seconds_count": 4,
        "bearlake_test_wait_seconds_sum": pytest.approx(3.65),
    }


def test_a_gauge_may_ask_a_function_at_every_scrape() -> None:
    gauge = Family(Families(), "bearlake_test_held_bytes", "Held.", Gauge, ()).labels()
    held = [1]
    gauge.set_function(lambda: held[0])
    held[0] = 7

    assert gauge.read() == 7


def test_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="has the labels"):
        metrics.KAFKA_ERRORS.labels("Produce")


def test_the_exposition_is_valid_and_holds_the_process() -> None:
    names = {family.name for family in text_string_to_metric_families(exposition.expose().decode())}

    assert "process_resident_memory_bytes" in names
    assert "bearlake_append_flush_bytes" in names
    assert "bearlake_objects_put" in names
