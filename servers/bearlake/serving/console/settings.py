"""The settings of the console."""

from dataclasses import dataclass

from bearlake.serving.listener import BoundSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings(BoundSettings):
    """The console: a web page that shows streams, groups and compaction, by the public APIs."""

    host: str = "127.0.0.1"
    """Address to bind. On any address other than loopback, the APIs below must not be on loopback, where they may trust every caller."""
    port: int = 9645
    """Port to bind; 0 selects a free port."""
    advertised_host: str = ""
    """Host that browsers connect to; empty: `host`, or the name of the machine if `host` means all addresses."""
    admin_url: str = ""
    """URL of an admin API; empty: that of this process (bearlake up), or http://127.0.0.1:9644."""
    rest_url: str = ""
    """URL of a REST server; empty: that of this process (bearlake up), or http://127.0.0.1:8082."""
    registry_url: str = ""
    """URL of a schema registry; empty: that of this process (bearlake up), or http://127.0.0.1:8081."""
    pulsar_url: str = ""
    """URL of Pulsar's HTTP API; empty: that of this process (bearlake up), or, on loopback, http://127.0.0.1:8080. Otherwise the console
    shows no Pulsar subscriptions."""
    catalog_url: str = ""
    """URL of an Iceberg REST catalog; empty: that of this process (bearlake up), or, on loopback, http://127.0.0.1:8181. Otherwise the
    console shows neither tables nor SQL."""
    tls_ca_file: str = ""
    """PEM file with the authorities of the certificates of these APIs; empty: the authorities that this machine trusts."""
    host_names: tuple[str, ...] = ()
    """Public DNS names by which browsers reach the console without TLS; `*` for any name."""
    request_bytes_max: int = 2 * 1024 * 1024
    """Largest request body in bytes, such as a record to write."""
    request_timeout_ms: int = 60_000
    """Longest time (ms) for one request, including the answer of the API."""
    connect_timeout_ms: int = 5_000
    """Longest time (ms) to connect to an API."""
    request_count_max: int = 256
    """Concurrent requests; further requests are answered with 503."""
    address_request_count_max: int = 128
    """Concurrent requests of one client address; further requests are answered with 503; 0: no limit. Half of the requests, so that one
    client cannot take all; clients behind one proxy or NAT share an address."""
    upstream_connection_count_max: int = 128
    """Open connections to the APIs; further requests wait. An API counts them all for the console's address."""
    unread_bytes_max: int = 64 * 1024 * 1024
    """Bytes of answers that the clients of all connections have not read; above it, those that have not kept up for longest are
    disconnected."""
    connection_count_max: int = 1_024
    """Open connections of browsers; a request over a further connection is answered with 503, and the connection is closed."""
    address_connection_count_max: int = 512
    """Open connections of one client address; further connections are closed at once; 0: no limit."""
    first_request_ms: int = 10_000
    """Time (ms) in which a new connection must send the head of its first request; otherwise it is closed."""
    idle_ms: int = 75_000
    """Connections without a request for this long (ms) are closed."""
