"""Settings of the REST server: limits for connections, requests, consumers and followers of streams."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    """The REST server."""

    request_bytes_max: int = 16 * 1024 * 1024
    """Largest request body in bytes, uncompressed; larger ones are answered with 413."""
    request_count_max: int = 1_024
    """Requests at once, those that follow a stream included; further ones are told to come back (503)."""
    request_timeout_ms: int = 60_000
    """Longest time (ms) for one request that does not follow a stream, its body included."""
    connection_count_max: int = 4_096
    """Open client connections; what comes over more is answered with 503 and closed."""
    idle_ms: int = 75_000
    """Connections without a request for this long (ms) are closed."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that browsers may let call this server; `*` for all, none by default."""
    auto_create_streams: bool = True
    """Create a stream when records for it arrive by the v2 API (Kafka's `auto.create.topics.enable`)."""
    default_partition_count: int = 1
    """Partitions of a stream that is created without a count."""
    fetch_bytes_max: int = 16 * 1024 * 1024
    """Bytes of record batches that one answer is made of, whatever the client asks for (one larger batch excepted)."""
    batch_bytes_max: int = 256 * 1024 * 1024
    """Bytes that one stored record batch may have uncompressed when it is read."""
    consumer_count_max: int = 1_000
    """Consumer instances of this server; further ones are refused."""
    consumer_idle_ms: int = 300_000
    """Consumer instances without a request for this long (ms) leave their group and are forgotten."""
    consumer_wait_ms: int = 1_000
    """Time (ms) that a consumer's request for records waits for some, when the client does not say."""
    consumer_session_ms: int = 10_000
    """Session timeout (ms) of consumer instances in their group: how soon others take over when this server dies."""
    consumer_rebalance_ms: int = 60_000
    """Time (ms) that a rebalance waits for a consumer instance of this server."""
    consumer_beat_ms: int = 1_000
    """Pause (ms) between two heartbeats of consumer instances."""
    consumer_commit_ms: int = 5_000
    """Pause (ms) between two automatic commits of a consumer instance."""
    consumer_places_max: int = 10_000
    """Consumer instances of other servers whose place is remembered; for others it is computed, or asked for."""
    produce_window_bytes: int = 1024 * 1024
    """Bytes of a streamed produce request that are appended together, at most."""
    live_wait_ms: int = 20_000
    """Longest wait (ms) of a long-poll; then it is answered empty, and the client asks again."""
    sse_ms: int = 60_000
    """Time (ms) after which a server-sent event stream ends; clients come back with the last offset."""
    sse_heartbeat_ms: int = 15_000
    """Time (ms) without events after which a comment keeps a server-sent event stream alive."""
    sweep_ms: int = 1_000
    """Pause (ms) between two looks for streams whose time (`Stream-TTL`, `Stream-Expires-At`) is over."""
    unsent_bytes_max: int = 256 * 1024
    """Bytes that may wait for a slow reader; nothing more is read for it until they are sent."""
    write_timeout_ms: int = 60_000
    """Time (ms) in which a reader must take some of what waits for it."""
    drain_idle_ms: int = 1_000
    """While draining: time (ms) in which clients with an idle connection may still send a request over it."""

    def __post_init__(self) -> None:
        if self.consumer_beat_ms * 3 > self.consumer_session_ms:
            raise ValueError("consumer_session_ms must be at least three times consumer_beat_ms")
