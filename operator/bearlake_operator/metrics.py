"""The operator's metrics. Label values come from fixed sets: kinds, verbs, statuses, outcomes, and configured data layers."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY = CollectorRegistry()
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

API_REQUESTS = Counter(
    "bearlake_operator_api_requests_total",
    "Requests to the Kubernetes API, by verb and status.",
    ("verb", "status"),
    registry=REGISTRY,
)
RECONCILES = Counter(
    "bearlake_operator_reconciles_total",
    "Reconciliations, by controller and outcome.",
    ("kind", "outcome"),
    registry=REGISTRY,
)
RECONCILE_SECONDS = Histogram(
    "bearlake_operator_reconcile_seconds",
    "Duration of a reconciliation, by controller.",
    ("kind",),
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
    registry=REGISTRY,
)
LAST_SUCCESS = Gauge(
    "bearlake_operator_last_success_seconds",
    "Time of the last successful reconciliation, by controller (Unix time).",
    ("kind",),
    registry=REGISTRY,
)
CONTAINED_FAULTS = Counter(
    "bearlake_operator_contained_faults_total",
    "Bugs in a step for one resource, which stopped that step alone, by step.",
    ("step",),
    registry=REGISTRY,
)
WRITES = Counter(
    "bearlake_operator_writes_total", "Writes to the Kubernetes API, by kind.", ("kind",), registry=REGISTRY
)
DATA_PLANE_REQUESTS = Counter(
    "bearlake_operator_data_plane_requests_total",
    "Requests to the admin API of data layers, by outcome.",
    ("outcome",),
    registry=REGISTRY,
)
MISSED_EVENTS = Counter(
    "bearlake_operator_missed_events_total",
    "Changes that a watch missed and a resync found, by kind.",
    ("kind",),
    registry=REGISTRY,
)
IS_LEADER = Gauge("bearlake_operator_is_leader", "1 if this process is the leader, else 0.", registry=REGISTRY)

# The metrics API, which is a separate process.
METRICS_API_REQUESTS = Counter(
    "bearlake_metrics_api_requests_total", "Requests from the API server, by status.", ("status",), registry=REGISTRY
)
METRICS_API_SCRAPES = Counter(
    "bearlake_metrics_api_scrapes_total", "Scrapes of pods, by outcome.", ("outcome",), registry=REGISTRY
)
METRICS_API_SCRAPE_SECONDS = Histogram(
    "bearlake_metrics_api_scrape_seconds",
    "Duration of a scrape.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10),
    registry=REGISTRY,
)
METRICS_API_PODS = Gauge("bearlake_metrics_api_pods", "Pods with known counters.", registry=REGISTRY)


def expose() -> bytes:
    """All metrics in the text format of Prometheus."""
    return generate_latest(REGISTRY)
