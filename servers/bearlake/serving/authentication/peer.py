"""The client of a connection before it has logged in: where it is, and how its listener lets it log in."""

import ipaddress
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from bearlake.errors import Invalid
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.serving.listener import ListenerSettings, is_loopback, join_address

log = logging.getLogger(__name__)

IPV6_PREFIX_BITS = 64
"""A client usually has all addresses of such a network, so failed logins are counted for the network."""


@dataclass(frozen=True, slots=True)
class LoginRules:
    """How clients of one listener log in."""

    mechanisms: Sequence[str] = ()
    """SASL mechanisms. Empty: clients cannot log in by SASL."""
    by_certificate: bool = False
    """The client's certificate is its login."""
    tokens_without_tls: bool = False
    """Tokens are also accepted on connections without TLS from other machines."""
    may_use_certificate: bool = False
    """A client that presents a certificate, and no other login, logs in by it."""

    def peer(self, address: str, *, is_encrypted: bool, listener: str) -> "Peer":
        """Return where a login to this listener comes from; `listener` is its name."""
        return Peer(address, is_encrypted, self.mechanisms, self.tokens_without_tls, listener)

    @property
    def is_required(self) -> bool:
        """Whether clients must log in."""
        return self.by_certificate or bool(self.mechanisms)


NO_LOGIN = LoginRules()


def login_rules(listener: ListenerSettings, settings: AuthenticationSettings) -> LoginRules:
    """Return how clients of `listener` log in.

    Mechanisms that the listener names come first, then client certificates, then the mechanisms of all listeners.
    """
    if listener.anonymous:
        return NO_LOGIN
    if listener.mechanisms:
        return LoginRules(tuple(listener.mechanisms))
    if listener.tls_client_ca_file:
        return LoginRules(by_certificate=True)
    return LoginRules(tuple(settings.mechanisms))


def is_open_to_others(listener: ListenerSettings, settings: AuthenticationSettings) -> bool:
    """Return whether other machines reach `listener` without a login."""
    needs_certificate = bool(listener.tls_client_ca_file)
    return not (is_loopback(listener.host) or needs_certificate or login_rules(listener, settings).is_required)


def check_openness(protocol: str, listener: ListenerSettings, settings: AuthenticationSettings) -> None:
    """Report a listener that other machines reach without a login (WARNING).

    Raises:
        Invalid: no setting says that this is intended.
    """
    if not is_open_to_others(listener, settings):
        return
    place = join_address(listener.host, listener.port)
    if not (listener.anonymous or settings.anonymous):
        raise Invalid(
            f"listeners.{protocol}: other machines reach {place}, and its clients need not log in:"
            " set authentication.mechanisms, or authentication.anonymous: true if everyone shall be served"
        )
    log.warning("clients from other machines need no login", extra={"protocol": protocol, "address": place})


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a login comes from."""

    address: str
    """The client's IP address."""
    is_encrypted: bool
    """Whether the connection uses TLS."""
    mechanisms: Sequence[str]
    """The mechanisms of the listener."""
    tokens_without_tls: bool = False
    """The listener accepts tokens without TLS."""
    listener: str = ""
    """The listener's name, for the audit log."""

    @property
    def network(self) -> str:
        """The address for which failed logins are counted."""
        try:
            found = ipaddress.ip_address(self.address.partition("%")[0])
        except ValueError:
            return self.address
        if isinstance(found, ipaddress.IPv4Address):
            return str(found)
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, IPV6_PREFIX_BITS), strict=False))
