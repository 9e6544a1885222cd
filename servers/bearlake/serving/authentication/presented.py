"""Logins in an `Authorization` value, as HTTP requests and gRPC calls carry them: `Basic` and `Bearer`.

| scheme | mechanism of the settings |
|---|---|
| `Basic` (RFC 7617) | PLAIN |
| `Bearer` (RFC 6750) | OAUTHBEARER |
"""

import base64
import binascii
from typing import TYPE_CHECKING

from bearlake.errors import Denied, Invalid
from bearlake.serving.authentication.peer import Peer, login_rules
from bearlake.serving.authentication.settings import OAUTHBEARER, PLAIN, AuthenticationSettings
from bearlake.serving.listener import ListenerSettings
from bearlake.streams.principal import Principal

if TYPE_CHECKING:  # its libraries are loaded only by processes whose clients log in
    from bearlake.serving.authentication.authenticator import Authenticator

MECHANISMS = (PLAIN, OAUTHBEARER)
"""Mechanisms that carry their proof in one message. SCRAM needs several, so only Kafka has it."""

CREDENTIALS_CHARACTERS_MAX = 16_384


def require_one_message(protocol: str, listener: ListenerSettings, settings: AuthenticationSettings) -> None:
    """Raise `Invalid` if clients of `listener` must log in by mechanisms that its protocol does not have."""
    rules = login_rules(listener, settings)
    if rules.mechanisms and not set(rules.mechanisms) & set(MECHANISMS):
        raise Invalid(
            f"listeners.{protocol}: clients of this protocol log in by {' or '.join(MECHANISMS)} or by certificate, and"
            f" {', '.join(rules.mechanisms)} is all that the settings allow: set listeners.{protocol}.mechanisms, or"
            f" listeners.{protocol}.anonymous: true to serve every client"
        )


async def log_in(authenticator: "Authenticator", authorization: str, peer: Peer) -> Principal:
    """Return who presents this value. Raises as `Authenticator.log_in`."""
    scheme, _, credentials = authorization.strip().partition(" ")
    match scheme.lower():
        case "basic":
            user, password = read_basic(credentials.strip())
            return await authenticator.log_in(user, password, peer)
        case "bearer":
            return await authenticator.verify_token(credentials.strip(), peer)
        case "":
            raise Denied("a login is needed")
    raise Denied("the scheme of the authorization is not accepted, expected Basic or Bearer")


def read_basic(credentials: str) -> tuple[str, str]:
    """Return user name and password of Basic credentials. Raises `Denied` if they are malformed."""
    if len(credentials) > CREDENTIALS_CHARACTERS_MAX:
        raise Denied("the Basic credentials are too long")
    try:
        text = base64.b64decode(credentials, validate=True).decode()
    except (binascii.Error, ValueError):
        raise Denied("the Basic credentials are not base64 of UTF-8") from None  # the cause has the password
    return split_basic(text)


def split_basic(text: str) -> tuple[str, str]:
    """Return user name and password of `user:password`. Raises `Denied` if one of them is missing."""
    user, _, password = text.partition(":")
    if not user or not password:
        raise Denied("a user name and a password are needed")
    return user, password
