"""How clients of the gRPC server log in: the `authorization` metadata of each call (Basic, Bearer), or the connection's certificate.

A refused login ends the call with UNAUTHENTICATED, and too many of them with RESOURCE_EXHAUSTED and the time to wait. A call that lasts
longer than its login ends with UNAUTHENTICATED, too; the client begins it again with a new login.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

import grpc

from bearlake.errors import Denied
from bearlake.protocols.grpc.errors import Failure
from bearlake.serving.authentication import presented
from bearlake.serving.authentication.failures import MustWait
from bearlake.serving.authentication.peer import LoginRules
from bearlake.streams.principal import Principal

if TYPE_CHECKING:  # its libraries are loaded only by processes whose clients log in
    from bearlake.serving.authentication.authenticator import Authenticator

_METADATA_KEY = "authorization"


class Call(Protocol):
    """The part of `grpc.aio.ServicerContext` that says who calls."""

    def auth_context(self) -> dict[str, list[bytes]]: ...  # noqa: D102
    def peer(self) -> str: ...  # noqa: D102
    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class GrpcListenerLogin:
    """The rules of the listener, and who decides."""

    authenticator: "Authenticator"
    rules: LoginRules
    now_s: Callable[[], float] = time
    """The time in seconds since 1970."""

    async def admit(self, call: Call) -> tuple[Principal, float | None]:
        """Return who calls, and the time (s) until the login ends; None: never.

        Raises:
            Failure: UNAUTHENTICATED, or RESOURCE_EXHAUSTED after too many failed logins.
            Unavailable: the metadata store, or the issuer of tokens, does not answer.
        """
        try:
            async with asyncio.timeout(self.authenticator.settings.login_ms / 1000):
                who = await self._principal(call)
        except Denied as error:
            raise unauthenticated(str(error)) from None
        except MustWait as error:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            wait_ms = math.ceil(error.wait_s * 1000)
            raise Failure(code, "LOGINS", str(error), is_retriable=True, retry_ms=wait_ms) from None
        except TimeoutError:
            raise Failure(grpc.StatusCode.UNAVAILABLE, "LOGIN", "the login took too long", is_retriable=True) from None
        return who, self.authenticator.left_s(who, self.now_s())

    async def _principal(self, call: Call) -> Principal:
        if self.rules.by_certificate:
            from bearlake.serving.authentication.pem import subject_of  # its library takes time to load

            return self.authenticator.read_certificate(subject_of(certificate_of(call)))
        found = [value for key, value in call.invocation_metadata() or () if key == _METADATA_KEY]
        if len(found) > 1:
            raise Denied("the call has more than one authorization")
        value = found[0] if found else ""
        is_encrypted = call.auth_context().get("transport_security_type") == [b"ssl"]  # without TLS: "insecure"
        peer = self.rules.peer(address_of(call.peer()), is_encrypted=is_encrypted, listener="grpc")
        return await presented.log_in(self.authenticator, value if isinstance(value, str) else "", peer)


def certificate_of(call: Call) -> bytes:
    """Return the verified certificate (PEM) of the caller; empty without one."""
    (certificate,) = call.auth_context().get("x509_pem_cert") or [b""]
    return certificate


def unauthenticated(message: str) -> Failure:
    """Return the status for a caller who is not logged in."""
    return Failure(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", message)


def address_of(peer: str) -> str:
    """Return the IP address in gRPC's name of a peer, such as `ipv4:127.0.0.1:50000` or `ipv6:%5B::1%5D:50000`."""
    kind, _, place = unquote(peer).partition(":")
    return place.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else ""
