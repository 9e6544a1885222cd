"""Limits of the Iceberg REST catalog."""

from dataclasses import dataclass, field

from bearlake.objects.sts_settings import RoleSettings
from bearlake.protocols.rest.iceberg.sql_settings import SqlSettings
from bearlake.table.warehouse.settings import WarehouseSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """The Iceberg REST catalog for other engines."""

    request_bytes_max: int = 8 * 1024 * 1024
    """Largest request body, uncompressed: the updates of a commit, as JSON; a larger body is answered with 413."""
    request_value_count_max: int = 200_000
    """JSON values in a request body: objects, lists and what they contain. Each takes up to 100 bytes of memory once it is parsed. A schema
    of 10,000 columns has about 60,000."""
    request_count_max: int = 64
    """Concurrent requests; further requests are answered with 503. Each may have a body of the size above."""
    address_request_count_max: int = 32
    """Concurrent requests of one client address; further requests are answered with 503; 0: no limit. Half of the requests, so that one
    client cannot take all; clients behind one proxy or NAT share an address."""
    request_timeout_ms: int = 120_000
    """Longest time (ms) for one request."""
    unread_bytes_max: int = 256 * 1024 * 1024
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
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages whose scripts may call the catalog; `*` for all, none by default."""
    idle_ms: int = 75_000
    """Connections without a request for this long (ms) are closed, and those whose clients read nothing of an answer for as long
    (Linux)."""
    drain_idle_ms: int = 1_000
    """While draining: time (ms) in which clients may still send a request over an idle connection."""
    credentials: RoleSettings = field(default_factory=RoleSettings)
    sql: SqlSettings = field(default_factory=SqlSettings)
    warehouse: WarehouseSettings = field(default_factory=WarehouseSettings)
