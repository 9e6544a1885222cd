"""The settings of the admin API."""

import ssl
from dataclasses import dataclass

from typing_extensions import override

from bearlake.serving.listener import BoundSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings(BoundSettings):
    """The admin API: streams, servers, settings, metrics and health over HTTP."""

    host: str = "127.0.0.1"
    """Address to bind. Any address other than loopback requires a token."""
    port: int = 9644
    """Port to bind; 0 selects a free port."""
    advertised_host: str = ""
    """Host that other processes connect to; empty: `host`, or the name of the machine if `host` means all addresses."""
    tls_client_ca_file: str = ""
    """PEM file with the authorities of client certificates. A client may then present a certificate instead of a login; the user whom it
    names must be a super user. Clients without a certificate log in by the token or as super users. Empty: certificates are not asked
    for."""
    tls_ca_file: str = ""
    """PEM file with the authorities of the other servers' certificates; empty: the authorities that this machine trusts. Servers verify
    each other before they send the token of `token_file`."""
    tls_server_name: str = ""
    """Name that the certificates of all servers have, if these are reached by addresses that are not in the certificates, such as pods.
    Empty: each certificate must have the host by which its server is reached."""
    token_file: str = ""
    """File with the bearer token (at least 16 characters); empty: the variable BEARLAKE_ADMIN_TOKEN, if it is set. A changed file is read
    again within a second."""
    metrics_token_file: str = ""
    """File with another bearer token (at least 16 characters), which reads `/metrics` and health and gets 403 everywhere else: for
    Prometheus. Needs an admin token. A changed file is read again within a second. Empty: only the admin token and super users read
    metrics."""
    token_overlap_ms: int = 600_000
    """How long the previous token is accepted after a new token was found in one of the two files. Longer than a Secret takes to reach all
    pods (about two minutes); 0 rejects a leaked token at once."""
    request_bytes_max: int = 1024 * 1024
    """Largest request body."""
    request_timeout_ms: int = 30_000
    """Longest time for one request."""
    unread_bytes_max: int = 256 * 1024 * 1024
    """Bytes of answers that the clients of all connections have not read; above it, those that have not kept up for longest are
    disconnected."""
    request_count_max: int = 64
    """Concurrent requests; further requests are answered with 503."""
    address_request_count_max: int = 32
    """Concurrent requests of one client address; further requests are answered with 503; 0: no limit. Half of the requests, so that one
    client cannot take all; clients behind one proxy or NAT share an address."""
    connection_count_max: int = 256
    """Open connections; a request over a further connection is answered with 503, and the connection is closed."""
    address_connection_count_max: int = 128
    """Open connections of one client address; further connections are closed at once; 0: no limit. One client must not keep the machine's
    health checks out."""
    first_request_ms: int = 10_000
    """Time (ms) in which a new connection must send the head of its first request; otherwise it is closed."""
    tokens_without_tls: bool = False
    """Without TLS, also accept JSON Web Tokens of super users from other machines. Everybody on the way can read such a token, as well as
    the bearer token of `token_file`. For short-lived tokens on a network that you trust, such as that of a cluster."""
    host_names: tuple[str, ...] = ()
    """Public DNS names by which clients reach this server without TLS; `*` for any name. Addresses, names without a dot and names of
    private networks are always allowed."""
    health_timeout_ms: int = 5_000
    """Time in which the metadata store must answer for the server to count as healthy."""

    @property
    @override
    def client_verification(self) -> ssl.VerifyMode:
        """A certificate is optional: health checks have none, and neither have the other servers."""
        return ssl.CERT_OPTIONAL
