"""Autoscalers: what they look at in each mode, and values that contradict each other."""

import pytest

from bearlake_operator import api, decoder
from bearlake_operator.errors import Invalid
from bearlake_operator.manifests import labels, scaling
from bearlake_operator.settings import AdminAccess, Autoscaling, DataLayer, ScalingMode

MARKS = labels.compactor_selector("default", "bearlake-compactor-team-a-main")
WORKERS = api.CompactorScaling(min_replicas=1, max_replicas=4, target_backlog_bytes=1 << 28, target_cpu_percent=70)


def layer(**autoscaling):
    return decoder.decode(
        DataLayer,
        {"settings": {}, "admin": {"secret": "s"}, "tiers": {"kafka": {"autoscaling": autoscaling}}},
        "dataLayers.default",
    )


def of_tier(**values):
    return scaling.for_tier("bearlake-default-kafka", Autoscaling(**values), labels.selector("default", "kafka"))


def of_compactor(values):
    (found,) = scaling.for_compactor("c", "c.lake.svc", WORKERS, values, AdminAccess(secret="s"), MARKS)
    return found


def test_builtin_needs_no_metrics_server_unless_cpu_is_asked_for():
    """The autoscaler never shrinks what it has a metric of that fails (HPA, "Support for multiple metrics")."""
    without = of_tier(mode=ScalingMode.BUILTIN, target_bytes_per_second=1000)
    both = of_tier(mode=ScalingMode.BUILTIN, target_bytes_per_second=1000, target_cpu_percent=50)

    assert [one["type"] for one in without["spec"]["metrics"]] == ["Pods"]
    assert [one["type"] for one in both["spec"]["metrics"]] == ["Resource", "Pods"]


def test_workers_are_counted_by_the_backlog_of_their_own_compactor():
    (metric,) = of_compactor(Autoscaling(mode=ScalingMode.BUILTIN))["spec"]["metrics"]

    assert metric["external"] == {
        "metric": {
            "name": "bearlake_compaction_backlog_bytes",
            "selector": {"matchLabels": {labels.DATA_LAYER: "default", labels.COMPACTOR: MARKS[labels.COMPACTOR]}},
        },
        "target": {"type": "AverageValue", "averageValue": "268435456"},
    }


def test_workers_without_values_are_counted_by_cpu():
    (metric,) = of_compactor(None)["spec"]["metrics"]

    assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}


@pytest.mark.parametrize(("seconds", "tier", "workers"), [(None, 900, 300), (0, 0, 0), (20, 20, 20)])
def test_servers_go_slowly_and_workers_less_slowly_unless_values_say_otherwise(seconds, tier, workers):
    servers = of_tier(scale_down_seconds=seconds)
    compactor = of_compactor(Autoscaling(scale_down_seconds=seconds))

    assert servers["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == tier
    assert compactor["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == workers


@pytest.mark.parametrize(
    ("autoscaling", "problem"),
    [
        (
            {"mode": "builtin"},
            "dataLayers.default: tiers.kafka.autoscaling: mode builtin needs targetRequestsPerSecond or targetBytesPerSecond",
        ),
        (
            {"mode": "keda", "targetBytesPerSecond": 5},
            "dataLayers.default.tiers.kafka.autoscaling: targetRequestsPerSecond and targetBytesPerSecond need mode builtin",
        ),
        (
            {"targetRequestsPerSecond": 5},
            "dataLayers.default.tiers.kafka.autoscaling: targetRequestsPerSecond and targetBytesPerSecond need mode builtin",
        ),
    ],
)
def test_targets_that_nothing_would_look_at_are_refused(autoscaling, problem):
    with pytest.raises(Invalid) as refused:
        layer(**autoscaling)

    assert str(refused.value) == problem


def test_builtin_by_cpu_alone_is_accepted():
    assert layer(mode="builtin", targetCpuPercent=50).tier("kafka").autoscaling is not None
