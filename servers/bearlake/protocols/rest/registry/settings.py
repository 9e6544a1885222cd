"""Limits of the schema registry's HTTP API."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """The schema registry's HTTP API."""

    request_bytes_max: int = 4 * 1024 * 1024
    """Largest request body, uncompressed: a schema with its metadata, as JSON; a larger body is answered with 413."""
    request_count_max: int = 256
    """Concurrent requests; further requests are answered with 503."""
    request_timeout_ms: int = 30_000
    """Longest time (ms) for one request."""
    connection_count_max: int = 4_096
    """Open client connections; a request over a further connection is answered with 503, and the connection is closed."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages whose scripts may call the registry; `*` for all, none by default."""
    idle_ms: int = 75_000
    """Connections without a request for this long (ms) are closed."""
    drain_idle_ms: int = 1_000
    """While draining: time (ms) in which clients may still send a request over an idle connection."""
