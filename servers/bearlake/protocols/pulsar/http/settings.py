"""Settings of Pulsar's HTTP API: limits of connections and requests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarHttpSettings:
    """Pulsar's HTTP API."""

    request_bytes_max: int = 2 * 1024 * 1024
    """Largest request body in bytes; a larger body is answered with 413."""
    request_count_max: int = 256
    """Concurrent requests; further requests are answered with 503."""
    request_timeout_ms: int = 30_000
    """Longest time (ms) for one request, including its body."""
    connection_count_max: int = 1_024
    """Open client connections; a request over a further connection is answered with 503, and the connection is closed."""
    idle_ms: int = 75_000
    """Connections without a request for this long (ms) are closed."""
    topic_partitions_max: int = 1_000
    """Partitions that a topic may be created with or grow to."""
