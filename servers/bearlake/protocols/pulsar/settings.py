"""Settings of the Pulsar server: limits of connections, messages and requests, defaults of topics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarSettings:
    """The Pulsar server."""

    auto_create_streams: bool = True
    """Create a stream when a client produces to or subscribes to a topic that does not exist (Pulsar's `allowAutoTopicCreation`)."""
    auto_create_partition_count: int = 0
    """Partitions of such a topic; 0: it is not partitioned, a stream with one partition."""
    message_bytes_max: int = 5 * 1024 * 1024
    """Largest message or batch in bytes, as sent (Pulsar's `maxMessageSize`); clients cut larger messages into chunks."""
    uncompressed_bytes_max: int = 64 * 1024 * 1024
    """Largest batch in bytes when uncompressed; a bomb is refused before it goes off. What is stored already is not read beyond it either:
    lower it only if nothing larger is there."""
    connections_max: int = 10_000
    """Open client connections, those in a TLS handshake included; more are closed at once."""
    attachments_max: int = 20_000
    """Producers and consumers of one connection; more are refused with TooManyRequests."""
    watchers_max: int = 100
    """Topic lists that one connection may watch; more are refused with TooManyRequests."""
    requests_in_flight_max: int = 1_000
    """Requests of one connection that wait for an answer, except for sent messages; its socket is not read beyond."""
    sends_in_flight_max: int = 1_000
    """Messages and batches of one connection that are not durable yet; its socket is not read beyond."""
    unsent_bytes_max: int = 4 * 1024 * 1024
    """Bytes that one client has not taken yet before it gets no more messages and its socket is not read any more."""
    receive_bytes_max: int = 256 * 1024 * 1024
    """Bytes of receive buffers of more than 64 KiB; over it, connections wait in line before they receive a larger message."""
    keep_alive_ms: int = 30_000
    """Time (ms) without a word from a client after which it is asked for one, and as long again, after which it is disconnected."""
    stall_ms: int = 60_000
    """Time (ms) in which a command must arrive whole once it has begun, and in which a client must take some of what it is sent."""
    tls_handshake_ms: int = 10_000
    """Time (ms) that a client may take for the TLS handshake; until it ends, the connection counts against `connections_max`."""
    drain_move_ms: int = 2_000
    """While draining beside other servers: time (ms) that clients have to go where they were told before they are disconnected."""
