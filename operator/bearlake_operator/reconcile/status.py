"""The status of Streams and Compactors as pure functions of what was observed.

The same observation gives the same status, including transition times, so an unchanged status is never written again. Ages change all
the time, so they are rounded down to coarse steps (10 s, 1 min …).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bearlake_operator.admin import Backlog, Commits, ObservedStream
from bearlake_operator.api import Resource
from bearlake_operator.reconcile import access, endpoints, imports
from bearlake_operator.reconcile.access import AccessView
from bearlake_operator.reconcile.claims import Claim
from bearlake_operator.reconcile.stream_changes import IMPORT_SOURCE
from bearlake_operator.settings import Settings

NO_BACKLOG = Backlog()
NO_ADDRESSES = endpoints.ExternalAddresses()
NO_ACCESS = AccessView()
FRESHNESS_MS = 10_000
"""Default of `table.freshness_ms`."""
BEHIND_FACTOR = 10
BEHIND_MS_MIN = 120_000
"""A table is behind if its oldest uncompacted record is older than ten times the freshness and older than two minutes. The minimum exists
because figures are up to a minute old."""
NEVER = "1970-01-01T00:00:00Z"
"""Transition time of the default conditions in the CRD."""

LAST_COMMIT_COUNT = 5
STREAM_COUNT_SHOWN = 3

_DAY_S = 86400
_AGES_S = (0, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200)
_UNITS = ((1, "s"), (60, "m"), (3600, "h"), (_DAY_S, "d"))


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a resource; `is_true` None: Unknown."""

    type: str
    is_true: bool | None
    reason: str
    message: str


def conditions(current: Sequence[Condition], resource: Resource, now: str) -> list[dict[str, Any]]:
    """The conditions for `status.conditions`. A condition whose status has not changed keeps its transition time.

    Source: Kubernetes API conventions.
    """
    before = {condition["type"]: condition for condition in resource.get("status", {}).get("conditions", ())}
    shown = []
    for condition in current:
        status = {True: "True", False: "False", None: "Unknown"}[condition.is_true]
        old = before.get(condition.type, {})
        is_same = old.get("status") == status and old["lastTransitionTime"] != NEVER
        # Keep the first message of an Unknown condition: the error text differs between attempts.
        keeps_message = is_same and condition.is_true is None and old["reason"] == condition.reason
        shown.append(
            {
                "type": condition.type,
                "status": status,
                "observedGeneration": resource["metadata"].get("generation", 0),
                "reason": condition.reason,
                "message": old["message"] if keeps_message else condition.message,
                "lastTransitionTime": old["lastTransitionTime"] if is_same else now,
            }
        )
    return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """What was observed of a Stream.

    `problem` says that the data layer refuses the Stream or does not exist. `conflict` names a part of the spec that cannot be applied.
    `unready_tiers` are the required tiers without a ready pod. `has_compactor`: some Compactor compacts the stream.
    """

    claim: Claim
    observed: ObservedStream | None
    problem: str = ""
    conflict: str = ""
    is_reachable: bool = True
    unready_tiers: Sequence[str] = ()
    backlog: Backlog = NO_BACKLOG
    has_compactor: bool = False
    addresses: endpoints.ExternalAddresses = NO_ADDRESSES
    access: AccessView = NO_ACCESS


def stream(settings: Settings, namespace: str, resource: Resource, view: StreamView, now: str) -> dict[str, Any]:
    """The status of a Stream; `namespace` is that of the operator and the tiers."""
    claim, observed = view.claim, view.observed
    spec = claim.spec
    shown: dict[str, Any] = {
        "observedGeneration": resource["metadata"].get("generation", 0),
        "name": spec.name,
        "protocols": ",".join(spec.protocols),
        "conditions": conditions(_stream_conditions(view), resource, now),
    }
    before = resource.get("status", {})
    if own := access.listed(resource).difference(view.access.deleted):
        shown["accessRules"] = access.shown(own)
    if not claim.is_owner:
        return shown
    if observed is None:
        preserved = ("streamId", "partitions", "recordCount", "sizeBytes", "appliedConfigs", "table", "endpoints")
        return {**{key: before[key] for key in preserved if key in before}, **shown}
    shown |= {
        "streamId": observed.id,
        "partitions": observed.partitions,
        "recordCount": observed.record_count,
        "sizeBytes": observed.size_bytes,
        "appliedConfigs": sorted([*spec.configs, *([IMPORT_SOURCE] if _is_importing(view) else [])]),
        "endpoints": endpoints.endpoints(settings, namespace, spec.data_layer, spec.protocols, view.addresses),
    }
    if spec.source:
        shown["import"] = {
            "source": spec.source,
            "state": imports.IMPORTING if _is_importing(view) else imports.PROMOTED,
        }
    if _has_table(observed):
        table = observed.configs.get("table.name") or spec.name.replace(".", "_")
        shown["table"] = {
            "name": f"{observed.configs.get('table.namespace', 'streams')}.{table}",
            "freshness": age(view.backlog.age_ms),
            "backlogBytes": view.backlog.size_bytes,
        }
    return shown


def deletion_blocked(resource: Resource, problem: str, now: str) -> dict[str, Any]:
    """The status of a terminating Stream whose records or access rules cannot be deleted: the reason, and how to keep them."""
    namespace, name = resource["metadata"]["namespace"], resource["metadata"]["name"]
    what, patch = "records", '{"spec":{"deletionPolicy":"Retain"}}'
    if access.listed(resource):
        what, patch = "records and access rules", '{"metadata":{"finalizers":null}}'
    message = (
        f"What belongs to the Stream cannot be deleted yet: {problem}. "
        f"To delete the Stream and keep its {what}: kubectl -n {namespace} patch stream {name} --type merge -p '{patch}'"
    )
    shown = conditions([Condition("Ready", False, "DeletionBlocked", message)], resource, now)
    return {**resource.get("status", {}), "observedGeneration": shown[0]["observedGeneration"], "conditions": shown}


def _stream_conditions(view: StreamView) -> list[Condition]:
    claim = view.claim
    if claim.refusal:
        return [Condition(type_, False, "NameNotAllowed", claim.refusal) for type_ in ("Ready", "Claimed")]
    if not claim.is_owner:
        message = f"The stream name {claim.spec.name} is already used by the older Stream {'/'.join(claim.owner)}."
        return [Condition("Ready", False, "NameTaken", message), Condition("Claimed", False, "NameTaken", message)]
    synced, accessible = _synced(view), _access_synced(view)
    ready = synced
    if accessible and not accessible.is_true and synced.is_true is not False:
        ready = accessible
    elif synced.is_true and view.unready_tiers:
        message = f"No pod is ready for {', '.join(view.unready_tiers)}."
        ready = Condition("Ready", False, "TierNotReady", message)
    elif synced.is_true:
        ready = Condition("Ready", True, "Serving", "")
    return [
        Condition("Ready", ready.is_true, ready.reason, ready.message),
        Condition("Synced", synced.is_true, synced.reason, synced.message),
        *([accessible] if accessible else []),
        Condition("Claimed", True, "Owner", ""),
        *([_table_ready(view, view.observed)] if view.observed is not None and _has_table(view.observed) else []),
    ]


def _synced(view: StreamView) -> Condition:
    """Whether the stream in the data layer matches the spec."""
    if not view.is_reachable:
        return Condition("Synced", None, "DataLayerUnavailable", view.problem)
    if view.problem:
        return Condition("Synced", False, "Refused", view.problem)
    if view.observed is None and view.claim.spec.source:
        message = f"The import from {view.claim.spec.source} has not created the stream yet."
        return Condition("Synced", None, "Importing", message)
    if view.observed is None:
        return Condition("Synced", None, "Pending", "The stream is not created yet.")
    if view.conflict:
        return Condition("Synced", False, "MorePartitions", view.conflict)
    return Condition("Synced", True, "InSync", "")


def _is_importing(view: StreamView) -> bool:
    """Whether the stream is what the import of its source fills."""
    return bool(view.claim.spec.source and view.observed and IMPORT_SOURCE in view.observed.configs)


def _access_synced(view: StreamView) -> Condition | None:
    """Whether the access rules of the spec are in force; None if there are none, and nothing went wrong with former ones."""
    found = view.access
    if not view.claim.spec.access and not found.problem:
        return None
    if not view.is_reachable:
        return Condition("AccessSynced", None, "DataLayerUnavailable", view.problem)
    if found.problem and found.is_refused:
        return Condition("AccessSynced", False, "AccessRefused", found.problem)
    if found.problem:
        return Condition("AccessSynced", None, "AccessUnknown", found.problem)
    if not found.are_granted:
        return Condition("AccessSynced", None, "Pending", "The access rules are not created yet.")
    if found.existing:
        rules = access.describe_all(found.existing)
        message = (
            f"These access rules existed before the Stream named them. They stay when it no longer names them: {rules}."
        )
        return Condition("AccessSynced", True, "ExistingRules", message)
    return Condition("AccessSynced", True, "InSync", "")


def _has_table(observed: ObservedStream) -> bool:
    return observed.configs.get("table.enable", "true") == "true"


def _table_ready(view: StreamView, observed: ObservedStream) -> Condition:
    """Whether the table is about as fresh as `table.freshness` asks for."""
    backlog, freshness_ms = view.backlog, int(observed.configs.get("table.freshness_ms", FRESHNESS_MS))
    if not view.has_compactor and (backlog.size_bytes or not observed.record_count):
        message = "No Compactor selects this stream. Create a Compactor, or extend the `streams` of an existing one."
        return Condition("TableReady", False, "NoCompactor", message)
    if backlog.age_ms > max(BEHIND_FACTOR * freshness_ms, BEHIND_MS_MIN):
        message = (
            f"The oldest record that is not in the table is {age(backlog.age_ms)} old; see `kubectl get compactors`."
        )
        return Condition("TableReady", False, "Behind", message)
    if not observed.record_count:
        return Condition("TableReady", None, "NoRecords", "The stream has no records yet.")
    return Condition("TableReady", True, "Fresh", "")


def is_synced(resource: Resource, type_: str = "Synced") -> bool:
    """Whether a Stream's status reports that this condition is true for its current generation."""
    shown = resource.get("status", {}).get("conditions", ())
    synced: Mapping[str, Any] = next((condition for condition in shown if condition["type"] == type_), {})
    generation = resource["metadata"].get("generation", 0)
    return synced.get("status") == "True" and synced.get("observedGeneration") == generation


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorView:
    """What was observed of a Compactor. `problem` is an error in its spec or on its objects; figures are None if unknown."""

    problem: str = ""
    replicas: int = 0
    ready_replicas: int = 0
    desired_replicas: int = 0
    selector: str = ""
    backlog: Backlog | None = None
    quarantined_count: int = 0
    commits: Commits | None = None
    streams: Sequence[str] = ()


_BACKLOG_FIELDS = ("backlogBytes", "backlog", "lagSeconds", "lag")
_COMMIT_FIELDS = ("commitCount", "lastCommits", "lastCommitTime")


def compactor(resource: Resource, view: CompactorView, now: str) -> dict[str, Any]:
    """The status of a Compactor. Figures that are unknown now keep their previous values."""
    before = resource.get("status", {})
    unknown = (
        *(_BACKLOG_FIELDS if view.backlog is None else ()),
        *(_COMMIT_FIELDS if view.commits is None else ()),
    )
    shown: dict[str, Any] = {key: before[key] for key in unknown if key in before} | {
        "observedGeneration": resource["metadata"].get("generation", 0),
        "replicas": view.replicas,
        "readyReplicas": view.ready_replicas,
        "selector": view.selector,
        "streams": _streams_text(view.streams),
        "quarantinedCount": view.quarantined_count,
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
            {"stream": commits.stream, "time": time_text(commits.time_ms), "count": commits.count}
            for commits in view.commits.streams[:LAST_COMMIT_COUNT]
        ]
        if view.commits.streams:
            shown["lastCommitTime"] = time_text(view.commits.streams[0].time_ms)
    return shown


def _compactor_conditions(view: CompactorView) -> list[Condition]:
    if view.problem:
        return [Condition("Ready", False, "Invalid", view.problem)]
    if view.ready_replicas < view.desired_replicas:
        message = f"{view.ready_replicas} of {view.desired_replicas} workers are ready."
        return [Condition("Ready", False, "WorkersNotReady", message)]
    found = [Condition("Ready", True, "Paused" if view.desired_replicas == 0 else "Working", "")]
    if view.quarantined_count:
        message = (
            f"{view.quarantined_count} tasks were quarantined after repeated failures; see `bearlake compaction tasks`."
        )
        found.append(Condition("TasksQuarantined", True, "Failing", message))
    return found


def _streams_text(patterns: Sequence[str]) -> str:
    """The first patterns of a Compactor's streams, for a printer column."""
    shown = ",".join(patterns[:STREAM_COUNT_SHOWN]) if patterns else "*"
    more = len(patterns) - STREAM_COUNT_SHOWN
    return f"{shown},… ({more} more)" if more > 0 else shown


def time_text(milliseconds: int) -> str:
    """A Unix time in Kubernetes' format, with a resolution of seconds."""
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def age_s(milliseconds: int) -> int:
    """A duration in seconds, rounded down to a step of `_AGES_S` or to days, so that a growing age rarely changes the status."""
    seconds = milliseconds // 1000
    if seconds >= _DAY_S:
        return seconds // _DAY_S * _DAY_S
    return max(step for step in _AGES_S if step <= max(seconds, 0))


def age(milliseconds: int) -> str:
    """A duration, rounded as by `age_s`, in its largest whole unit: `0s`, `30s`, `10m`, `4h`, `2d`."""
    seconds = age_s(milliseconds)
    length, unit = next((step, unit) for step, unit in reversed(_UNITS) if seconds >= step or step == 1)
    return f"{seconds // length}{unit}"


def size(count: int) -> str:
    """A number of bytes for people: `512B`, `3.4Gi`."""
    for unit in ("B", "Ki", "Mi", "Gi"):
        if count < 1024 or unit == "Gi":
            return f"{count}{unit}" if unit == "B" else f"{count:.1f}{unit}"
        count /= 1024  # type: ignore[assignment]
    raise AssertionError


def deployment_is_ready(deployment: Mapping[str, Any] | None) -> bool:
    """Whether a Deployment has a ready pod."""
    return deployment is not None and deployment.get("status", {}).get("readyReplicas", 0) > 0


def why_not_ready(deployment: Mapping[str, Any] | None) -> str:
    """Kubernetes' message about why a Deployment cannot create pods, such as a quota or a policy; empty if there is none."""
    shown = (deployment or {}).get("status", {}).get("conditions", ())
    failures = {("ReplicaFailure", "True"), ("Progressing", "False")}
    return next(
        (condition.get("message", "") for condition in shown if (condition["type"], condition["status"]) in failures),
        "",
    )
