"""Settings of the REST server: limits for connections, requests, consumers and followers of streams."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    """The REST server."""

    request_bytes_max: int = 16 * 1024 * 1024
    """Largest request body in bytes, uncompressed; a larger body is answered with 413."""
    request_value_count_max: int = 250_000
    """Values (numbers, texts, objects, lists) in one JSON body of records; a body with more is answered with 413. The parser makes an
    object of each, during which no other client is served: this many take about 50 ms."""
    request_count_max: int = 1_024
    """Concurrent requests, including those that follow a stream; further requests are answered with 503."""
    address_request_count_max: int = 512
    """Concurrent requests of one client address; further requests are answered with 503; 0: no limit. Half of the requests, so that one
    client cannot take all; clients behind one proxy or NAT share an address."""
    request_timeout_ms: int = 60_000
    """Longest time (ms) for one request that does not follow a stream, including its body."""
    unread_bytes_max: int = 512 * 1024 * 1024
    """Bytes of answers that the clients of all connections have not read; above it, those that have not kept up for longest are
    disconnected."""
    connection_count_max: int = 4_096
    """Open client connections; a request over a further connection is answered with 503, and the connection is closed."""
    address_connection_count_max: int = 2048
    """Open connections of one client address; further connections are closed at once; 0: no limit. Half of the connections, so that one
    client cannot take all; clients behind one proxy or NAT share an address."""
    first_request_ms: int = 10_000
    """Time (ms) in which a new connection must send the head of its first request; otherwise it is closed."""
    host_names: tuple[str, ...] = ()
    """Public DNS names by which clients reach this server without TLS, such as an ingress; `*` for any name. Addresses, names without a dot
    and names of private networks (`.svc`, `.local`, `.internal`) are always allowed. Other names are refused: a web page could rebind its
    own name to this server."""
    idle_ms: int = 75_000
    """Connections without a request for this long (ms) are closed, and those whose clients read nothing of an answer for as long
    (Linux)."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages whose scripts may call this server; `*` for all, none by default."""
    auto_create_streams: bool = True
    """Create a stream when records for it arrive through the v2 API (Kafka's `auto.create.topics.enable`)."""
    default_partition_count: int = 1
    """Partitions of a stream that is created without a count."""
    fetch_bytes_max: int = 16 * 1024 * 1024
    """Bytes of record batches in one answer, whatever the client requests (except for a single larger batch)."""
    answer_record_count_max: int = 10_000
    """Records in one answer to a consumer; the next answer continues. A compressed batch may hold a million records in few bytes."""
    read_record_count_max: int = 100_000
    """Records in one answer to a reader of a stream (`/v1/stream`), and in one event; the reader continues."""
    batch_bytes_max: int = 256 * 1024 * 1024
    """Largest uncompressed size in bytes of a stored record batch that can be read."""
    consumer_count_max: int = 1_000
    """Consumer instances of this server; further instances are refused."""
    consumer_idle_ms: int = 300_000
    """Time (ms) without a request after which a consumer instance leaves its group and is deleted."""
    consumer_wait_ms: int = 1_000
    """Time (ms) that a consumer's request waits for records if the client does not name a time."""
    consumer_session_ms: int = 10_000
    """Session timeout (ms) of consumer instances in their group: how soon other members take over when this server fails."""
    consumer_rebalance_ms: int = 60_000
    """Time (ms) that a rebalance waits for a consumer instance of this server."""
    consumer_beat_ms: int = 1_000
    """Pause (ms) between two heartbeats of consumer instances."""
    consumer_commit_ms: int = 5_000
    """Pause (ms) between two automatic commits of a consumer instance."""
    consumer_places_max: int = 10_000
    """Consumer instances on other servers whose location is cached; other locations are computed or looked up."""
    produce_window_bytes: int = 1024 * 1024
    """Most bytes of a streamed produce request that are appended together."""
    live_wait_ms: int = 20_000
    """Longest wait (ms) of a long-poll; then the answer is empty, and the client polls again."""
    sse_ms: int = 60_000
    """Time (ms) after which a server-sent event stream ends; clients reconnect with the last offset."""
    sse_heartbeat_ms: int = 15_000
    """Time (ms) without events after which a comment keeps a server-sent event stream alive."""
    sweep_ms: int = 1_000
    """Pause (ms) between two searches for expired streams (`Stream-TTL`, `Stream-Expires-At`)."""
    unsent_bytes_max: int = 256 * 1024
    """Bytes that may wait for a slow reader; no more records are read for it until these bytes are sent."""
    write_timeout_ms: int = 60_000
    """Time (ms) in which a reader must read some of the bytes that wait for it."""
    drain_idle_ms: int = 1_000
    """While draining: time (ms) in which clients may still send a request over an idle connection."""

    def __post_init__(self) -> None:
        if self.consumer_beat_ms * 3 > self.consumer_session_ms:
            raise ValueError("consumer_session_ms must be at least three times consumer_beat_ms")
