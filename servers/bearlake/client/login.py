"""How a client says who it is, besides a certificate (`Tls`): every call has the proof in its `authorization` metadata.

Source: RFC 7617 (Basic), RFC 6750 (Bearer).
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address


@dataclass(frozen=True, slots=True)
class Password:
    """A user and its password. `without_tls`: also send it to other machines without TLS, where everybody on the way can read it."""

    user: str
    password: str = field(repr=False)
    without_tls: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if ":" in self.user:  # Basic ends the name there
            raise ValueError(f"user {self.user!r}: a name with a colon cannot log in by password here")

    def authorization(self) -> str:
        """Return the value of the `authorization` metadata."""
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Token:
    """A JSON Web Token. `read` returns the current one; it is called for every call, so it must be fast and should renew the token in time.

    `without_tls` as in `Password`.
    """

    read: Callable[[], str] = field(repr=False)
    without_tls: bool = field(default=False, kw_only=True)

    def authorization(self) -> str:
        """Return the value of the `authorization` metadata."""
        return f"Bearer {self.read()}"


Login = Password | Token


def check_secrecy(login: Login, addresses: Sequence[str], *, has_tls: bool) -> None:
    """Raise `ValueError` if the login would travel to another machine without TLS, and the caller has not allowed that."""
    if has_tls or login.without_tls:
        return
    for address in addresses:
        if not _is_loopback(address.rpartition(":")[0].strip("[]")):
            raise ValueError(f"a login at {address} needs TLS: pass tls=Tls(...), or without_tls=True to the login")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
