"""What resources show. The same world gives the same status, times of transition included, so that nothing is written for nothing.

Ages change all the time: they are shown in steps (10 s, 1 min …), and only when they matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bearlake_operator.admin import Backlog, Commits, ObservedStream
from bearlake_operator.api import Resource
from bearlake_operator.reconcile import endpoints
from bearlake_operator.reconcile.claims import Claim
from bearlake_operator.settings import Settings

NO_BACKLOG = Backlog()
NO_HOSTS = endpoints.Hosts()
FRESHNESS_MS = 10_000
"""Of a stream whose `table.freshness_ms` is not set."""
BEHIND_COUNT = 10
BEHIND_MS_MIN = 120_000
"""A table is behind when its oldest waiting record is ten times as old as it should get, and two minutes: figures are a minute old."""
NEVER = "1970-01-01T00:00:00Z"
"""The time of the conditions that the schema itself puts into a new resource."""

LAST_COMMIT_COUNT = 5
STREAM_COUNT_SHOWN = 3

_DAY_S = 86400
_AGES_S = (0, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200)
_UNITS = ((1, "s"), (60, "m"), (3600, "h"), (_DAY_S, "d"))


@dataclass(frozen=True, slots=True)
class Condition:
    """A fact about a resource; `is_true` None: not known."""

    type: str
    is_true: bool | None
    reason: str
    message: str


def conditions(found: Sequence[Condition], resource: Resource, now: str) -> list[dict[str, Any]]:
    """Conditions as they are shown; one whose status has not changed keeps its time. Source: Kubernetes API conventions."""
    before = {one["type"]: one for one in resource.get("status", {}).get("conditions", ())}
    shown = []
    for one in found:
        status = {True: "True", False: "False", None: "Unknown"}[one.is_true]
        old = before.get(one.type, {})
        is_same = old.get("status") == status and old["lastTransitionTime"] != NEVER
        # What is not known is told once: the words of every attempt to learn it differ.
        is_told = is_same and one.is_true is None and old["reason"] == one.reason
        shown.append(
            {
                "type": one.type,
                "status": status,
                "observedGeneration": resource["metadata"].get("generation", 0),
                "reason": one.reason,
                "message": old["message"] if is_told else one.message,
                "lastTransitionTime": old["lastTransitionTime"] if is_same else now,
            }
        )
    return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """What was seen of a Stream.

    `problem`: what the data layer, or its absence, said. `waiting`: tiers that are not ready yet. `has_compactor`: whether some Compactor
    has the stream.
    """

    claim: Claim
    observed: ObservedStream | None
    problem: str = ""
    complaint: str = ""
    is_reachable: bool = True
    waiting: Sequence[str] = ()
    backlog: Backlog = NO_BACKLOG
    has_compactor: bool = False
    hosts: endpoints.Hosts = NO_HOSTS


def stream(settings: Settings, namespace: str, resource: Resource, view: StreamView, now: str) -> dict[str, Any]:
    """The status of a Stream; `namespace` is that of the tiers."""
    claim, observed = view.claim, view.observed
    spec = claim.spec
    shown: dict[str, Any] = {
        "observedGeneration": resource["metadata"].get("generation", 0),
        "name": spec.name,
        "protocols": ",".join(spec.protocols),
        "conditions": conditions(_stream_conditions(view), resource, now),
    }
    before = resource.get("status", {})
    if not claim.is_owner:
        return shown
    if observed is None:
        kept = ("streamId", "partitions", "recordCount", "sizeBytes", "appliedConfigs", "table", "endpoints")
        return {**{key: before[key] for key in kept if key in before}, **shown}
    shown |= {
        "streamId": observed.id,
        "partitions": observed.partitions,
        "recordCount": observed.record_count,
        "sizeBytes": observed.size_bytes,
        "appliedConfigs": sorted(spec.configs),
        "endpoints": endpoints.endpoints(settings, namespace, spec.data_layer, spec.protocols, view.hosts),
    }
    if _has_table(observed):
        table = observed.configs.get("table.name") or spec.name.replace(".", "_")
        shown["table"] = {
            "name": f"{observed.configs.get('table.namespace', 'streams')}.{table}",
            "freshness": age(view.backlog.age_ms),
            "backlogBytes": view.backlog.size_bytes,
        }
    return shown


def leaving(resource: Resource, problem: str, now: str) -> dict[str, Any]:
    """The status of a Stream that is being deleted, and whose records cannot be: why, and how to get out."""
    namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
    keep = """--type merge -p '{"spec":{"deletionPolicy":"Retain"}}'"""
    message = (
        f"The Stream stays until its records are deleted, which cannot be done now: {problem}. "
        f"To let it go and keep the records: kubectl -n {namespace} patch stream {name} {keep}"
    )
    shown = conditions([Condition("Ready", False, "DeletionBlocked", message)], resource, now)
    return {**resource.get("status", {}), "observedGeneration": shown[0]["observedGeneration"], "conditions": shown}


def _stream_conditions(view: StreamView) -> list[Condition]:
    claim = view.claim
    if not claim.is_owner:
        message = f"The older Stream {'/'.join(claim.owner)} has the name {claim.spec.name}."
        return [Condition("Ready", False, "NameTaken", message), Condition("Claimed", False, "NameTaken", message)]
    synced = _synced(view)
    ready = synced
    if synced.is_true and view.waiting:
        ready = Condition("Ready", False, "TierNotReady", f"Waiting for the pods of {', '.join(view.waiting)}.")
    elif synced.is_true:
        ready = Condition("Ready", True, "Serving", "")
    return [
        Condition("Ready", ready.is_true, ready.reason, ready.message),
        Condition("Synced", synced.is_true, synced.reason, synced.message),
        Condition("Claimed", True, "Owner", ""),
        *([_table_ready(view, view.observed)] if view.observed is not None and _has_table(view.observed) else []),
    ]


def _synced(view: StreamView) -> Condition:
    """Whether the data layer has what the spec says."""
    if not view.is_reachable:
        return Condition("Synced", None, "DataLayerUnavailable", view.problem)
    if view.problem:
        return Condition("Synced", False, "Refused", view.problem)
    if view.observed is None:
        return Condition("Synced", None, "Pending", "The stream is not made yet.")
    if view.complaint:
        return Condition("Synced", False, "MorePartitions", view.complaint)
    return Condition("Synced", True, "InSync", "")


def _has_table(observed: ObservedStream) -> bool:
    return observed.configs.get("table.enable", "true") == "true"


def _table_ready(view: StreamView, observed: ObservedStream) -> Condition:
    """Whether SQL sees the records, about as soon as `table.freshness` says."""
    backlog, freshness_ms = view.backlog, int(observed.configs.get("table.freshness_ms", FRESHNESS_MS))
    if not view.has_compactor and (backlog.size_bytes or not observed.record_count):
        return Condition(
            "TableReady", False, "NoCompactor", "No Compactor has this stream: make one, or widen its streams."
        )
    if backlog.age_ms > max(BEHIND_COUNT * freshness_ms, BEHIND_MS_MIN):
        message = f"The oldest record that SQL does not see is {age(backlog.age_ms)} old; see `kubectl get compactors`."
        return Condition("TableReady", False, "Behind", message)
    if not observed.record_count:
        return Condition("TableReady", None, "NoRecords", "Nothing has been written yet.")
    return Condition("TableReady", True, "Fresh", "")


def is_synced(resource: Resource) -> bool:
    """Whether a Stream shows that the data layer has what its present spec says."""
    shown = resource.get("status", {}).get("conditions", ())
    synced: Mapping[str, Any] = next((one for one in shown if one["type"] == "Synced"), {})
    generation = resource["metadata"].get("generation", 0)
    return synced.get("status") == "True" and synced.get("observedGeneration") == generation


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorView:
    """What was seen of a Compactor."""

    data_layer_is_known: bool = True
    problem: str = ""
    replicas: int = 0
    ready_replicas: int = 0
    wanted_replicas: int = 0
    selector: str = ""
    backlog: Backlog | None = None
    aside_count: int = 0
    commits: Commits | None = None
    streams: Sequence[str] = ()


_BACKLOG_FIELDS = ("backlogBytes", "backlog", "lagSeconds", "lag")
_COMMIT_FIELDS = ("commitCount", "lastCommits", "lastCommitTime")


def compactor(resource: Resource, view: CompactorView, now: str) -> dict[str, Any]:
    """The status of a Compactor; figures that are not told now stay what they were."""
    before = resource.get("status", {})
    untold = (
        *(_BACKLOG_FIELDS if view.backlog is None else ()),
        *(_COMMIT_FIELDS if view.commits is None else ()),
    )
    shown: dict[str, Any] = {key: before[key] for key in untold if key in before} | {
        "observedGeneration": resource["metadata"].get("generation", 0),
        "replicas": view.replicas,
        "readyReplicas": view.ready_replicas,
        "selector": view.selector,
        "streams": _streams_text(view.streams),
        "asideCount": view.aside_count,
        "conditions": conditions(_compactor_conditions(view), resource, now),
    }
    if view.backlog is not None:
        shown |= {
            "backlogBytes": view.backlog.size_bytes,
            "backlog": size(view.backlog.size_bytes),
            "lagSeconds": age_s(view.backlog.age_ms),
            "lag": age(view.backlog.age_ms),
        }
    if view.commits is not None:
        shown["commitCount"] = view.commits.count
        shown["lastCommits"] = [
            {"stream": one.stream, "time": time_text(one.time_ms), "count": one.count}
            for one in view.commits.streams[:LAST_COMMIT_COUNT]
        ]
        if view.commits.streams:
            shown["lastCommitTime"] = time_text(view.commits.streams[0].time_ms)
    return shown


def _compactor_conditions(view: CompactorView) -> list[Condition]:
    if view.problem:
        return [Condition("Ready", False, "Invalid", view.problem)]
    if view.ready_replicas < view.wanted_replicas:
        message = f"{view.ready_replicas} of {view.wanted_replicas} workers are ready."
        return [Condition("Ready", False, "WorkersNotReady", message)]
    found = [Condition("Ready", True, "Paused" if view.wanted_replicas == 0 else "Working", "")]
    if view.aside_count:
        message = f"{view.aside_count} tasks failed again and again: see `bearlake compaction tasks`."
        found.append(Condition("TasksAside", True, "Failing", message))
    return found


def _streams_text(patterns: Sequence[str]) -> str:
    """The beginning of the patterns of a Compactor's streams, for a column."""
    shown = ",".join(patterns[:STREAM_COUNT_SHOWN]) if patterns else "*"
    more = len(patterns) - STREAM_COUNT_SHOWN
    return f"{shown},… ({more} more)" if more > 0 else shown


def time_text(milliseconds: int) -> str:
    """A time as Kubernetes writes it, in seconds."""
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age_s(milliseconds: int) -> int:
    """A duration in seconds, rounded down to one of `_AGES_S` or to days: what only grows older is told a few times, not at every look."""
    seconds = milliseconds // 1000
    if seconds >= _DAY_S:
        return seconds // _DAY_S * _DAY_S
    return max(one for one in _AGES_S if one <= max(seconds, 0))


def age(milliseconds: int) -> str:
    """`age_s` in its largest whole unit: `0s`, `30s`, `10m`, `4h`, `2d`."""
    seconds = age_s(milliseconds)
    length, unit = next((step, unit) for step, unit in reversed(_UNITS) if seconds >= step or step == 1)
    return f"{seconds // length}{unit}"


def size(count: int) -> str:
    """Bytes in words: `512B`, `3.4Gi`."""
    for unit in ("B", "Ki", "Mi", "Gi"):
        if count < 1024 or unit == "Gi":
            return f"{count}{unit}" if unit == "B" else f"{count:.1f}{unit}"
        count /= 1024  # type: ignore[assignment]
    raise AssertionError


def deployment_is_ready(deployment: Mapping[str, Any] | None) -> bool:
    """Whether a Deployment has a pod that serves."""
    return deployment is not None and deployment.get("status", {}).get("readyReplicas", 0) > 0


def why_not_ready(deployment: Mapping[str, Any] | None) -> str:
    """What keeps a Deployment from making pods, as Kubernetes says it (a quota, a policy); empty when it says nothing."""
    shown = (deployment or {}).get("status", {}).get("conditions", ())
    bad = {("ReplicaFailure", "True"), ("Progressing", "False")}
    return next((one.get("message", "") for one in shown if (one["type"], one["status"]) in bad), "")
