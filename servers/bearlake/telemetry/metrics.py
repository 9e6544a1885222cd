"""All metrics of a server, by part. This file and `catalog_metrics.py` are their complete reference.

Names are `bearlake_<part>_<what>_<unit>[_total]`. Labels are bounded: names of operations, outcomes and error kinds, never keys,
streams or client ids. A name below without labels is the counter itself; a name with labels is a family whose children are bound
once, outside the hot path: `PUT_ERRORS.labels("Unavailable")`. Latencies are in seconds, sizes in bytes, in shared buckets.

`exposition.py` shows them.
"""

from bearlake.telemetry.declaring import counter, counters, gauge, gauges, latencies, latency, sizes

# The server process
SERVER_INFO = gauges("bearlake_server_info", "Always 1; see the labels.", "version", "kernel")
SERVER_START_SECONDS = gauge("bearlake_server_start_seconds", "Time from the start of the process to readiness.")
SERVER_LIVE = gauge("bearlake_server_live_servers", "Live servers of the deployment, as seen by this server.")
SERVER_HEARTBEATS = counters("bearlake_server_heartbeats_total", "Heartbeats to the store, by outcome.", "outcome")
SERVER_LAPSES = counters(
    "bearlake_server_lapses_total",
    "Registrations that lapsed because their heartbeats stopped: this server's own, and those of its peers that it declared.",
    "kind",
)
DISK_FREE_BYTES = gauges("bearlake_disk_free_bytes", "Free bytes on the disk of a store on this machine.", "store")
DISK_SIZE_BYTES = gauges("bearlake_disk_size_bytes", "Size of the disk of a store on this machine.", "store")
SERVER_DRAINING = gauge("bearlake_server_draining_boolean", "1 while the server drains, else 0.")
CONTAINED_FAULTS = counters(
    "bearlake_server_contained_faults_total",
    "Bugs in a step of one connection, subscription, group, stream, task or job, which ended that step alone, by step.",
    "step",
)
LOOP_DELAY_SECONDS = latency("bearlake_server_loop_delay_seconds", "Delay with which the event loop ran a timer.")
LOOP_HELD_SECONDS = latency("bearlake_server_loop_held_seconds", "Processor time of turns of the event loop, sampled.")
LOOP_STALLS = counters("bearlake_server_loop_stalls_total", "Turns of more than 50 ms, by request.", "request")
ADMIN_REQUESTS = counters("bearlake_admin_requests_total", "Admin API requests, by status class.", "status")
CONSOLE_REQUESTS = counters("bearlake_console_requests_total", "Requests to the console, by status class.", "status")

# REST
HTTP_SLOW_READERS = counter("bearlake_server_http_slow_readers_total", "HTTP clients closed for unread answers.")
REST_REQUESTS = counters("bearlake_rest_requests_total", "REST requests, by status class.", "status")
REST_REQUEST_SECONDS = latency("bearlake_rest_request_seconds", "Time from request head to response.")
REST_OPEN_REQUESTS = gauge("bearlake_rest_open_requests", "REST requests in progress.")
REST_OPEN_REQUESTS_MAX = gauge("bearlake_rest_open_requests_limit", "Limit of REST requests in progress.")
REST_CONNECTIONS = gauge("bearlake_rest_open_connections", "Open REST connections.")
REST_CONNECTIONS_MAX = gauge("bearlake_rest_open_connections_limit", "Limit of open REST connections.")
REST_CONSUMERS = gauge("bearlake_rest_consumers", "Consumer instances on this server.")
REST_CONSUMERS_MAX = gauge("bearlake_rest_consumers_limit", "Limit of consumer instances.")
REST_CONSUMERS_EXPIRED = counter("bearlake_rest_consumers_expired_total", "Consumer instances that expired.")
REST_FORWARDED = counters(
    "bearlake_rest_forwarded_requests_total",
    "Requests forwarded to servers with consumer instances, by outcome: answered, unreachable, untrusted, lost, refused, cancelled.",
    "outcome",
)
REST_FOLLOWERS = gauge("bearlake_rest_followers", "Open long-polls and server-sent event streams.")
REST_RECORDS = counters("bearlake_rest_records_total", "Records, by direction: in, out.", "direction")

# Schema registry
REGISTRY_REQUESTS = counters("bearlake_registry_requests_total", "Schema registry requests, by status class.", "status")
REGISTRY_ERRORS = counters("bearlake_registry_errors_total", "Error responses, by the registry's error code.", "error")
REGISTRY_REQUEST_SECONDS = latency("bearlake_registry_request_seconds", "Time from request head to response.")
REGISTRY_CONNECTIONS = gauge("bearlake_registry_open_connections", "Open connections to the schema registry.")
REGISTRY_OPEN_REQUESTS = gauge("bearlake_registry_open_requests", "Schema registry requests in progress.")
REGISTRY_OPEN_REQUESTS_MAX = gauge("bearlake_registry_open_requests_limit", "Limit of open schema registry requests.")
REGISTRY_CACHE_BYTES = gauge("bearlake_registry_cache_bytes", "Bytes of schema texts in the cache.")
REGISTRY_CACHE_BYTES_MAX = gauge("bearlake_registry_cache_bytes_limit", "Limit of the bytes of cached texts.")
REGISTRY_CACHE_HITS = counter("bearlake_registry_cache_hits_total", "Cache hits of schemas by id.")
REGISTRY_CACHE_MISSES = counter("bearlake_registry_cache_misses_total", "Cache misses of schemas by id.")
REGISTRY_WORK = gauges(
    "bearlake_registry_work",
    "Open requests for child processes: schemas, values, and schemas by which records are checked (checks).",
    "kind",
)
REGISTRY_WORK_MAX = gauges("bearlake_registry_work_limit", "Limit of requests for child processes.", "kind")
REGISTRY_WORK_BYTES = gauges("bearlake_registry_work_bytes", "Size of open requests for child processes.", "kind")
REGISTRY_WORK_BYTES_MAX = gauges(
    "bearlake_registry_work_limit_bytes", "Limit of the size of requests in and waiting for child processes.", "kind"
)
REGISTRY_COMPILE_SECONDS = latency(
    "bearlake_registry_compile_seconds", "From a request to a child process, for schemas or values, to its answer."
)
REGISTRY_COMPILE_FAILURES = counters(
    "bearlake_registry_compile_failures_total",
    "Requests to child processes that failed, by reason: time, memory, size, fault (the schema); queue, wait, helper, other (the server).",
    "reason",
)

# Logins, quotas, audit. No labels for clients or resources: their number is not bounded, and the audit log names them.
LOGINS = counters("bearlake_server_logins_total", "Logins, by mechanism and outcome.", "mechanism", "outcome")
QUOTA_THROTTLED = counters("bearlake_server_throttled_total", "Clients that had to wait, by kind of quota.", "kind")
QUOTA_BUCKETS = gauge("bearlake_server_quota_buckets", "Clients whose use of quotas this server remembers.")
QUOTA_BUCKETS_MAX = gauge("bearlake_server_quota_buckets_max", "Limit of remembered clients.")
AUDIT_DENIALS = counters("bearlake_server_denials_total", "Denied operations, by kind.", "operation", "kind")
AUDIT_SUPPRESSED = counter("bearlake_server_suppressed_audit_lines_total", "Denials that the audit log left out.")
ACCESS_UNKNOWN_RULES = gauge(
    "bearlake_server_unknown_access_rules", "Access rules of a later version, which this server only lets restrict."
)

# Kafka
KAFKA_REQUESTS = counters("bearlake_kafka_requests_total", "Requests, by API.", "api")
KAFKA_REQUEST_SECONDS = latencies("bearlake_kafka_request_seconds", "Time from request to response, by API.", "api")
KAFKA_ERRORS = counters("bearlake_kafka_errors_total", "Error responses, by API and error.", "api", "error")
KAFKA_CONNECTIONS = gauge("bearlake_kafka_open_connections", "Open client connections.")
KAFKA_CONNECTIONS_OPENED = counter("bearlake_kafka_connections_opened_total", "Client connections accepted.")
KAFKA_CONNECTIONS_REFUSED = counters(
    "bearlake_kafka_connections_refused_total", "Connections closed by the server, by reason.", "reason"
)
KAFKA_MALFORMED_FRAMES = counter("bearlake_kafka_malformed_frames_total", "Requests that did not follow the protocol.")
KAFKA_RECEIVED_BYTES = counter("bearlake_kafka_received_bytes_total", "Bytes of requests.")
KAFKA_SENT_BYTES = counter("bearlake_kafka_sent_bytes_total", "Bytes of responses.")
KAFKA_RECEIVE_BYTES = gauge("bearlake_kafka_receive_buffer_bytes", "Bytes of receive buffers in use.")
KAFKA_RECEIVE_BYTES_MAX = gauge(
    "bearlake_kafka_receive_buffer_limit_bytes", "Limit of the bytes of receive buffers larger than 64 KiB."
)
KAFKA_UNSENT_BYTES = gauge("bearlake_kafka_unsent_bytes", "Bytes of responses that clients have not read.")
KAFKA_UNSENT_BYTES_MAX = gauge("bearlake_kafka_unsent_limit_bytes", "Limit of the unsent bytes; then fetches shrink.")
KAFKA_PAUSED = gauge("bearlake_kafka_paused_connections", "Connections that are not read because a limit is reached.")

# Pulsar
PULSAR_COMMANDS = counters("bearlake_pulsar_commands_total", "Commands from clients, by command.", "command")
PULSAR_ERRORS = counters("bearlake_pulsar_errors_total", "Error responses, by error.", "error")
PULSAR_CONNECTIONS = gauge("bearlake_pulsar_open_connections", "Open client connections.")
PULSAR_CONNECTIONS_OPENED = counter("bearlake_pulsar_connections_opened_total", "Client connections accepted.")
PULSAR_CONNECTIONS_REFUSED = counters(
    "bearlake_pulsar_connections_refused_total", "Connections closed by the server, by reason.", "reason"
)
PULSAR_MALFORMED_FRAMES = counter("bearlake_pulsar_malformed_frames_total", "Frames that did not follow the protocol.")
PULSAR_RECEIVED_BYTES = counter("bearlake_pulsar_received_bytes_total", "Bytes of commands and messages from clients.")
PULSAR_SENT_BYTES = counter("bearlake_pulsar_sent_bytes_total", "Bytes of commands and messages to clients.")
PULSAR_RECEIVE_BYTES = gauge("bearlake_pulsar_receive_buffer_bytes", "Bytes of receive buffers in use.")
PULSAR_RECEIVE_BYTES_MAX = gauge(
    "bearlake_pulsar_receive_buffer_limit_bytes", "Limit of the bytes of receive buffers larger than 64 KiB."
)
PULSAR_PAUSED = gauge("bearlake_pulsar_paused_connections", "Connections that are not read because a limit is reached.")
PULSAR_PRODUCERS = gauge("bearlake_pulsar_open_producers", "Open producers on this server.")
PULSAR_CONSUMERS = gauge("bearlake_pulsar_open_consumers", "Open consumers and readers on this server.")
PULSAR_WATCHERS = gauge("bearlake_pulsar_watched_lists", "Topic lists that clients watch.")
PULSAR_WATCHED_NAMES = gauge("bearlake_pulsar_watched_names", "Topics in the lists that clients watch.")
PULSAR_PRODUCERS_CLOSED = counters(
    "bearlake_pulsar_producers_closed_total",
    "Producers closed by the server, by the outcome that caused it.",
    "outcome",
)
PULSAR_CONSUMERS_CLOSED = counters(
    "bearlake_pulsar_consumers_closed_total", "Consumers closed by the server, by reason.", "reason"
)
PULSAR_UNREADABLE_ENTRIES = counter(
    "bearlake_pulsar_unreadable_entries_total", "Unreadable entries that were skipped. Alarm on any."
)
PULSAR_HTTP_REQUESTS = counters("bearlake_pulsar_http_requests_total", "Requests, by status class.", "status")
PULSAR_HTTP_REQUEST_SECONDS = latency("bearlake_pulsar_http_request_seconds", "Time from request head to response.")
PULSAR_HTTP_CONNECTIONS = gauge("bearlake_pulsar_http_open_connections", "Open connections.")
PULSAR_HTTP_OPEN_REQUESTS = gauge("bearlake_pulsar_http_open_requests", "Requests in progress.")
PULSAR_HTTP_OPEN_REQUESTS_MAX = gauge("bearlake_pulsar_http_open_requests_limit", "Limit of requests in progress.")

# gRPC
GRPC_CALLS = counters("bearlake_grpc_calls_total", "Calls started, by method.", "method")
GRPC_OPEN_CALLS = gauges("bearlake_grpc_open_calls", "Calls in progress, by method.", "method")
GRPC_CONNECTIONS = gauge(
    "bearlake_grpc_open_connections", "Open client connections, counted every `grpc.address_check_ms`."
)
GRPC_CONNECTIONS_MAX = gauge("bearlake_grpc_open_connections_limit", "Limit of open client connections.")
GRPC_UNREAD_BYTES = gauge("bearlake_grpc_unread_bytes", "Bytes of messages that clients have not read.")
GRPC_SLOW_READERS = counter("bearlake_grpc_slow_readers_total", "Connections closed for unread messages.")
GRPC_ERRORS = counters("bearlake_grpc_errors_total", "Failed calls.", "method", "code", "reason")

# Object store
OBJECTS_SECONDS = latencies(
    "bearlake_objects_operation_seconds",
    "Duration of an object store call with its retries, by operation.",
    "operation",
)
OBJECTS_CALLS = counters(
    "bearlake_objects_calls_total",
    "Attempts of object store calls, by operation and outcome: ok, cancelled or error kind.",
    "operation",
    "outcome",
)
OBJECTS_PUT = counter("bearlake_objects_put_total", "Objects written.")
OBJECTS_PUT_BYTES = counter("bearlake_objects_put_bytes_total", "Bytes written to the object store.")
OBJECTS_READ_BYTES = counter("bearlake_objects_read_bytes_total", "Bytes read from the object store.")

# Commit log (metadata store)
LOG_COMMITS = counter("bearlake_log_commits_total", "Commit transactions that succeeded.")
LOG_COMMIT_SECONDS = latency("bearlake_log_commit_seconds", "Duration of a commit with its retries.")
LOG_COMMIT_ERRORS = counters("bearlake_log_commit_errors_total", "Failed commit attempts, by error kind.", "error")
LOG_BATCHES = counters("bearlake_log_batches_total", "Batches in commits, by outcome.", "outcome")
LOG_FOLLOWED_POSITION = gauge("bearlake_log_followed_position", "Log position that this server has read up to.")
LOG_FOLLOW_LAG = gauge("bearlake_log_follow_lag_entries", "Log entries that this server has not read yet.")
LOG_FOLLOW_ERRORS = counters("bearlake_log_follow_errors_total", "Failed reads of the log, by error kind.", "error")

# Append
APPEND_SCHEMAS = gauges("bearlake_append_schemas", "What validation by schemas keeps: ids, and bytes of texts.", "kind")
APPEND_SCHEMAS_MAX = gauges("bearlake_append_schemas_limit", "Limits of what validation by schemas keeps.", "kind")
APPEND_SCHEMA_LOOKUPS = counter("bearlake_append_schema_lookups_total", "Look-ups of subjects to validate records.")
APPEND_SCHEMA_REFUSALS = counter("bearlake_append_schema_refusals_total", "Batches refused because of their schemas.")
APPEND_BYTES = counter(
    "bearlake_append_bytes_total", "Bytes of batches in commits, including duplicate and rejected batches."
)
APPEND_RECORDS = counter("bearlake_append_records_total", "Records that were assigned offsets.")
APPEND_SECONDS = latency(
    "bearlake_append_seconds",
    "Time from the first batch of a WAL object to the answers to its batches, which were stored; all protocols.",
)
APPEND_FLUSHES = counters("bearlake_append_flushes_total", "WAL objects sealed, by reason.", "reason")
APPEND_FLUSH_BYTES = sizes("bearlake_append_flush_bytes", "Size of WAL objects.")
APPEND_IN_FLIGHT_BYTES = gauge("bearlake_append_in_flight_bytes", "Bytes that are accepted but not yet committed.")
APPEND_BUDGET_BYTES = gauge("bearlake_append_budget_bytes", "Limit of the in-flight bytes.")
APPEND_IN_FLIGHT_BATCHES = gauge("bearlake_append_in_flight_batches", "Batches accepted but not yet committed.")
APPEND_BUDGET_BATCHES = gauge("bearlake_append_budget_batches", "Limit of the in-flight batches.")
APPEND_OPEN_PUTS = gauge("bearlake_append_open_puts", "WAL objects that are being put or committed.")

# Fetch
FETCH_BYTES = counter("bearlake_fetch_bytes_total", "Bytes of batches served to readers; for REST, of keys and values.")
FETCH_WAIT_SECONDS = latency("bearlake_fetch_wait_seconds", "Time that a fetch waited for records.")
FETCH_WAITING = gauge("bearlake_fetch_waiting_requests", "Fetches that are waiting for records.")
FETCH_LOOKUPS = counters("bearlake_fetch_lookups_total", "Offset look-ups, by the source that answered.", "source")

FETCH_MISSING = counter("bearlake_fetch_missing_objects_total", "Committed objects that were not found. Alarm on any.")
FETCH_DAMAGED = counter(
    "bearlake_fetch_damaged_reads_total", "Reads of damaged bytes of committed objects. Alarm on any."
)

# Index and cache
INDEX_GAPS = counter("bearlake_index_gaps_total", "Gaps between slices in the followed log. Alarm on any.")
INDEX_SLICES = gauge("bearlake_index_tail_slices", "Slices in the tail index.")
INDEX_SLICES_MAX = gauge("bearlake_index_tail_limit_slices", "Limit of the slices in the tail index.")
INDEX_EVICTED = counter("bearlake_index_evicted_slices_total", "Slices evicted from the tail index.")
CACHE_HITS = counter("bearlake_cache_hits_total", "Object ranges answered from memory.")
CACHE_MISSES = counter("bearlake_cache_misses_total", "Object ranges read from the object store.")
CACHE_BYTES = gauge("bearlake_cache_held_bytes", "Bytes in the object cache.")
CACHE_BYTES_MAX = gauge("bearlake_cache_limit_bytes", "Limit of the bytes in the object cache.")
CACHE_EVICTED_BYTES = counter("bearlake_cache_evicted_bytes_total", "Bytes evicted from the object cache.")

# History
HISTORY_BLOCKS = counters("bearlake_history_blocks_total", "Row groups that readers requested, by source.", "source")
HISTORY_DECODE_SECONDS = latency("bearlake_history_decode_seconds", "Time to read a row group and encode its batches.")
HISTORY_BYTES = gauge("bearlake_history_held_bytes", "Bytes of decoded row groups in memory.")
HISTORY_BYTES_MAX = gauge("bearlake_history_limit_bytes", "Limit of the bytes of decoded row groups in memory.")
HISTORY_AHEAD_BYTES = gauge("bearlake_history_ahead_bytes", "Bytes of row groups read ahead, and not read yet.")
HISTORY_AHEAD_BYTES_MAX = gauge("bearlake_history_ahead_limit_bytes", "Limit of the bytes that are read ahead.")
HISTORY_READERS = gauge(
    "bearlake_history_readers",
    "Readers before the tail index for which row groups may be read ahead; at most `reader_count_max`.",
)
HISTORY_EVICTED_BYTES = counter("bearlake_history_evicted_bytes_total", "Bytes of decoded row groups evicted.")
HISTORY_PIECES = gauge("bearlake_history_located_pieces", "Slices and segments in the segment index.")
HISTORY_PIECES_MAX = gauge("bearlake_history_located_limit_pieces", "Limit of the segment index.")

# Subscriptions
SUBSCRIPTION_PARTITIONS = gauge("bearlake_subscription_partitions", "Partitions that this server dispatches.")
SUBSCRIPTION_CONSUMERS = gauge("bearlake_subscription_consumers", "Consumers attached to subscriptions on this server.")
SUBSCRIPTION_PARTITIONS_LOST = counter(
    "bearlake_subscription_partitions_lost_total",
    "Partitions that another server took over while this server dispatched them.",
)
SUBSCRIPTION_MESSAGES = counters(
    "bearlake_subscription_messages_total",
    "Messages delivered to consumers of subscriptions, by delivery: first or again.",
    "delivery",
)
SUBSCRIPTION_ACKS_DROPPED = counter(
    "bearlake_subscription_acks_dropped_total",
    "Acknowledgements of unknown entries that exceeded the limit of look-ups; these entries are redelivered.",
)
SUBSCRIPTION_DAMAGED_READS = counter(
    "bearlake_subscription_damaged_reads_total", "Reads of damaged entries, also by attempts to attach."
)
CURSOR_SAVES = counters("bearlake_subscription_cursor_saves_total", "Saves of many cursors, by outcome.", "outcome")

# Groups and leases
GROUPS_OWNED = gauge("bearlake_group_owned_groups", "Consumer groups that this server coordinates.")
GROUP_MEMBERS = gauge("bearlake_group_members", "Members of the groups that this server coordinates.")
GROUP_REVISIONS = gauge(
    "bearlake_group_revisions",
    "Members and partitions whose last request is remembered, over all groups that this server coordinates.",
)
GROUP_REBALANCES = counter(
    "bearlake_group_rebalances_total", "Completed rebalances of classic groups, and new epochs of consumer groups."
)
GROUP_OFFSET_COMMITS = counter("bearlake_group_offset_commits_total", "Offset commits stored.")
GROUP_PEER_REQUESTS = counters(
    "bearlake_group_peer_requests_total",
    "Requests to coordinators on other servers, by request and outcome.",
    "request",
    "outcome",
)
GROUP_PEER_OPEN = gauge("bearlake_group_peer_open_requests", "Other servers' requests in progress at this coordinator.")
GROUP_PEER_OPEN_MAX = gauge(
    "bearlake_group_peer_limit_requests", "Limit of the requests of other servers to this server's coordinator."
)
LEASE_ACQUIRES = counters("bearlake_lease_acquires_total", "Attempts to take a lease, by outcome.", "outcome")
MAINTENANCE_ENTRIES = counter("bearlake_log_rolled_up_entries_total", "Log entries that this server rolled up.")
TRANSACTIONS_OPEN_AGE = gauge("bearlake_transactions_oldest_open_age_ms", "Age of the oldest open transaction.")
TRANSACTIONS_EXPIRED = counter("bearlake_transactions_expired_total", "Transactions that timed out on this server.")

# Compaction (the label `stream` is bounded: beyond 256 streams, further streams share `other`)
COMPACTION_PLANNING = gauge("bearlake_compaction_planning_boolean", "1 while this worker plans, else 0.")
COMPACTION_OFFERED = counter("bearlake_compaction_offered_tasks_total", "Tasks that this worker's planner offered.")
COMPACTION_TASKS = counters("bearlake_compaction_tasks_total", "Tasks of this worker, by outcome.", "kind", "outcome")
COMPACTION_SECONDS = latencies(
    "bearlake_compaction_step_seconds", "Duration of a step of a round: read, run, commit, swap.", "step"
)
COMPACTION_FRESHNESS_SECONDS = latency(
    "bearlake_compaction_freshness_seconds", "Time from the oldest commit of a task to the table commit."
)
CURRENT_SECONDS = latency(
    "bearlake_compaction_current_seconds", "Duration of a round of a current table, to its commit."
)
CURRENT_BYTES = counters(
    "bearlake_compaction_current_bytes_total",
    "Bytes of data files that rounds of current tables read and wrote.",
    "kind",
)
COMPACTION_READ_BYTES = counters("bearlake_compaction_read_bytes_total", "Bytes of batches compacted.", "stream")
COMPACTION_RECORD_BYTES = counters(
    "bearlake_compaction_record_bytes_total", "Uncompressed bytes of records compacted.", "stream"
)
COMPACTION_WRITTEN_BYTES = counters(
    "bearlake_compaction_written_bytes_total", "Bytes of data files written by compaction.", "stream"
)
COMPACTION_ROWS = counters("bearlake_compaction_rows_total", "Rows written by compaction.", "stream")
COMPACTION_MERGED_BYTES = counter("bearlake_compaction_merged_bytes_total", "Bytes of data files written by merging.")
KEY_COMPACTION_BYTES = counters("bearlake_key_compaction_bytes_total", "Bytes that cleanings read, wrote.", "call")
KEY_COMPACTION_FILE_BYTES = gauges("bearlake_key_compaction_file_bytes", "Bytes of clean and dirty files.", "state")
KEY_COMPACTION_TOO_LARGE = gauge("bearlake_key_compaction_too_large_streams", "Streams too large for a cleaning.")
COMPACTION_KEPT = counters("bearlake_compaction_kept_batches_total", "Batches kept as they are.", "reason")
VALUE_ERRORS = counters("bearlake_compaction_value_errors_total", "Values without columns.", "stream", "code")
COMPACTION_TOO_OLD = gauge("bearlake_compaction_old_processes", "Live processes for which values are not left out.")
COMPACTION_MENDED = counter(
    "bearlake_compaction_mended_objects_total", "Missing kept objects that were rewritten from the WAL."
)
COMPACTION_CONFLICTS = counter("bearlake_compaction_table_conflicts_total", "Table commits that met a conflict.")
COMPACTION_RETRIES = counters("bearlake_compaction_retries_total", "Retried steps, by error kind.", "error")
COMPACTION_STREAM_RECORDS = gauges(
    "bearlake_compaction_stream_records",
    "Sum of the offsets of a stream's partitions: committed, compacted, table.",
    "stream",
    "what",
)
COMPACTION_STREAM_FRESHNESS = gauges(
    "bearlake_compaction_stream_freshness_seconds", "Freshness of the stream's last task.", "stream"
)
COMPACTION_STREAM_RATIO = gauges(
    "bearlake_compaction_stream_compression_ratio",
    "Record bytes divided by file bytes, in the stream's last task.",
    "stream",
)
COMPACTION_BACKLOG_BYTES = gauge("bearlake_compaction_backlog_bytes", "Bytes that wait for compaction, in total.")
COMPACTION_BACKLOG_RECORDS = gauge("bearlake_compaction_backlog_records", "Records that wait for compaction, in total.")
COMPACTION_BACKLOG_SECONDS = gauge(
    "bearlake_compaction_backlog_seconds", "Age of the oldest record that waits for compaction."
)
COMPACTION_STREAM_BACKLOG = gauges(
    "bearlake_compaction_stream_backlog_bytes", "Bytes that wait for compaction, by stream.", "stream"
)
COMPACTION_OPEN_TASKS = gauge("bearlake_compaction_open_tasks", "Tasks that wait or run.")
COMPACTION_QUARANTINED = gauge(
    "bearlake_compaction_quarantined_tasks", "Tasks quarantined after repeated failures. Alarm on any."
)
SWEEP_OBJECTS = counters("bearlake_sweep_deleted_objects_total", "Deleted objects: wal, data, orphan, lost.", "kind")
SWEEP_TRIMMED = counter("bearlake_sweep_trimmed_partitions_total", "Partitions whose start offset retention has moved.")
SWEEP_SNAPSHOTS = counter("bearlake_sweep_expired_snapshots_total", "Table snapshots expired.")
UPKEEP_FAULTS = counters(
    "bearlake_sweep_faults_total",
    "Steps of upkeep and planning that failed for a single stream, task or page, by job and error kind.",
    "job",
    "error",
)
UPKEEP_FAILING = gauges(
    "bearlake_sweep_failing_subjects", "Streams, tasks and pages whose last step of upkeep failed, by job.", "job"
)
SWEEP_ERRORS = counters("bearlake_sweep_errors_total", "Failed rounds of upkeep.", "job", "error")

# Imports (`bearlake import`)
IMPORT_LAG = gauge("bearlake_import_lag_offsets", "Offsets that the source has and the streams do not, all partitions.")
IMPORT_PARTITIONS = gauge("bearlake_import_partitions", "Partitions that the import copies.")
IMPORT_ENDED = gauge("bearlake_import_ended_topics", "Topics that the import cannot copy any further.")
IMPORT_BYTES = counter("bearlake_import_bytes_total", "Bytes of record batches that were copied.")
IMPORT_BATCHES = counter("bearlake_import_batches_total", "Record batches that were copied.")
IMPORT_FAILURES = counters("bearlake_import_failures_total", "Failures of an import, by error kind.", "error")
IMPORT_BYTES_PER_S_MAX = gauge("bearlake_import_bytes_per_second_limit", "Limit of an import's speed; 0: none.")
