"""Metrics of the Iceberg REST catalog; see `metrics.py`."""

from bearlake.telemetry.declaring import counter, counters, gauge, latency

CATALOG_REQUESTS = counters(
    "bearlake_catalog_requests_total", "Requests to the Iceberg REST catalog, by status class.", "status"
)
CATALOG_ERRORS = counters(
    "bearlake_catalog_errors_total", "Error responses, by the type of the error in Iceberg's form.", "error"
)
CATALOG_REQUEST_SECONDS = latency("bearlake_catalog_request_seconds", "Time from request head to response.")
CATALOG_CONNECTIONS = gauge("bearlake_catalog_open_connections", "Open connections to the Iceberg REST catalog.")
CATALOG_OPEN_REQUESTS = gauge("bearlake_catalog_open_requests", "Requests to the Iceberg REST catalog in progress.")
CATALOG_OPEN_REQUESTS_MAX = gauge(
    "bearlake_catalog_open_requests_limit", "Limit of requests to the Iceberg REST catalog in progress."
)

LIVE_BUILD_SECONDS = latency("bearlake_live_build_seconds", "Time to build a live view of a table.")
LIVE_PIECES = counter("bearlake_live_pieces_total", "Pieces that were written for live views.")
LIVE_PIECE_RECORDS = counter(
    "bearlake_live_piece_records_total", "Records in the pieces that were written for live views."
)
LIVE_PIECE_BYTES = counter("bearlake_live_piece_bytes_total", "Bytes of the pieces that were written for live views.")

PLAN_SECONDS = latency("bearlake_catalog_plan_seconds", "Time to plan a scan that had a place.")
PLANS_RUNNING = gauge("bearlake_catalog_plans_running", "Scans that are being planned.")
PLANS_RUNNING_MAX = gauge("bearlake_catalog_plans_running_limit", "Limit of scans that are being planned.")
PLAN_BYTES = gauge("bearlake_catalog_plan_bytes", "Bytes of plans in memory.")
PLAN_BYTES_MAX = gauge("bearlake_catalog_plan_bytes_limit", "Limit of bytes of plans in memory.")
CREDENTIALS = counters(
    "bearlake_catalog_credentials_total", "Temporary keys that STS was asked for, by outcome.", "outcome"
)
CREDENTIALS_KEPT = gauge("bearlake_catalog_credentials_kept", "Temporary keys in memory.")
CREDENTIALS_KEPT_MAX = gauge("bearlake_catalog_credentials_kept_limit", "Limit of temporary keys in memory.")

SQL_SECONDS = latency("bearlake_catalog_sql_seconds", "Time to run a statement of a client that had a place.")
SQL_RUNNING = gauge("bearlake_catalog_sql_running", "Statements of clients that run.")
SQL_RUNNING_MAX = gauge("bearlake_catalog_sql_running_limit", "Limit of statements that run.")
SQL_WAITING = gauge("bearlake_catalog_sql_waiting", "Statements of clients that wait for a place.")
SQL_WAITING_MAX = gauge("bearlake_catalog_sql_waiting_limit", "Limit of statements that wait for a place.")
