"""The specs of `Stream` and `Compactor` resources as values: defaults filled in, durations in ms, quantities in bytes.

The CRDs (`crds/`) check types, ranges and enums. This module checks only what a schema cannot express.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bearlake_operator.errors import Invalid

GROUP = "bearlake.dev"
VERSION = "v1alpha1"
UNLIMITED = "unlimited"
MAIN_CONTAINER = "bearlake"
"""Name of the main container in the pods of servers and workers."""

Resource = Mapping[str, Any]
"""A Kubernetes object in its JSON form."""

_DURATION = re.compile(r"([1-9][0-9]*)(ms|s|m|h|d)")
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_QUANTITY = re.compile(r"([1-9][0-9]*)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?")
_QUANTITY_BYTES: Mapping[str, int] = {unit: 1000**power for power, unit in enumerate(("", "k", "M", "G", "T", "P"))} | {
    f"{unit}i": 1024**power for power, unit in enumerate(("", "K", "M", "G", "T", "P")) if unit
}

_QUOTED_NAME = re.compile(r"`[^`]*`")
"""A name of a field in the type of a column."""
TYPE_SHOWN_LENGTH = 100
"""Characters of a type in a message."""


class AccessRule(NamedTuple):
    """An access rule on one stream. The fields have the values of the admin API."""

    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """A Stream's `spec`.

    `configs` are the stream's configs by their Kafka names, including those from `retention` and `table`. `access` has one rule for each
    operation that an item of the spec names.
    """

    name: str
    data_layer: str
    partitions: int
    protocols: tuple[str, ...]
    configs: Mapping[str, str]
    is_deleted_with_resource: bool
    access: frozenset[AccessRule] = frozenset()
    source: str = ""
    """The source of the data layer from which the stream is imported; empty: it is not."""
    column_problem: str = ""
    """Why `table.schema` does not declare one column per item, which the CRD cannot check; empty: it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A weekly time window with its own number of workers. Minutes of the day, `[start, end)`."""

    days: tuple[str, ...]
    start_minute: int
    end_minute: int
    time_zone: str
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorScaling:
    """A Compactor's `spec.autoscaling`."""

    min_replicas: int
    max_replicas: int
    target_backlog_bytes: int
    target_cpu_percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorSpec:
    """A Compactor's `spec`."""

    namespace: str
    name: str
    data_layer: str
    replicas: int
    autoscaling: CompactorScaling | None
    stream_names: tuple[str, ...]
    """Patterns of stream names."""
    stream_selector: Mapping[str, Any] | None
    """Label selector of Streams. Without selector and names, a Compactor has all streams."""
    priorities: tuple[tuple[str, int], ...]
    """Patterns of stream names with their priorities; the first match counts."""
    resources: Mapping[str, Any]
    spark_master: str
    spark_conf: Mapping[str, str]
    spark_executors: Mapping[str, int]
    """Executor pods, in the form of Bearlake's settings `spark.kubernetes`."""
    schedule: tuple[Window, ...]
    priority_class_name: str
    pod_template: Mapping[str, Any]


def stream_spec(resource: Resource) -> StreamSpec:
    """The spec of a Stream. Raises `Invalid`."""
    spec = resource["spec"]
    return StreamSpec(
        name=spec.get("name") or resource["metadata"]["name"],
        data_layer=spec.get("dataLayer", "default"),
        partitions=spec.get("partitions", 1),
        protocols=tuple(sorted(spec.get("protocols", ["kafka"]))),
        configs=_configs(spec),
        is_deleted_with_resource=spec.get("deletionPolicy") == "Delete",
        access=frozenset(
            AccessRule(rule["principal"], rule.get("host", "*"), operation, rule.get("permission", "Allow"))
            for rule in spec.get("access", ())
            for operation in rule["operations"]
        ),
        source=spec.get("source", {}).get("name", ""),
        column_problem=_column_problem(spec.get("table", {}).get("schema", ())),
    )


def compactor_spec(resource: Resource) -> CompactorSpec:
    """The spec of a Compactor. Raises `Invalid`."""
    spec = resource["spec"]
    spark, scaling, streams = spec.get("spark", {}), spec.get("autoscaling"), spec.get("streams", {})
    return CompactorSpec(
        namespace=resource["metadata"]["namespace"],
        name=resource["metadata"]["name"],
        data_layer=spec.get("dataLayer", "default"),
        replicas=spec.get("replicas", 1),
        autoscaling=None if scaling is None else _scaling(scaling),
        stream_names=tuple(streams.get("names", ())),
        stream_selector=streams.get("selector"),
        priorities=tuple((item["streams"], item["priority"]) for item in spec.get("priorities", ())),
        resources=spec.get("resources", {}),
        spark_master=spark.get("master", ""),
        spark_conf=spark.get("conf", {}),
        spark_executors=_executors(spark.get("executors", {})),
        schedule=tuple(_window(window) for window in spec.get("schedule", ())),
        priority_class_name=spec.get("priorityClassName", ""),
        pod_template=_pod_template(spec.get("podTemplate", {})),
    )


def _pod_template(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The template if it has the structure of a pod template, which no schema checks. Raises `Invalid`."""
    for part in ("metadata", "metadata.labels", "metadata.annotations", "spec"):
        value: Any = template
        for key in part.split("."):
            value = value.get(key, {})
            if not isinstance(value, Mapping):
                raise Invalid(f"podTemplate.{part}: expected an object")
    containers = template.get("spec", {}).get("containers", [{"name": MAIN_CONTAINER}])
    listed = containers if isinstance(containers, list) else []
    names = [container.get("name") for container in listed if isinstance(container, Mapping)]
    if MAIN_CONTAINER not in names:
        raise Invalid(
            f"podTemplate.spec.containers: the list replaces the default containers and must include {MAIN_CONTAINER}"
        )
    return template


def _executors(executors: Mapping[str, Any]) -> dict[str, int]:
    found = {
        setting: executors[field]
        for field, setting in (("count", "executor_count"), ("cores", "executor_core_count"))
        if field in executors
    }
    if "memory" in executors:
        found["executor_python_bytes"] = quantity_bytes(executors["memory"])
    return found


def duration_ms(text: str) -> int:
    """A duration such as `36h` in ms; -1 for `unlimited`. Raises `Invalid`."""
    if text == UNLIMITED:
        return -1
    match = _DURATION.fullmatch(text)
    if match is None:
        raise Invalid(f"{text!r}: expected a duration such as 500ms, 10s, 36h or 7d")
    return int(match[1]) * _DURATION_MS[match[2]]


def quantity_bytes(text: str) -> int:
    """A quantity such as `50Gi` in bytes; -1 for `unlimited`. Raises `Invalid`."""
    if text == UNLIMITED:
        return -1
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise Invalid(f"{text!r}: expected bytes such as 1000000, 256Mi or 50G")
    return int(match[1]) * _QUANTITY_BYTES[match[2] or ""]


def _configs(spec: Mapping[str, Any]) -> Mapping[str, str]:
    retention, table = spec.get("retention", {}), spec.get("table", {})
    values, keys, current = table.get("values", {}), table.get("keys", {}), table.get("current", {})
    configs = dict(spec.get("configs", {}))
    for fields, key, config, convert in (
        (retention, "time", "retention.ms", duration_ms),
        (retention, "bytes", "retention.bytes", quantity_bytes),
        (table, "enabled", "table.enable", lambda value: str(value).lower()),
        (table, "freshness", "table.freshness_ms", duration_ms),
        (table, "namespace", "table.namespace", str),
        (table, "name", "table.name", str),
        (table, "retention", "table.retention_ms", duration_ms),
        (table, "onDelete", "table.on_delete", str.lower),
        (table, "schema", "table.columns", _columns),
        (values, "mode", "table.value.mode", str.lower),
        (values, "subjects", "table.value.subjects", ",".join),
        (values, "schemaId", "table.value.schema_id", str),
        (keys, "mode", "table.key.mode", str.lower),
        (keys, "schemaId", "table.key.schema_id", str),
        (current, "enabled", "table.current", lambda value: "on" if value else "off"),
        (current, "buckets", "table.current.buckets", str),
        (current, "envelope", "table.current.envelope", str.lower),
        (current, "freshness", "table.current.freshness_ms", duration_ms),
    ):
        if key in fields:
            configs[config] = str(convert(fields[key]))
    return configs


def _columns(schema: Sequence[Mapping[str, str]]) -> str:
    """The columns of a table as the text of `table.columns`. Names have no backtick (the CRD's pattern)."""
    return ", ".join(f"`{column['name']}` {column['type']}" for column in schema)


def _column_problem(schema: Sequence[Mapping[str, str]]) -> str:
    """Name the first column whose type is not one type: as a part of the text of `table.columns`, it would change other columns."""
    for column in schema:
        if not _is_one_type(column["type"]):
            return (
                f"spec.table.schema: the type of column {column['name']!r} is not one type, or its brackets do not"
                f" match: {column['type'][:TYPE_SHOWN_LENGTH]!r}"
            )
    return ""


def _is_one_type(text: str) -> bool:
    """Whether all commas are in brackets, all brackets match, and all quoted names end. The data layer checks the rest."""
    open_count = 0
    for mark in _QUOTED_NAME.sub("", text):
        open_count += (mark in "<(") - (mark in ">)")
        if open_count < 0 or mark == "`" or (mark == "," and not open_count):
            return False
    return not open_count


def _scaling(scaling: Mapping[str, Any]) -> CompactorScaling:
    return CompactorScaling(
        min_replicas=scaling.get("minReplicas", 1),
        max_replicas=scaling["maxReplicas"],
        target_backlog_bytes=quantity_bytes(scaling.get("targetBacklogBytes", "256Mi")),
        target_cpu_percent=scaling.get("targetCPUUtilization", 70),
    )


def _window(window: Mapping[str, Any]) -> Window:
    return Window(
        days=tuple(window.get("days", ())),
        start_minute=_minute(window["start"]),
        end_minute=_minute(window["end"]),
        time_zone=window.get("timeZone", "UTC"),
        replicas=window["replicas"],
    )


def _minute(text: str) -> int:
    hours, _, minutes = text.partition(":")
    return int(hours) * 60 + int(minutes)


def namespaced_name(resource: Resource) -> tuple[str, str]:
    """The namespace and name of a resource."""
    return resource["metadata"]["namespace"], resource["metadata"]["name"]


def spec_version(resource: Resource) -> tuple[str, int]:
    """The uid of a resource and the generation of its spec. A changed spec has another one, and so has a new resource of the same name."""
    metadata = resource["metadata"]
    return metadata["uid"], metadata.get("generation", 0)


def is_terminating(resource: Resource) -> bool:
    """Whether a resource is being deleted."""
    return "deletionTimestamp" in resource["metadata"]


def oldest_first(resources: Sequence[Resource]) -> list[Resource]:
    """Sort by creation time; resources of the same second by namespace and name."""

    def age(resource: Resource) -> tuple[str, str, str]:
        return (created(resource), *namespaced_name(resource))

    return sorted(resources, key=age)


def created(resource: Resource) -> str:
    """The creation time in Kubernetes' format, with a resolution of one second."""
    time: str = resource["metadata"].get("creationTimestamp", "")
    return time
