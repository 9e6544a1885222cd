"""Settings of the Kafka server: limits of connections and requests, defaults of streams."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The Kafka server: limits of connections and requests, and defaults of streams."""

    auto_create_streams: bool = True
    """Create a stream when a client asks for its metadata and allows it (Kafka's `auto.create.topics.enable`)."""
    auto_create_count_max: int = 64
    """Unknown streams that one Metadata request may create, rounded up to a multiple of 16. The others do not exist for it,
    until the client asks again."""
    default_partition_count: int = 1
    """Partitions of a stream that is created without a count (Kafka's `num.partitions`)."""
    request_bytes_max: int = 100 * 1024 * 1024
    """Largest request in bytes; a larger size field closes the connection (Kafka's `socket.request.max.bytes`)."""
    control_request_bytes_max: int = 16 * 1024 * 1024
    """Largest request in bytes, except for Produce. Decoding a request creates objects that take several times its size."""
    large_requests_bytes_max: int = 8 * 1024 * 1024
    """Bytes of all requests above 64 KiB that run at once, except Produce; one client has half of them. Decoded, they take up to sixty
    times as much. A Fetch that waits for records counts: it is above 64 KiB with about 2,000 partitions, and waits for 1 s at most."""
    connections_max: int = 10_000
    """Open client connections, including those in a TLS handshake; further connections are closed at once."""
    address_connections_max: int = 5_000
    """Open connections of one client address; further connections are closed at once; 0: no limit. Clients behind one proxy or NAT share an
    address."""
    idle_ms: int = 600_000
    """Connections without a request for this long (ms) are closed (Kafka's `connections.max.idle.ms`)."""
    first_request_ms: int = 10_000
    """Time (ms) in which a new connection must send its first request, or begin one above 64 KiB; otherwise it is closed."""
    stall_ms: int = 60_000
    """Time (ms) in which a request must arrive completely once it has begun, and in which a client must read some of its answers."""
    tls_handshake_ms: int = 10_000
    """Time (ms) that a client may take for the TLS handshake; until it ends, the connection counts against `connections_max`."""
    requests_in_flight_max: int = 64
    """Requests of one connection that run at once; at the limit, its socket is not read."""
    response_bytes_max: int = 16 * 1024 * 1024
    """Bytes of answers that the client of one connection has not read; at the limit, its socket is not read."""
    receive_bytes_max: int = 256 * 1024 * 1024
    """Bytes of receive buffers larger than 64 KiB. One client has at most as many of them as it leaves free, which is half if it is alone;
    its other connections queue before they receive a larger request. Two buffers are not counted. Buffers of 64 KiB that closed
    connections leave to their batches count too; if they alone reach the limit, new connections are closed."""
    unsent_bytes_max: int = 256 * 1024 * 1024
    """Bytes of answers that clients have not read, over all connections; at the limit, fetches are answered with less data. At twice
    the limit, the connections whose clients have not kept up for longest are closed."""
    drain_redirect_after_ms: int = 5_000
    """While draining with other servers available: time (ms) after which clients that are still connected get NOT_LEADER_OR_FOLLOWER."""
    zone_client_id_keys: list[str] = field(default_factory=lambda: ["zone_id", "diskless_az", "ws_az"])
    """Names of the `key=value` tokens in a client id that name the zone of the client."""
