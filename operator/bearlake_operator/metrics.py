"""The operator's metrics; labels are bounded by kinds and words of the program."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

REGISTRY = CollectorRegistry()
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

API_REQUESTS = Counter(
    "bearlake_operator_api_requests_total", "Requests to the Kubernetes API.", ("verb", "status"), registry=REGISTRY
)
RECONCILES = Counter(
    "bearlake_operator_reconciles_total", "Reconciliations by kind and outcome.", ("kind", "outcome"), registry=REGISTRY
)
RECONCILE_SECONDS = Histogram(
    "bearlake_operator_reconcile_seconds",
    "Time of a reconciliation.",
    ("kind",),
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
    registry=REGISTRY,
)
LAST_SUCCESS = Gauge(
    "bearlake_operator_last_success_seconds",
    "When a reconciliation last succeeded (Unix time).",
    ("kind",),
    registry=REGISTRY,
)
WRITES = Counter(
    "bearlake_operator_writes_total", "Changes sent to the Kubernetes API, by kind.", ("kind",), registry=REGISTRY
)
DATA_PLANE_REQUESTS = Counter(
    "bearlake_operator_data_plane_requests_total",
    "Requests to admin APIs, by outcome.",
    ("outcome",),
    registry=REGISTRY,
)
MISSED_EVENTS = Counter(
    "bearlake_operator_missed_events_total",
    "Changes that no watch has told, found by listing.",
    ("kind",),
    registry=REGISTRY,
)
IS_LEADER = Gauge("bearlake_operator_is_leader", "Whether this process leads.", registry=REGISTRY)

# The metrics API, a process of its own
METRICS_API_REQUESTS = Counter(
    "bearlake_metrics_api_requests_total", "Requests of the API server, by status.", ("status",), registry=REGISTRY
)
METRICS_API_SCRAPES = Counter(
    "bearlake_metrics_api_scrapes_total", "Questions to pods, by outcome.", ("outcome",), registry=REGISTRY
)
METRICS_API_SCRAPE_SECONDS = Histogram(
    "bearlake_metrics_api_scrape_seconds",
    "Time until a pod answered.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10),
    registry=REGISTRY,
)
METRICS_API_PODS = Gauge("bearlake_metrics_api_pods", "Pods whose counters are known.", registry=REGISTRY)


def expose() -> bytes:
    """All metrics in the text format of Prometheus."""
    return generate_latest(REGISTRY)
