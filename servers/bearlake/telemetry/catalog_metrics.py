"""Metrics of the Iceberg REST catalog; see `metrics.py`."""

from bearlake.telemetry.metrics import counters, gauge, latency

CATALOG_REQUESTS = counters(
    "bearlake_catalog_requests_total", "Requests to the Iceberg REST catalog, by status class.", "status"
)
CATALOG_ERRORS = counters(
    "bearlake_catalog_errors_total", "Error responses, by the type of the error in Iceberg's form.", "error"
)
CATALOG_REQUEST_SECONDS = latency("bearlake_catalog_request_seconds", "Time from request head to response.")
CATALOG_OPEN_REQUESTS = gauge("bearlake_catalog_open_requests", "Requests to the Iceberg REST catalog in progress.")
CATALOG_OPEN_REQUESTS_MAX = gauge(
    "bearlake_catalog_open_requests_limit", "Limit of requests to the Iceberg REST catalog in progress."
)
