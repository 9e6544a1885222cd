"""The metrics of autoscalers in each mode, and contradicting values."""

import pytest

from bearlake_operator import api, decoder
from bearlake_operator.errors import Invalid
from bearlake_operator.manifests import labels, scaling
from bearlake_operator.settings import AdminAccess, Autoscaling, DataLayer, ScalingMode

SELECTOR_LABELS = labels.compactor_selector("default", "bearlake-compactor-team-a-main")
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
    (found,) = scaling.for_compactor("c", "c.lake.svc", WORKERS, values, AdminAccess(secret="s"), SELECTOR_LABELS)
    return found


def test_builtin_uses_cpu_only_if_a_cpu_target_is_set():
    """An autoscaler does not scale down while one of its metrics fails (HPA, "Support for multiple metrics")."""
    without = of_tier(mode=ScalingMode.BUILTIN, target_bytes_per_second=1000)
    both = of_tier(mode=ScalingMode.BUILTIN, target_bytes_per_second=1000, target_cpu_percent=50)

    assert [metric["type"] for metric in without["spec"]["metrics"]] == ["Pods"]
    assert [metric["type"] for metric in both["spec"]["metrics"]] == ["Resource", "Pods"]


def test_workers_scale_by_the_backlog_of_their_own_compactor():
    (metric,) = of_compactor(Autoscaling(mode=ScalingMode.BUILTIN))["spec"]["metrics"]

    assert metric["external"] == {
        "metric": {
            "name": "bearlake_compaction_backlog_bytes",
            "selector": {
                "matchLabels": {labels.DATA_LAYER: "default", labels.COMPACTOR: SELECTOR_LABELS[labels.COMPACTOR]}
            },
        },
        "target": {"type": "AverageValue", "averageValue": "268435456"},
    }


def test_workers_scale_by_cpu_by_default():
    (metric,) = of_compactor(None)["spec"]["metrics"]

    assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": 70}


@pytest.mark.parametrize(("seconds", "tier", "workers"), [(None, 900, 300), (0, 0, 0), (20, 20, 20)])
def test_scale_down_windows_have_defaults_and_can_be_set(seconds, tier, workers):
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
def test_targets_that_a_mode_ignores_are_rejected(autoscaling, problem):
    with pytest.raises(Invalid) as refused:
        layer(**autoscaling)

    assert str(refused.value) == problem


def test_builtin_with_a_cpu_target_only_is_accepted():
    assert layer(mode="builtin", targetCpuPercent=50).tier("kafka").autoscaling is not None
