"""Limits of the schema registry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasSettings:
    """The schema registry: its caches and limits."""

    cache_bytes_max: int = 64 * 1024 * 1024
    """Bytes of schema texts cached in memory, as read and as parsed (parsed values take about ten times as much); other schemas are read
    again."""
    cached_ms: int = 10_000
    """How long a server may return a schema by its id after another server deleted the schema permanently."""
    schema_bytes_max: int = 1024 * 1024
    """Largest text of a schema, together with its metadata and rules, and with all schemas that it references."""
    reference_count_max: int = 256
    """Schemas that one schema may reference, directly and indirectly."""
    subject_list_count_max: int = 20_000
    """Names in one answer; clients request further names by offset."""
    schema_list_count_max: int = 1_000
    """Schemas in one answer; clients request further schemas by offset."""
    attempt_count_max: int = 64
    """Attempts to make a change while other servers change the same subject concurrently."""
    compile_count_max: int = 2
    """Schemas compiled or compared at once, each in its own process; for each, a helper process of about 40 MiB stays."""
    compile_queue_count_max: int = 256
    """Schemas that wait for compilation; further schemas are refused, and their clients can retry."""
    compile_wait_ms_max: int = 30_000
    """Longest wait of a request for the compilation of its schema, including the queue. On a busy machine, a request that waits longer can
    be retried."""
    compile_time_ms_max: int = 10_000
    """CPU time to compile or compare a schema; a schema that needs more is invalid. A megabyte of Protobuf takes three seconds."""
    compile_memory_bytes_max: int = 256 * 1024 * 1024
    """Memory to compile or compare a schema, in addition to the helper's memory; a schema that needs more is invalid."""
