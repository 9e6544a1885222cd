"""Who sends an HTTP request: `principal_of` is the only place that handlers ask.

A listener whose clients log in has an `HttpListenerLogin`. The guard asks it before every handler. It takes a password (Basic), a token
(Bearer), the certificate of the connection, or a token with which another server names its client (`authentication/forwarding.py`).

Source: RFC 9110 section 11 (authentication), RFC 7617 (Basic), RFC 6750 (Bearer), RFC 6585 (429).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from bearlake.errors import Denied, Overloaded
from bearlake.serving.addresses import address_of
from bearlake.serving.authentication import presented
from bearlake.serving.authentication.failures import MustWait
from bearlake.serving.authentication.peer import LoginRules, Peer
from bearlake.serving.authentication.settings import OAUTHBEARER, PLAIN
from bearlake.streams.principal import ANONYMOUS, Principal, at_host

if TYPE_CHECKING:  # their libraries are loaded only by processes whose clients log in
    from bearlake.serving.authentication.authenticator import Authenticator
    from bearlake.serving.authentication.certificates import Subject
    from bearlake.serving.authentication.forwarding import ForwardedLogins

FORWARDED = "Bearlake-Forwarded"
"""Header of requests between servers: the node id of the forwarding server. Such a request is not forwarded again."""

_PRINCIPAL = web.RequestKey("principal", Principal)
_REALM = "bearlake"
_BETWEEN_SERVERS = "bearlake"  # `forwarding.SCHEME`, in lower case


class LoginRefused(Exception):
    """The request's client is not logged in; the answer has this status and these headers."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def principal_of(request: web.Request) -> Principal:
    """Return who sends the request; `User:ANONYMOUS` on a listener whose clients need not log in."""
    who: Principal = request.get(_PRINCIPAL, ANONYMOUS)
    return who


def note_anonymous(request: web.Request, listener: str = "") -> None:
    """Note that the request's client need not log in, for `principal_of`. The client's address is unknown if a server forwards for it."""
    address = "" if FORWARDED in request.headers else client_address(request)
    note_principal(request, at_host(ANONYMOUS, address, listener))


def note_principal(request: web.Request, who: Principal) -> None:
    """Note who sends the request, for `principal_of`."""
    request[_PRINCIPAL] = who


@dataclass(frozen=True, slots=True)
class HttpListenerLogin:
    """How clients of one HTTP listener log in."""

    authenticator: "Authenticator"
    rules: LoginRules
    forwarded: "ForwardedLogins | None" = None
    """Tokens of the other servers; None: this listener accepts none."""
    now_s: Callable[[], float] = time
    """The time in seconds since 1970."""

    async def admit(self, request: web.Request, listener: str = "") -> Principal:
        """Return who sends the request to the listener, and note it.

        Raises:
            LoginRefused: 401, the client must log in; 403, its certificate has no user name; 429, too many failed logins.
            Unavailable: the metadata store, or the issuer of tokens, does not answer.
        """
        who = await self._principal(request, listener)
        who = at_host(who, who.host or client_address(request), listener)
        note_principal(request, who)
        return who

    def left_s(self, who: Principal, age_s: float = 0.0) -> float | None:
        """Return the time (s) until a login that began `age_s` ago ends; None: never. Answers that take longer end then."""
        now_s = self.now_s()
        ends_s = self.authenticator.ends_s(who, now_s - age_s)
        return None if ends_s == math.inf else max(0.0, ends_s - now_s)

    def must_reconnect(self, age_s: float) -> bool:
        """Whether a connection of this age (s) must end. A certificate is verified only when a connection begins."""
        session_s = self.authenticator.settings.session_ms_max / 1000
        may_be_by_certificate = self.rules.by_certificate or self.rules.may_use_certificate
        return may_be_by_certificate and 0 < session_s <= age_s

    def is_by_certificate(self, request: web.Request) -> bool:
        """Whether the request's login is the certificate of its connection."""
        if self.rules.by_certificate:
            return True
        return self.rules.may_use_certificate and hdrs.AUTHORIZATION not in request.headers and bool(_subject(request))

    async def pass_on(self, who: Principal, node_id: int, method: str, path: str) -> Mapping[str, str]:
        """Return the headers that tell server `node_id` for whom this server forwards a request. Raises `Unavailable`."""
        if self.forwarded is None:
            return {}
        return {hdrs.AUTHORIZATION: await self.forwarded.sign(who, node_id, method, path)}

    async def _principal(self, request: web.Request, listener: str) -> Principal:
        if request.transport is None:
            raise ConnectionResetError("the client has gone")
        if self.is_by_certificate(request):
            try:
                return self.authenticator.read_certificate(_subject(request))
            except Denied as error:
                raise LoginRefused(403, str(error), {}) from None
        peer = self.rules.peer(client_address(request), is_encrypted=request.secure, listener=listener)
        values = request.headers.getall(hdrs.AUTHORIZATION, [])
        try:
            if len(values) > 1:
                raise Denied("the request has more than one Authorization header")
            return await self._log_in(request, values[0] if values else "", peer)
        except Denied as error:
            raise LoginRefused(401, str(error), self._challenge(bool(values))) from None
        except Overloaded as error:
            wait_s = error.wait_s if isinstance(error, MustWait) else 1
            raise LoginRefused(429, str(error), {hdrs.RETRY_AFTER: retry_after(wait_s)}) from None

    async def _log_in(self, request: web.Request, value: str, peer: Peer) -> Principal:
        scheme, _, token = value.partition(" ")
        if scheme.lower() == _BETWEEN_SERVERS and self.forwarded is not None:
            return await self.forwarded.verify(token, request.method, request.rel_url.raw_path_qs)
        return await presented.log_in(self.authenticator, value, peer)

    def _challenge(self, is_refused: bool) -> Mapping[str, str]:
        challenges: Sequence[tuple[str, str]] = (
            (OAUTHBEARER, f'Bearer realm="{_REALM}"' + (', error="invalid_token"' if is_refused else "")),
            (PLAIN, f'Basic realm="{_REALM}", charset="UTF-8"'),
        )
        return {hdrs.WWW_AUTHENTICATE: ", ".join(text for name, text in challenges if name in self.rules.mechanisms)}


def _subject(request: web.Request) -> "Subject":
    """Return the subject of the client's certificate, which TLS has verified; empty without one."""
    certificate = None if request.transport is None else request.transport.get_extra_info("peercert")
    subject: Subject = (certificate or {}).get("subject", ())
    return subject


def retry_after(wait_s: float) -> str:
    """Return the value of Retry-After (whole seconds, at least 1) for a client that must wait `wait_s` seconds."""
    return str(max(1, math.ceil(wait_s)))


def client_address(request: web.Request) -> str:
    """Return the IP address from which the request comes; empty if the client has gone."""
    return "" if request.transport is None else address_of(request.transport.get_extra_info("peername"))
