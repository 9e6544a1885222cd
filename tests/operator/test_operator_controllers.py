"""The controllers against an in-memory API server: errors are reported on their resource, and do not affect others."""

from dataclasses import replace

import pytest

from bearlake_operator import metrics
from bearlake_operator.controllers import rate_limit, tiers
from bearlake_operator.controllers.apply import HANDOVER_MANAGER
from bearlake_operator.controllers.events import EventRecorder
from bearlake_operator.controllers.streams import UNREACHABLE_S
from bearlake_operator.errors import Unavailable
from bearlake_operator.reconcile import status
from bearlake_operator.reconcile.claims import FINALIZER
from bearlake_operator.settings import Autoscaling, ScalingMode, Tier
from fixtures.small_operator import GOING, LAYER, SETTINGS, compactor, condition, stream

WORKERS = "bearlake-compactor-team-main"

# Compactors.


async def test_the_older_of_two_compactors_owns_a_common_object_name(cluster, operator):
    cluster.add(compactor("a-night", "team"), compactor("night", "team-a", created="2026-01-02T00:00:00Z"))

    await operator.tiers()
    written = len(cluster.asked)
    await operator.tiers()

    assert len(cluster.asked) == written, "they overwrite each other"
    assert condition(cluster, "Compactor", "a-night")[1] == "WorkersNotReady"
    _, reason, message = condition(cluster, "Compactor", "night", "team-a")
    assert (reason, "bearlake-compactor-team-a-night" in message) == ("Invalid", True)
    assert cluster.get("Deployment", "bearlake-compactor-team-a-night")["spec"]["replicas"] == 1


async def test_workers_of_an_invalid_compactor_keep_running(cluster, operator):
    cluster.add(compactor())
    await operator.tiers()
    cluster.change("Deployment", WORKERS, status={"replicas": 1, "readyReplicas": 1})
    window = {"start": "22:00", "end": "06:00", "timeZone": "Mars/Base", "replicas": 9}

    cluster.change("Compactor", "main", "team", spec={"schedule": [window]})
    await operator.tiers()

    _, reason, message = condition(cluster, "Compactor", "main")
    assert (reason, "'Mars/Base'" in message) == ("Invalid", True)
    assert cluster.get("Compactor", "main", "team")["status"]["readyReplicas"] == 1
    assert cluster.get("Deployment", WORKERS) is not None


@pytest.mark.parametrize("metadata", [{"generation": 2}, {"uid": "another"}], ids=["changed", "replaced"])
async def test_a_compactor_that_changes_during_a_run_is_not_reported_before_it_is_applied(
    cluster, operator, monkeypatch, metadata
):
    apply = operator.applier.apply

    async def apply_and_edit(manifests):
        errors = await apply(manifests)
        cluster.change("Compactor", "main", "team", spec={"replicas": 3}, metadata=metadata)
        assert operator.cache.put("Compactor", cluster.get("Compactor", "main", "team"))
        return errors

    cluster.add(compactor())
    monkeypatch.setattr(operator.applier, "apply", apply_and_edit)
    await operator.tiers()
    assert "status" not in cluster.get("Compactor", "main", "team"), "it shows the generation that is not applied"

    monkeypatch.undo()
    await operator.tiers()

    assert cluster.get("Deployment", WORKERS)["spec"]["replicas"] == 3
    assert cluster.get("Compactor", "main", "team")["status"]["observedGeneration"] == metadata.get("generation", 1)


async def test_workers_of_a_removed_data_layer_are_deleted(cluster, operator):
    cluster.add(compactor())
    await operator.tiers()

    cluster.change("Compactor", "main", "team", spec={"dataLayer": "gone"})
    await operator.tiers()

    assert cluster.get("Deployment", WORKERS) is None
    _, reason, message = condition(cluster, "Compactor", "main")
    assert (reason, "'gone'" in message) == ("Invalid", True)


async def test_a_rejected_object_blocks_pruning_of_its_own_group_only(cluster, operator):
    cluster.add(compactor(), compactor("other"))
    await operator.tiers()
    cluster.refuse[("PATCH", f"/deployments/{WORKERS}")] = 422
    cluster.change("Compactor", "main", "team", spec={"replicas": 3})
    cluster.add(
        {"kind": "Service", "metadata": {**service_marks(cluster, WORKERS), "name": "old", "namespace": "lake"}}
    )
    cluster.change("Compactor", "other", "team", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})

    with pytest.raises(Unavailable, match="422"):
        await operator.tiers()

    assert cluster.get("Deployment", "bearlake-compactor-team-other") is None
    assert cluster.get("Service", "old") is not None
    cluster.refuse.clear()
    await operator.tiers()
    assert cluster.get("Service", "old") is None


def service_marks(cluster, name):
    return {"labels": cluster.get("Service", name)["metadata"]["labels"]}


async def test_an_error_on_an_object_ends_when_it_is_no_longer_desired(cluster, operator):
    cluster.refuse[("PATCH", f"/horizontalpodautoscalers/{WORKERS}")] = 422
    cluster.add(compactor(autoscaling={"maxReplicas": 5}))
    with pytest.raises(Unavailable):
        await operator.tiers()
    assert condition(cluster, "Compactor", "main")[1] == "Invalid"

    cluster.change("Compactor", "main", "team", spec={})
    await operator.tiers()

    assert condition(cluster, "Compactor", "main")[1] == "WorkersNotReady"


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"podTemplate": {"spec": {"serviceAccountName": "bl-operator"}}}, "podTemplate"),
        ({"spark": {"conf": {"spark.jars": "https://example.com/a.jar"}}}, "spark.conf"),
        ({"spark": {"master": "k8s://https://example.com"}}, "spark.master k8s://https://example.com"),
        ({"spark": {"master": "local[2]"}}, ""),
    ],
)
async def test_restricted_fields_are_rejected_outside_of_the_operators_namespace(cluster, operator, spec, refused):
    cluster.add(compactor(**spec), compactor("near", "lake", **spec))

    with_rights = {"default": LAYER}
    operator.start(replace(SETTINGS, data_layers=with_rights, spark_service_account="spark"))
    await operator.tiers()

    _, reason, message = condition(cluster, "Compactor", "main")
    assert (reason == "Invalid") is bool(refused)
    assert not refused or (message.startswith(f"{refused}: ") and "namespace lake" in message)
    assert (cluster.get("Deployment", WORKERS) is None) is bool(refused)
    assert cluster.get("Deployment", "bearlake-compactor-lake-near") is not None


async def test_a_hanging_data_layer_does_not_block_tiers_and_its_figures_stay(cluster, operator, monkeypatch):
    cluster.add(compactor())
    await operator.tiers()
    assert cluster.get("Compactor", "main", "team")["status"]["backlogBytes"] == 5

    monkeypatch.setattr(tiers, "FIGURES_TIMEOUT_S", 0.01)
    operator.lake.are_figures_late = True
    cluster.change("Compactor", "main", "team", spec={"replicas": 2})
    await operator.tiers()

    assert cluster.get("Deployment", WORKERS)["spec"]["replicas"] == 2
    assert cluster.get("Compactor", "main", "team")["status"]["backlogBytes"] == 5


# Handover of replicas to an autoscaler.


async def autoscaled(cluster, operator):
    """Give the Compactor an autoscaler, and reconcile; `asked` has the requests."""
    cluster.change("Compactor", "main", "team", spec={"autoscaling": {"maxReplicas": 9}})
    cluster.asked.clear()
    await operator.tiers()


async def test_an_autoscaler_takes_over_the_current_number_of_pods(cluster, operator):
    """A field whose only owner drops it falls back to its default, which is one pod. Source: KEP-555."""
    cluster.add(compactor(replicas=4))
    await operator.tiers()

    await autoscaled(cluster, operator)

    changes = [request for request in cluster.asked if request[1].endswith(f"/deployments/{WORKERS}")]
    assert [(manager, body["spec"].get("replicas")) for _, _, manager, body in changes] == [
        (HANDOVER_MANAGER, 4),
        ("bearlake-operator", None),
    ]
    cluster.asked.clear()
    operator.start(SETTINGS)  # the operator no longer owns `replicas`
    await operator.tiers()
    assert HANDOVER_MANAGER not in {manager for _, _, manager, _ in cluster.asked}


async def test_replicas_that_another_writer_has_set_are_not_handed_over(cluster, operator):
    cluster.add(compactor(replicas=4))
    await operator.tiers()
    cluster.refuse[("PATCH", f"/deployments/{WORKERS}")] = 409

    operator.kube.apply = given = Given(cluster)
    await autoscaled(cluster, operator)

    assert [request[2] for request in cluster.asked if request[1].endswith(f"/deployments/{WORKERS}")] == [
        HANDOVER_MANAGER
    ]
    assert "Deployment" in given.kinds


class Given:
    """Replaces `KubeClient.apply`: stores the manifests in the cluster without a request."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.kinds = []

    async def __call__(self, manifest):
        self.kinds.append(manifest["kind"])
        self._cluster.add(manifest)
        return self._cluster.get(manifest["kind"], manifest["metadata"]["name"])


async def test_zero_replicas_are_not_handed_over_to_an_autoscaler(cluster, operator):
    cluster.add(compactor(replicas=0))
    await operator.tiers()

    await autoscaled(cluster, operator)

    assert HANDOVER_MANAGER not in {manager for _, _, manager, _ in cluster.asked}


@pytest.mark.parametrize("spec", [{"autoscaling": {"maxReplicas": 9}}, {"replicas": 3}])
async def test_an_autoscaler_is_deleted_before_its_successor_is_applied(cluster, operator, spec):
    """Two autoscalers, or one and a fixed `replicas`, would fight; KEDA's webhook rejects a second one."""
    cluster.add(compactor(autoscaling={"maxReplicas": 9}))
    await operator.tiers()
    cluster.asked.clear()

    keda = Tier(autoscaling=Autoscaling(mode=ScalingMode.KEDA))
    operator.start(replace(SETTINGS, data_layers={"default": replace(LAYER, tiers={"compactor": keda})}))
    cluster.change("Compactor", "main", "team", spec=spec)
    await operator.tiers()

    verbs = [(verb, path.split("/")[-2]) for verb, path, *_ in cluster.asked]
    assert verbs[0] == ("DELETE", "horizontalpodautoscalers")
    assert (("PATCH", "scaledobjects") in verbs) is ("autoscaling" in spec)


# Streams.


async def test_a_blocked_deletion_says_how_to_unblock_it_and_does_not_affect_others(cluster, operator):
    cluster.add(stream("stuck", deletionPolicy="Delete"), stream("fine", deletionPolicy="Delete"))
    await operator.streams()
    operator.lake.problems["stuck"] = "its table is locked"
    for name in ("stuck", "fine"):
        cluster.change("Stream", name, "team", metadata=GOING)
    cluster.add(stream("new"))

    with pytest.raises(Unavailable, match="stuck"):
        await operator.streams()

    assert set(operator.lake.kept) == {"stuck", "new"}
    assert cluster.get("Stream", "fine", "team") is None
    assert condition(cluster, "Stream", "new")[1] == "TierNotReady"
    status, reason, message = condition(cluster, "Stream", "stuck")
    assert (status, reason) == ("False", "DeletionBlocked")
    assert "its table is locked" in message
    assert """kubectl -n team patch stream stuck --type merge -p '{"spec":{"deletionPolicy":"Retain"}}'""" in message
    assert ("Warning", "DeletionBlocked", "stuck") in cluster.events()
    assert cluster.get("Stream", "stuck", "team")["status"]["streamId"] == "id of stuck"


async def test_a_blocked_deletion_is_reported_after_a_while_without_a_data_layer(cluster, operator, monkeypatch):
    now = 100.0
    monkeypatch.setattr("bearlake_operator.controllers.streams.time.monotonic", lambda: now)
    cluster.add(stream(deletionPolicy="Delete"))
    await operator.streams()
    cluster.change("Stream", "orders", "team", metadata=GOING)
    operator.lake.is_silent = True

    with pytest.raises(Unavailable):
        await operator.streams()
    assert condition(cluster, "Stream", "orders")[1] == "TierNotReady"
    now += UNREACHABLE_S + 1
    with pytest.raises(Unavailable):
        await operator.streams()

    assert condition(cluster, "Stream", "orders")[1] == "DeletionBlocked"


async def test_a_terminating_stream_with_retain_is_released_without_a_data_layer(cluster, operator):
    cluster.add(stream(deletionPolicy="Delete"), stream("kept", deletionPolicy="Delete"))
    await operator.streams()
    cluster.change("Stream", "orders", "team", metadata=GOING, spec={"deletionPolicy": "Retain"})
    cluster.change("Stream", "kept", "team", spec={"deletionPolicy": "Retain"})
    operator.lake.is_silent = True

    with pytest.raises(Unavailable):
        await operator.streams()

    assert cluster.get("Stream", "orders", "team") is None
    assert cluster.get("Stream", "kept", "team")["metadata"]["finalizers"] == []
    assert set(operator.lake.kept) == {"orders", "kept"}


async def test_a_terminating_stream_of_an_unknown_data_layer_is_released_with_an_event(cluster, operator):
    operator.start(SETTINGS, layer=None)
    cluster.add(stream(dataLayer="gone", deletionPolicy="Delete"))
    cluster.change("Stream", "orders", "team", metadata=GOING)

    await operator.streams()

    assert cluster.get("Stream", "orders", "team") is None
    assert cluster.events() == [("Warning", "RecordsKept", "orders")]


async def test_a_rejected_finalizer_does_not_affect_other_streams(cluster, operator):
    cluster.refuse[("PATCH", "/streams/refused")] = 403
    cluster.add(stream("refused", deletionPolicy="Delete"), stream("fine", deletionPolicy="Delete"), stream("plain"))

    with pytest.raises(Unavailable, match="403"):
        await operator.streams()

    assert cluster.get("Stream", "fine", "team")["metadata"]["finalizers"] == [FINALIZER]
    assert {"fine", "plain"} <= set(operator.lake.kept)


async def test_a_problem_is_dropped_if_the_stream_already_matches(cluster, operator):
    """The first server created the stream but its response was lost; the second one reported that it exists."""
    operator.lake.problems["orders"] = "it exists"
    cluster.add(stream())

    await operator.streams()

    assert condition(cluster, "Stream", "orders")[1] == "TierNotReady"


# Events.


@pytest.mark.parametrize("metadata", [{"generation": 2}, {"uid": "another"}], ids=["changed", "replaced"])
async def test_a_spec_that_changes_during_a_run_is_not_reported_as_synced_before_it_is_applied(
    cluster, operator, monkeypatch, metadata
):
    change = operator.lake.change

    async def change_and_edit(changes):
        problems = await change(changes)
        cluster.change("Stream", "orders", "team", spec={"partitions": 2}, metadata=metadata)
        assert operator.cache.put("Stream", cluster.get("Stream", "orders", "team"))
        return problems

    cluster.add(stream())
    monkeypatch.setattr(operator.lake, "change", change_and_edit)
    await operator.streams()
    assert "status" not in cluster.get("Stream", "orders", "team"), "it shows the generation that is not applied"

    monkeypatch.undo()
    await operator.streams()

    assert operator.lake.kept["orders"].partitions == 2
    assert status.is_synced(cluster.get("Stream", "orders", "team"))


async def test_columns_that_are_not_one_each_are_refused_on_their_stream_alone(cluster, operator):
    schema = [{"name": "id", "type": "struct<x long"}, {"name": "at", "type": "date>"}]
    cluster.add(
        stream("broken", table={"schema": schema}), stream("fair", table={"schema": [{"name": "id", "type": "long"}]})
    )

    await operator.streams()

    assert set(operator.lake.kept) == {"fair"}
    status_, reason, message = condition(cluster, "Stream", "broken")
    assert (status_, reason) == ("False", "Refused")
    assert "the type of column 'id' is not one type" in message


async def test_a_bug_with_one_resource_does_not_affect_others(cluster, operator, monkeypatch):
    cluster.add(stream("bad"), stream("good"), compactor("bad"), compactor("good"))
    for module, name in ((status, "stream"), (tiers.compactor, "objects")):
        monkeypatch.setattr(module, name, broken_for("bad", getattr(module, name)))
    before = bug_count()

    await operator.tiers()
    with pytest.raises(Unavailable, match="a bug"):
        await operator.streams()

    assert condition(cluster, "Stream", "good")[0] in ("True", "False")
    assert "status" not in cluster.get("Stream", "bad", "team")
    assert cluster.get("Deployment", "bearlake-compactor-team-good")["spec"]["replicas"] == 1
    status_, reason, message = condition(cluster, "Compactor", "bad")
    assert (status_, reason, "a bug" in message) == ("False", "Invalid", True)
    assert bug_count() == before + 2


async def test_a_bug_with_one_object_does_not_affect_others(cluster, operator, monkeypatch):
    cluster.add(compactor("bad"), compactor("good"))
    broken = broken_for("bearlake-compactor-team-bad", operator.kube.apply)
    monkeypatch.setattr(operator.kube, "apply", broken)

    with pytest.raises(Unavailable, match="a bug"):
        await operator.tiers()

    assert cluster.get("Deployment", "bearlake-compactor-team-good")["spec"]["replicas"] == 1
    assert "a bug" in condition(cluster, "Compactor", "bad")[2]


def broken_for(name, function):
    """The function with a bug for the resource of this name, which is an argument or the name in its metadata."""

    def call(*arguments, **named):
        for argument in arguments:
            metadata = (
                argument.get("metadata", {}) if isinstance(argument, dict) else {"name": getattr(argument, "name", "")}
            )
            if metadata.get("name") == name:
                raise KeyError("a bug")
        return function(*arguments, **named)

    return call


def bug_count():
    """How many bugs the metric counts."""
    (family,) = metrics.CONTAINED_FAULTS.collect()
    return sum(sample.value for sample in family.samples if sample.name.endswith("_total"))


async def test_events_of_a_flapping_resource_are_rate_limited(cluster, operator, monkeypatch):
    now = 100.0
    monkeypatch.setattr(rate_limit.time, "monotonic", lambda: now)
    events = EventRecorder(operator.kube)
    cluster.add(stream(), stream("calm"))
    flapping, calm = (cluster.get("Stream", name, "team") for name in ("orders", "calm"))

    for _ in range(100):
        await events.record(flapping, "Flapped", "Again.")
    await events.record(calm, "Changed", "Once.")
    assert len(cluster.events()) == rate_limit.BURST_COUNT + 1
    now += rate_limit.REFILL_S
    await events.record(flapping, "Flapped", "Again.")
    await events.record(flapping, "Flapped", "Again.")

    assert len(cluster.events()) == rate_limit.BURST_COUNT + 2


async def test_full_rate_limit_buckets_are_dropped(monkeypatch):
    now = 100.0
    monkeypatch.setattr(rate_limit.time, "monotonic", lambda: now)
    taken = rate_limit.EventRateLimiter()
    assert taken.allow("a")

    now += 2 * rate_limit.REFILL_S
    assert taken.allow("b")

    assert set(taken._buckets) == {"b"}  # noqa: SLF001 - memory that nothing else shows
