"""A listening address of the gRPC server. gRPC binds and accepts itself, so this module applies the settings of `serving.listener` to gRPC.

gRPC cannot stop accepting while calls continue (its `stop` fails calls in transit: grpc/grpc#41785). This module therefore shuts down
the listening sockets themselves, which it finds among the process's file descriptors (Linux).
"""

import contextlib
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from bearlake.errors import Invalid, Unavailable
from bearlake.protocols.grpc.login import address_of
from bearlake.serving.certificates import SESSION_MS_MAX
from bearlake.serving.files import FollowedFiles
from bearlake.serving.listener import ListenerSettings, is_wildcard, join_address, tls_context, tls_files
from bearlake.serving.listener import bind as bind_socket
from bearlake.streams.principal import host_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A bound port and its advertised address."""

    port: int
    address: str
    """Advertised `host:port`."""


def bind(server: grpc.aio.Server, settings: ListenerSettings, now_s: Callable[[], float] = time.monotonic) -> Endpoint:
    """Bind a port of a server that is not started yet. Raises `Invalid`, `Unavailable`."""
    place = join_address(settings.host or "0.0.0.0", settings.port)  # noqa: S104 - as the settings say
    try:
        credentials = _credentials(settings, now_s) if settings.tls_certificate_file else None
        port = server.add_secure_port(place, credentials) if credentials else server.add_insecure_port(place)
    except RuntimeError as error:
        bind_socket(
            settings.host, settings.port, "grpc"
        ).close()  # gRPC does not say why; this does, in the words of other protocols
        raise Unavailable(f"grpc: cannot listen on {place}: {error}") from error
    host = settings.advertised_host or (socket.gethostname() if is_wildcard(settings.host) else settings.host)
    return Endpoint(port=port, address=join_address(host, settings.advertised_port or port))


def stop_accepting(port: int) -> None:
    """Refuse new connections to a port of this process; open connections continue. No-op without /proc."""
    for socket_ in _sockets(port):
        if socket_.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            with contextlib.suppress(OSError):
                socket_.shutdown(socket.SHUT_RD)


def connection_count(port: int) -> int:
    """Return how many connections on this port the process has open; 0 without /proc."""
    return sum(not socket_.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) for socket_ in _sockets(port))


def hang_up(port: int, peers: Collection[str]) -> None:
    """Close the connections on this port to these peers, in gRPC's names. No-op without /proc. Meant for a thread."""
    places = {(host_of(address_of(peer)), peer.rpartition(":")[2]) for peer in peers}
    _close(port, lambda place: (host_of(place[0]), str(place[1])) in places)


class OpenConnections:
    """Counts the connections of a port, and closes the newest ones of an address that has too many. gRPC does neither."""

    def __init__(self, port: int, count_max: int) -> None:
        """`count_max`: most connections of one address; 0: no limit."""
        self._port = port
        self._count_max = count_max
        self._admitted: set[tuple[str, int]] = set()
        """The peers, by address and port, of the connections that the last check left open."""
        self.count = 0
        """How many connections the last check left open."""

    def check(self) -> int:
        """Count, and close what is over the limit; returns how many connections that were. No-op without /proc. Meant for a thread."""
        peers = {place: host_of(place[0]) for socket_ in _sockets(self._port) if (place := _peer(socket_))}
        self._admitted = admitted(peers, self._admitted, self._count_max) if self._count_max else set(peers)
        self.count = len(self._admitted)
        surplus = set(peers) - self._admitted
        if surplus:
            _close(self._port, surplus.__contains__)
        return len(surplus)


def admitted(
    peers: Mapping[tuple[str, int], str], before: Collection[tuple[str, int]], count_max: int
) -> set[tuple[str, int]]:
    """Return the connections to keep: at most `count_max` of each address, those of `before` first.

    `peers`: the IP address of each connection, by its remote address and port.
    """
    counts: Counter[str] = Counter()
    found: set[tuple[str, int]] = set()
    for place in sorted(peers, key=lambda place: place not in before):
        counts[peers[place]] += 1
        if counts[peers[place]] <= count_max:
            found.add(place)
    return found


def _close(port: int, is_chosen: Callable[[tuple[str, int]], bool]) -> None:
    """Close the connections on this port whose remote place is chosen."""
    for socket_ in _sockets(port):
        place = _peer(socket_)
        if place is not None and is_chosen(place):
            with contextlib.suppress(OSError):
                socket_.shutdown(socket.SHUT_RDWR)


def _peer(connection: socket.socket) -> tuple[str, int] | None:
    """Return the remote place of a connection; None for a listening socket, or if the client has gone."""
    try:
        place = connection.getpeername()
    except OSError:
        return None
    return place[0], place[1]


def _sockets(port: int) -> Iterator[socket.socket]:
    """Yield duplicates of this process's sockets with the given local port; each duplicate is closed after its turn."""
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return
    for name in names:
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            socket_ = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # closed in the meantime
        with socket_, contextlib.suppress(OSError):
            if socket_.family in (socket.AF_INET, socket.AF_INET6) and socket_.getsockname()[1] == port:
                yield socket_


def _credentials(settings: ListenerSettings, now_s: Callable[[], float]) -> grpc.ServerCredentials:
    """Return credentials that gRPC reloads at every handshake, so that renewed files apply without a restart. Raises `Invalid`.

    If clients have certificates, credentials are also replaced after `SESSION_MS_MAX`: a client that resumes a session, for two hours with
    TLS 1.2 and two days with TLS 1.3, is not verified again. New credentials know no sessions.
    """
    followed = FollowedFiles(tls_files(settings))
    loaded_s = now_s()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """Called on gRPC's threads; None means no change."""
        nonlocal loaded_s
        is_old = bool(settings.tls_client_ca_file) and now_s() - loaded_s >= SESSION_MS_MAX / 1000
        if not followed.have_changed() and not is_old:
            return None
        loaded_s = now_s()
        try:
            # Check here: gRPC accepts a mismatched key and certificate, then fails every handshake.
            tls_context(settings, "grpc")
            return _certificates(settings)
        except Invalid as error:
            log.warning(
                "cannot use the changed TLS files; keeping the former ones",
                extra={"listener": "grpc", "error": str(error)},
            )
            return None

    return grpc.dynamic_ssl_server_credentials(
        _certificates(settings),
        renewed,  # type: ignore[arg-type] # the stubs do not know of None
        require_client_authentication=bool(settings.tls_client_ca_file),
    )


def _certificates(settings: ListenerSettings) -> grpc.ServerCertificateConfiguration:
    try:
        key = Path(settings.tls_key_file).read_bytes()
        chain = Path(settings.tls_certificate_file).read_bytes()
        clients = Path(settings.tls_client_ca_file).read_bytes() if settings.tls_client_ca_file else None
    except OSError as error:
        raise Invalid(f"grpc: cannot use {error.filename} for TLS: {error.strerror}") from error
    return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=clients)
