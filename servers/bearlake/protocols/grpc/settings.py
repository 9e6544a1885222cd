"""Settings of the gRPC server: limits of messages, calls and connections."""

from dataclasses import dataclass

from bearlake.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSettings:
    """The gRPC server."""

    message_bytes_max: int = 16 * 1024 * 1024
    """Largest request message in bytes; a larger one ends its call with RESOURCE_EXHAUSTED."""
    request_bytes_max: int = 1024 * 1024
    """Largest message in bytes of a request that carries no records; a larger one ends its call with RESOURCE_EXHAUSTED."""
    payload_bytes: int = 1024 * 1024
    """Size in bytes at which a message of records to a reader is sent; a single record batch may be larger. Clients accept 4 MiB by
    default."""
    write_wait_ms: int = 30_000
    """Longest wait (ms) of a Produce call for room in the write path; then it ends with RESOURCE_EXHAUSTED, and nothing is stored."""
    fetch_bytes_max: int = 4 * 1024 * 1024
    """Bytes that one read of the log returns for a Fetch call, so that each of its partitions gets its turn."""
    fetch_wait_ms: int = 30_000
    """Longest wait (ms) of one read of the log; the call then reads again."""
    partitions_max: int = 1_000
    """Partitions that one call may read."""
    calls_max: int = 10_000
    """Concurrent calls; more are refused with RESOURCE_EXHAUSTED."""
    connection_call_count_max: int = 1_000
    """Concurrent calls of one connection; more are refused with RESOURCE_EXHAUSTED. One connection cannot take all of `calls_max`, and the
    bytes that it has in flight are bounded: in each call at most `in_flight_bytes_max` and one message."""
    address_call_count_max: int = 5_000
    """Concurrent calls of one client address, over all its connections; more are refused with RESOURCE_EXHAUSTED; 0: no limit. Half of the
    calls, so that one client cannot take all; clients behind one proxy or NAT share an address."""
    receive_ms: int = 30_000
    """Time (ms) in which the message of a call that has one must arrive, once the server reads it; otherwise the call ends with
    DEADLINE_EXCEEDED. gRPC holds in memory what has arrived of it, up to `message_bytes_max`."""
    connections_max: int = 10_000
    """Open client connections; further connections are closed at once."""
    address_connections_max: int = 5_000
    """Open connections of one client address; the newest beyond it are closed at the next check; 0: no limit. Half of the connections, so
    that one client cannot take all; clients behind one proxy or NAT share an address."""
    address_check_ms: int = 1_000
    """Pause (ms) between two checks of the connections of each address, which also count them for the metrics. gRPC accepts connections
    itself, so a flood can hold all of `connections_max` for this long. A check takes about 15 us of a thread for each open connection."""
    unread_bytes_max: int = 512 * 1024 * 1024
    """Bytes of messages that the clients of all connections have not read; above it, those that have not read for longest are disconnected
    at the next check (`address_check_ms`). A slow client of a fast stream reads something all the time, and stays."""
    handshake_ms: int = 10_000
    """Time (ms) in which a new connection must finish the handshakes of TLS and HTTP/2; otherwise it is closed."""
    in_flight_bytes_max: int = 32 * 1024 * 1024
    """Bytes of one ProduceStream call that are not durable yet; at the limit, the call is not read."""
    in_flight_batches_max: int = 4_096
    """Batches of one ProduceStream call that are not durable yet; at the limit, the call is not read."""
    keepalive_ms: int = 60_000
    """A connection without traffic for this long (ms) is probed."""
    keepalive_timeout_ms: int = 20_000
    """A probe without an answer for this long (ms) closes its connection."""
    ping_interval_min_ms: int = 10_000
    """Shortest time (ms) between a client's probes; a client that probes more often is disconnected."""
    connection_idle_ms: int = 600_000
    """A connection without a call for this long (ms) is closed."""
    connection_age_ms: int = 10_000
    """Age (ms, within a tenth) at which clients are asked to reconnect, while their calls continue. Load then spreads over new servers, and
    clients leave a draining server without a failed call if the age is at most half of `server.drain_ms`. Each reconnection costs a
    handshake. Where clients log in by certificate, at most `authentication.session_ms_max`: a connection's certificate is verified at its
    beginning."""
    call_age_ms: int = 1_800_000
    """Age (ms, within a tenth) at which the client of a streaming call is asked to continue in a new call."""
    call_drain_ms: int = 30_000
    """Time (ms) that such a client has before its call is ended."""

    def __post_init__(self) -> None:
        if self.payload_bytes > self.fetch_bytes_max:
            raise Invalid("payload_bytes must not be larger than fetch_bytes_max")
