"""From two readings to figures: rates, latencies, lag and cost, as the document that `bearlake top --json` prints.

A counter that became smaller belongs to a server that has started anew: it counts from zero. A server that is new in the second reading
has no rates yet.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bearlake.cli.top.metrics_page import Labels, MetricsPage, quantile
from bearlake.cli.top.readings import Reading, ServerReading

REQUEST_COUNTERS = (
    "bearlake_kafka_requests_total",
    "bearlake_pulsar_commands_total",
    "bearlake_pulsar_http_requests_total",
    "bearlake_rest_requests_total",
    "bearlake_registry_requests_total",
    "bearlake_catalog_requests_total",
    "bearlake_grpc_calls_total",
)
CONNECTION_GAUGES = (
    "bearlake_kafka_open_connections",
    "bearlake_pulsar_open_connections",
    "bearlake_pulsar_http_open_connections",
    "bearlake_rest_open_connections",
    "bearlake_registry_open_connections",
    "bearlake_catalog_open_connections",
    "bearlake_grpc_open_connections",
)
OPERATIONS = ("put", "read", "size", "list", "delete")
_SECONDS_A_DAY = 86_400

_COUNTERS: Mapping[str, Sequence[str]] = {
    "append_records_per_s": ("bearlake_append_records_total",),
    "append_bytes_per_s": ("bearlake_append_bytes_total",),
    "fetch_bytes_per_s": ("bearlake_fetch_bytes_total",),
    "requests_per_s": REQUEST_COUNTERS,
    "commits_per_s": ("bearlake_log_commits_total",),
    "cpu_cores": ("process_cpu_seconds_total",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of 1,000 requests to the object store, in any one currency."""

    put: float
    """PUT and LIST."""
    get: float
    """GET and HEAD. Deletions are free at the large providers."""

    def of(self, operation: str) -> float:
        """Return the price of one request."""
        return {"put": self.put, "list": self.put, "read": self.get, "size": self.get}.get(operation, 0.0) / 1000


def figures(before: Reading, after: Reading, prices: Prices) -> dict[str, Any]:
    """Return the figures of the time between two readings, for JSON and for the screen."""
    seconds = max(after.at_s - before.at_s, 1e-3)
    former = {_identity(server): server for server in before.servers}
    pairs = [(former.get(_identity(server)), server) for server in after.servers]
    servers = [_server(old, new, seconds) for old, new in pairs]
    pages = [
        (old.page, new.page) for old, new in pairs if old is not None and old.page is not None and new.page is not None
    ]
    return {
        "time_ms": after.time_ms,
        "interval_s": round(seconds, 3),
        "totals": _totals(servers, pages),
        "object_store": _object_store(pages, seconds, prices),
        "compaction": _compaction(after.backlog),
        "servers": servers,
        "streams": _streams(before, after, seconds),
        "groups": sorted((dict(group) for group in after.groups), key=lambda group: (-group["lag"], group["group"])),
        "incomplete": [
            name
            for name, is_complete in (("streams", after.are_streams_complete), ("groups", after.are_groups_complete))
            if not is_complete
        ],
        "problems": list(after.problems),
    }


def _identity(server: ServerReading) -> tuple[int, int]:
    return server.row["node_id"], server.row["epoch"]


def _server(old: ServerReading | None, new: ServerReading, seconds: float) -> dict[str, Any]:
    row = new.row
    found: dict[str, Any] = {
        "node_id": row["node_id"],
        "name": row["name"],
        "zone": row["zone"],
        "state": "draining" if row["is_draining"] else "live" if new.page is not None else "no metrics",
        "heartbeat_age_ms": row["heartbeat_age_ms"],
        "problem": new.problem or None,
    }
    before, after = old.page if old is not None else None, new.page
    for key, names in _COUNTERS.items():
        rate = None if before is None or after is None else sum(_grown(before, after, name) for name in names) / seconds
        found[key] = None if rate is None else round(rate, 3)
    if after is not None:
        found["memory_bytes"] = int(after.total("process_resident_memory_bytes"))
        found["connection_count"] = int(sum(after.total(name) for name in CONNECTION_GAUGES))
        found["log_lag_entries"] = int(after.total("bearlake_log_follow_lag_entries"))
    return found


def _totals(servers: Sequence[Mapping[str, Any]], pages: Sequence[tuple[MetricsPage, MetricsPage]]) -> dict[str, Any]:
    totals: dict[str, Any] = {key: round(sum(server[key] or 0 for server in servers), 3) for key in _COUNTERS}
    totals["server_count"] = len(servers)
    totals["connection_count"] = sum(server.get("connection_count") or 0 for server in servers)
    for key, name, part in (
        ("append_p99_ms", "bearlake_append_seconds", 0.99),
        ("put_p99_ms", "bearlake_objects_operation_seconds", 0.99),
        ("commit_p99_ms", "bearlake_log_commit_seconds", 0.99),
    ):
        wanted = {"operation": "put"} if key == "put_p99_ms" else {}
        seconds = _quantile(pages, name, part, wanted)
        totals[key] = None if seconds is None else round(seconds * 1000, 2)
    return totals


def _quantile(pages: Sequence[tuple[MetricsPage, MetricsPage]], name: str, part: float, wanted: Labels) -> float | None:
    def is_counted(labels: Labels) -> bool:
        return all(labels.get(key) == value for key, value in wanted.items())

    before: dict[float, float] = {}
    after: dict[float, float] = {}
    for old, new in pages:
        for bound, count in new.buckets(name, is_counted).items():
            after[bound] = after.get(bound, 0.0) + count
        for bound, count in old.buckets(name, is_counted).items():
            before[bound] = before.get(bound, 0.0) + count
    return quantile(part, before, after)


def _object_store(pages: Sequence[tuple[MetricsPage, MetricsPage]], seconds: float, prices: Prices) -> dict[str, Any]:
    def of(operation: str) -> Callable[[Labels], bool]:
        return lambda labels: labels.get("operation") == operation

    name = "bearlake_objects_calls_total"
    rates = {
        operation: sum(_grown(old, new, name, of(operation)) for old, new in pages) / seconds
        for operation in OPERATIONS
    }
    bytes_per_s = {
        key: sum(_grown(old, new, counter) for old, new in pages) / seconds
        for key, counter in (
            ("put_bytes_per_s", "bearlake_objects_put_bytes_total"),
            ("read_bytes_per_s", "bearlake_objects_read_bytes_total"),
        )
    }
    cost = sum(rate * prices.of(operation) for operation, rate in rates.items()) * _SECONDS_A_DAY
    return {
        "requests_per_s": {operation: round(rate, 3) for operation, rate in rates.items()},
        **{key: round(rate, 1) for key, rate in bytes_per_s.items()},
        "cost_per_day": round(cost, 4),
        "put_price": prices.put,
        "get_price": prices.get,
    }


def _compaction(backlog: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "backlog_bytes": backlog.get("size_bytes"),
        "backlog_records": backlog.get("record_count"),
        "freshness_ms": backlog.get("age_ms"),
        "quarantined_count": backlog.get("quarantined_count"),
    }


def _streams(before: Reading, after: Reading, seconds: float) -> list[dict[str, Any]]:
    """Return the streams, the busiest first. `freshness_ms`: how long the oldest record has waited for the table; 0: none waits."""
    former = {stream["id"]: stream for stream in before.streams}
    waiting = {stream["stream"]: stream for stream in after.backlog.get("streams", ())}
    rows = []
    for stream in after.streams:
        old = former.get(stream["id"])
        grown = {
            key: None if old is None else round(max(0, stream[key] - old[key]) / seconds, 3)
            for key in ("record_count", "size_bytes")
        }
        backlog = waiting.get(stream["name"], {})
        rows.append(
            {
                "stream": stream["name"],
                "partition_count": stream["partition_count"],
                "records_per_s": grown["record_count"],
                "bytes_per_s": grown["size_bytes"],
                "record_count": stream["record_count"],
                "size_bytes": stream["size_bytes"],
                "table_lag_records": backlog.get("record_count", 0),
                "freshness_ms": backlog.get("age_ms", 0),
            }
        )
    rows.sort(key=lambda row: (-(row["bytes_per_s"] or 0), -row["table_lag_records"], row["stream"]))
    return rows


def _grown(
    old: MetricsPage, new: MetricsPage, name: str, is_counted: Callable[[Labels], bool] = lambda _: True
) -> float:
    before, after = old.total(name, is_counted), new.total(name, is_counted)
    return after - before if after >= before else after
