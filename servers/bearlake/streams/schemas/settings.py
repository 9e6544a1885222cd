"""Limits of the schema registry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasSettings:
    """The schema registry: what it keeps in memory, and what it refuses."""

    cache_bytes_max: int = 64 * 1024 * 1024
    """Texts of schemas kept in memory, as read and as parsed (whose values take some ten times as much); others are read again."""
    cached_ms: int = 10_000
    """How long a server may give a schema by its id after another server deleted it for good."""
    schema_bytes_max: int = 1024 * 1024
    """Largest text of a schema, together with its metadata and rules, and of all that it references."""
    reference_count_max: int = 256
    """Schemas that one schema may reference, directly and through others."""
    subject_list_count_max: int = 20_000
    """Names in one answer; further ones are asked for by offset."""
    schema_list_count_max: int = 1_000
    """Schemas in one answer; further ones are asked for by offset."""
    attempt_count_max: int = 64
    """How often a change is decided again because another server changed the same subject meanwhile."""
    compile_count_max: int = 2
    """Schemas compiled or compared at once, each in a process of its own; for each, a helper process of about 40 MiB stays."""
    compile_queue_count_max: int = 256
    """Schemas that wait for their turn; further ones are refused, and their clients can try again."""
    compile_wait_ms_max: int = 30_000
    """How long a request waits for its schema to be compiled, its turn included. What takes longer on a busy machine is tried again."""
    compile_time_ms_max: int = 10_000
    """Processor time that a schema may need to be compiled or compared; one that needs more is invalid.

    A megabyte of Protobuf takes three seconds."""
    compile_memory_bytes_max: int = 256 * 1024 * 1024
    """Memory that a schema may need to be compiled or compared, beside the helper's; one that needs more is invalid."""
