"""Addresses to listen on: bound early and handed to services later, so that real ports are known before the server is announced.

A `Listener` is a socket that already listens (connections wait in its backlog until the service accepts), together with the
advertised address. Port 0 takes a free port.
"""

import errno
import os
import socket
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Self

from typing_extensions import override

from bearlake.errors import Invalid, Unavailable
from bearlake.serving.tls_records import RecordsSslObject

BACKLOG_COUNT = 1024
"""Connections that wait until the service accepts them. Whoever passes the socket to an event loop names it again: loops set their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSettings:
    """An address to listen on, and its TLS."""

    host: str = "127.0.0.1"
    """Address to bind; 0.0.0.0 or :: for all addresses of the machine."""
    port: int = 0
    """Port to bind; 0 selects a free port."""
    advertised_host: str = ""
    """Host that clients connect to; empty: `host`, or the name of the machine if `host` means all addresses."""
    tls_certificate_file: str = ""
    """PEM file with the certificate chain; empty: no TLS."""
    tls_key_file: str = ""
    """PEM file with the private key of the certificate."""
    tls_client_ca_file: str = ""
    """PEM file with the authorities of client certificates. If set, every client must present a certificate; empty: clients need none."""
    tls_client_crl_file: str = ""
    """PEM file with one revocation list (RFC 5280) of each authority, also of roots and intermediates. Clients are refused if their own
    certificate, or that of an authority above it, is on a list, or if the list of one of these authorities is missing or has expired.
    Empty: certificates are not checked for revocation."""

    def __post_init__(self) -> None:
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise ValueError("tls_certificate_file and tls_key_file require each other")
        if self.tls_client_ca_file and not self.tls_certificate_file:
            raise ValueError("tls_client_ca_file needs tls_certificate_file and tls_key_file")
        if self.tls_client_crl_file and not self.tls_client_ca_file:
            raise ValueError("tls_client_crl_file needs tls_client_ca_file")

    @property
    def client_verification(self) -> ssl.VerifyMode:
        """Whether clients must present a certificate, if `tls_client_ca_file` is set. One that is presented must be valid in any case."""
        return ssl.CERT_REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings(BoundSettings):
    """One address of a protocol server."""

    name: str = ""
    """Name, needed if a protocol has several listeners, such as EXTERNAL. A client learns only the addresses of listeners with the name of
    its own listener."""
    advertised_port: int = 0
    """Port that clients connect to; 0: the bound port."""
    mechanisms: list[str] = field(default_factory=list)
    """How clients log in, as `authentication.mechanisms`. Empty: by their certificate if `tls_client_ca_file` is set, or else by the
    mechanisms of `authentication.mechanisms`."""
    anonymous: bool = False
    """Clients need not log in, whatever `authentication` says, also those from other machines."""

    def __post_init__(self) -> None:
        BoundSettings.__post_init__(self)
        if self.anonymous and self.mechanisms:
            raise ValueError("anonymous: true contradicts mechanisms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening socket, its advertised address, and its TLS context, if any. The service closes the socket."""

    name: str
    socket: socket.socket
    advertised_host: str
    advertised_port: int
    tls: "RenewableContext | None" = None

    @property
    def address(self) -> str:
        """The advertised `host:port`; an IPv6 address is in brackets."""
        return join_address(self.advertised_host, self.advertised_port)

    def endpoint(self, protocol: str) -> tuple[str, str]:
        """Return name and address of this listener among a server's endpoints: (`kafka` or `kafka:NAME`, `host:port`)."""
        return (f"{protocol}:{self.name}" if self.name else protocol), self.address


def open_listener(settings: BoundSettings, what: str) -> Listener:
    """Bind and listen; `what` names the protocol in messages.

    Raises:
        Invalid: the host cannot be resolved, or the TLS files cannot be used.
        Unavailable: the port is taken, or the address is not one of this machine's.
    """
    context = tls_context(settings, what)
    tls = None if context is None else RenewableContext(context)
    bound = bind(settings.host, settings.port, what)
    port = bound.getsockname()[1]
    host = settings.advertised_host or (socket.gethostname() if is_wildcard(settings.host) else settings.host)
    name, advertised_port = "", 0
    if isinstance(settings, ListenerSettings):
        name, advertised_port = settings.name, settings.advertised_port
    return Listener(name=name, socket=bound, advertised_host=host, advertised_port=advertised_port or port, tls=tls)


def bind(host: str, port: int, what: str) -> socket.socket:
    """Return a non-blocking socket that listens on `host`:`port`. Raises `Invalid`, `Unavailable`; see `open_listener`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise Invalid(f"{what}: cannot resolve host {host!r}: {error.strerror}") from error
    family, kind, protocol, _, address = found[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG_COUNT)
    except OSError as error:
        bound.close()
        place = join_address(host, port)
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"{what}: port {place} is in use by another process (port 0 selects a free port)"
            ) from error
        raise Unavailable(f"{what}: cannot listen on {place}: {os.strerror(error.errno or 0)}") from error
    bound.setblocking(False)
    return bound


class RenewableContext(ssl.SSLContext):
    """A server's TLS context that can be replaced while servers use it: each handshake takes the newest one.

    Event loops want an `ssl.SSLContext` and only call `wrap_bio` on it. A context that is changed instead keeps the authorities that it has
    trusted once.
    """

    newest: ssl.SSLContext
    """The context of the next handshakes."""

    def __new__(cls, context: ssl.SSLContext) -> Self:
        """Begin with `context`."""
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made.newest = context
        return made

    @override
    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **options: Any
    ) -> ssl.SSLObject:  # Any: passed on as they are
        return RecordsSslObject.wrap(self.newest, incoming, outgoing, *arguments, **options)


def tls_context(settings: BoundSettings, what: str) -> ssl.SSLContext | None:
    """Return the server side's TLS context, or None without TLS. Raises `Invalid` if the files cannot be used."""
    if not settings.tls_certificate_file:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # By default, Python 3.13 ends a chain at any authority of the file, so a revoked intermediate authority would be accepted, and refuses
    # authorities without a key usage. Clients are verified alike on all Pythons.
    context.verify_flags &= ~(ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags.VERIFY_X509_STRICT)
    try:
        context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
        if settings.tls_client_ca_file:
            context.load_verify_locations(settings.tls_client_ca_file)
            context.verify_mode = settings.client_verification
            # A resumed session would skip the checks of the certificate; see also `certificates.SESSION_MS_MAX`.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        if settings.tls_client_crl_file:
            context.load_verify_locations(settings.tls_client_crl_file)
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"{what}: cannot use {' and '.join(tls_files(settings))} for TLS: {error}") from error
    return context


def tls_files(settings: BoundSettings) -> list[str]:
    """Return the files of a listener's TLS; none without TLS."""
    files = (
        settings.tls_certificate_file,
        settings.tls_key_file,
        settings.tls_client_ca_file,
        settings.tls_client_crl_file,
    )
    return [file for file in files if file]


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether an address bound to `host` is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Return whether `host` means all addresses of the machine."""
    return host in ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
