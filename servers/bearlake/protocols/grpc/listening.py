"""An address of the gRPC server. gRPC binds and accepts by itself, so what `serving.listener` says is done with its means here."""

import socket
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from bearlake.errors import Invalid, Unavailable
from bearlake.serving.listener import ListenerSettings, is_wildcard, join_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A bound port, and what clients are told about it."""

    port: int
    address: str
    """`host:port` as clients are told."""


def bind(server: grpc.aio.Server, wanted: ListenerSettings) -> Endpoint:
    """Bind a port of a server that has not been started. Raises `Invalid`, `Unavailable`."""
    place = join_address(wanted.host or "0.0.0.0", wanted.port)  # noqa: S104 - as the settings say
    try:
        credentials = _credentials(wanted) if wanted.tls_certificate_file else None
        port = server.add_secure_port(place, credentials) if credentials else server.add_insecure_port(place)
    except RuntimeError as error:
        raise Unavailable(f"grpc: cannot listen on {place}: {error} (port 0 takes a free one)") from error
    host = wanted.advertised_host or (socket.gethostname() if is_wildcard(wanted.host) else wanted.host)
    return Endpoint(port=port, address=join_address(host, wanted.advertised_port or port))


def _credentials(wanted: ListenerSettings) -> grpc.ServerCredentials:
    try:
        key = Path(wanted.tls_key_file).read_bytes()
        chain = Path(wanted.tls_certificate_file).read_bytes()
        clients = Path(wanted.tls_client_ca_file).read_bytes() if wanted.tls_client_ca_file else None
    except OSError as error:
        raise Invalid(f"grpc: cannot use {error.filename} for TLS: {error.strerror}") from error
    return grpc.ssl_server_credentials(
        [(key, chain)], root_certificates=clients, require_client_auth=clients is not None
    )
