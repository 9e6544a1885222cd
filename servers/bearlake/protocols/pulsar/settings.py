"""Settings of the Pulsar server: limits of connections, messages and requests, defaults of topics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSettings:
    """The Pulsar server."""

    auto_create_streams: bool = True
    """Create a stream when a client produces to or subscribes to a topic that does not exist (Pulsar's `allowAutoTopicCreation`)."""
    auto_create_partition_count: int = 0
    """Partitions of a topic that is created this way; 0: a topic that is not partitioned, which is a stream with one partition."""
    message_bytes_max: int = 5 * 1024 * 1024
    """Largest message or batch in bytes, as sent (Pulsar's `maxMessageSize`); clients split larger messages into chunks."""
    uncompressed_bytes_max: int = 64 * 1024 * 1024
    """Largest uncompressed batch in bytes; guards against compression bombs. The limit also applies when stored batches are read: lower it
    only if no larger batch is stored."""
    connections_max: int = 10_000
    """Open client connections, including those in a TLS handshake; further connections are closed at once."""
    address_connections_max: int = 5_000
    """Open connections of one client address; further connections are closed at once; 0: no limit. Clients behind one proxy or NAT share an
    address."""
    attachments_max: int = 20_000
    """Producers and consumers of one connection; more are refused with TooManyRequests."""
    message_ids_max: int = 10_000
    """Message ids that one command acknowledges or asks for again; a command with more closes its connection. Clients send up to 1,000."""
    watchers_max: int = 100
    """Topic lists that one connection may watch; more are refused with TooManyRequests."""
    watched_names_max: int = 1_000_000
    """Topics in all lists that clients watch; one client has half of them. Clients with equal rights and the same pattern share a list.
    More are refused with TooManyRequests, and clients then ask for lists from time to time. 1,000,000 take 150 MB."""
    requests_in_flight_max: int = 1_000
    """Requests of one connection that wait for an answer, except for sent messages; at the limit, its socket is not read."""
    sends_in_flight_max: int = 1_000
    """Messages and batches of one connection that are not durable yet; at the limit, its socket is not read."""
    unsent_bytes_max: int = 4 * 1024 * 1024
    """Bytes that one client has not read; at the limit, it gets no more messages and its socket is not read."""
    unread_bytes_max: int = 512 * 1024 * 1024
    """Bytes that the clients of all connections have not read; above it, those that have not kept up for longest are disconnected."""
    receive_bytes_max: int = 256 * 1024 * 1024
    """Bytes of receive buffers larger than 64 KiB. One client has at most as many of them as it leaves free, which is half if it is alone;
    its other connections queue before they receive a larger message. Two buffers are not counted. Buffers of 64 KiB that closed
    connections leave to their batches count too; if they alone reach the limit, new connections are closed."""
    keep_alive_ms: int = 30_000
    """Time (ms) without data from a client after which the server sends a PING. If the client stays silent for the same time again, it is
    disconnected."""
    stall_ms: int = 60_000
    """Time (ms) in which a command must arrive completely once it has begun, and in which a client must read some of what the server
    sent."""
    tls_handshake_ms: int = 10_000
    """Time (ms) that a client may take for the TLS handshake; until it ends, the connection counts against `connections_max`."""
    drain_move_ms: int = 2_000
    """While draining with other servers available: time (ms) that redirected clients have to reconnect before they are disconnected."""
