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
    schema_list_bytes_max: int = 4 * 1024 * 1024
    """Schemas in one answer, by their size; an answer has at least one, and further ones are asked for by offset."""
    config_bytes_max: int = 64 * 1024
    """Largest config of a subject, of a context or of the registry: its default and override metadata and rules included."""
    attempt_count_max: int = 64
    """How often a change is decided again because another server changed the same subject meanwhile."""
    compile_count_max: int = 2
    """Schemas compiled or compared at once, each in a process of its own; for each, a helper process of about 40 MiB stays."""
    compile_queue_count_max: int = 256
    """Schemas that wait for their turn; further ones are refused, and their clients can try again."""
    compile_queue_bytes_max: int = 64 * 1024 * 1024
    """Bytes of the schemas that wait for their turn; further ones are refused, and their clients can try again."""
    compile_wait_ms_max: int = 30_000
    """How long a request waits for its schema to be compiled, its turn included. What takes longer on a busy machine is tried again."""
    compile_time_ms_max: int = 10_000
    """Processor time that a schema may need to be compiled or compared; one that needs more is invalid.

    A megabyte of Protobuf takes three seconds."""
    compile_memory_bytes_max: int = 256 * 1024 * 1024
    """Memory that a schema or the values of a request may need in a child process, beside the helper's; what needs more is refused."""
    request_time_ms_max: int = 30_000
    """Processor time that one request may need in all for its schemas, its values and the comparisons with earlier versions.

    A comparison with many large versions needs more; raise the limit with `compile_wait_ms_max`."""
    value_count_max: int = 2
    """Requests whose values are read or written at once, each in a process of its own beside its helper process of about 40 MiB."""
    value_queue_count_max: int = 1_024
    """Requests with values that wait for their turn; further ones are refused, and their clients can try again."""
    value_queue_bytes_max: int = 64 * 1024 * 1024
    """Bytes of the values that wait for their turn; further ones are refused, and their clients can try again."""
    value_time_ms_max: int = 1_000
    """Processor time for the values of a small request; larger requests get `value_mebibyte_time_ms_max` more for each MiB."""
    value_mebibyte_time_ms_max: int = 2_000
    """Processor time for each MiB of values in a request. A MiB of small Avro records takes 200 ms."""
    value_bytes_max: int = 1024 * 1024
    """What the values of a small request may become when read or written, beside `value_growth_max` times their size."""
    value_growth_max: int = 16
    """How many times its size a request's values may become. Defaults and names of fields make values grow."""
    value_answer_bytes_max: int = 32 * 1024 * 1024
    """What the values of one request may become at most; further records are read by the next request."""
    value_depth_max: int = 100
    """Objects and lists that a value may nest."""
