"""Limits of the validation of records by their schemas."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSettings:
    """Validation of records by their schemas, for streams with `schema.validation` or `schema.key.validation`."""

    wait_ms_max: int = field(default=5_000, metadata={"min": 1})
    """Longest wait of a request for the registry, the pause between look-ups included; then its client gets an error and tries again."""
    cached_ms: int = field(default=60_000, metadata={"min": 0})
    """How long records may still name a schema whose version was deleted through another server. A server knows new versions at once."""
    pause_ms: int = field(default=100, metadata={"min": 0})
    """Pause between two look-ups of the same subjects. Records with unknown ids wait for a look-up that begins after they arrived."""
    batch_schema_count_max: int = field(default=100, metadata={"min": 1})
    """Schemas that the records of one batch may name."""
    id_count_max: int = field(default=1_000_000, metadata={"min": 1})
    """Schema ids of subjects that are kept in memory (100 bytes each); further ones are looked up again."""
    cache_bytes_max: int = field(default=16 * 1024 * 1024, metadata={"min": 1})
    """Texts of schemas whose validators are kept in memory (validators take ten times as much); others are made again."""
