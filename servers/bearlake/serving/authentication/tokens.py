"""JSON Web Tokens: which are accepted, and which principal one names.

A token must have a signature by a key of the configured issuer, one of `ALGORITHMS`, and the claims `iss`, `aud`, `exp` and the one that
names the user. Symmetric algorithms and `none` are never accepted (RFC 8725 section 3.1), and a key that the token itself brings or names
by URL (`jwk`, `jku`, `x5u`) is not looked at.

Source: RFC 7519; RFC 8725 (best current practices); KIP-768 (claims of OAUTHBEARER).
"""

from typing import Any

import jwt

from bearlake.errors import Denied
from bearlake.serving.authentication.settings import TokenSettings
from bearlake.serving.authentication.signing_keys import SigningKeys
from bearlake.streams.principal import Principal, user_principal

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")

_MALFORMED = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""What PyJWT raises for refused tokens. The errors of Python itself come from hostile JSON."""


class Tokens:
    """Verifies tokens."""

    def __init__(self, settings: TokenSettings, keys: SigningKeys) -> None:
        self._settings = settings
        self._keys = keys

    async def verify(self, token: str) -> Principal:
        """Return whom the token names.

        Raises:
            Denied: the token is malformed, expired, for another audience, or not signed by the issuer. The text never has the token.
            Unavailable: the issuer's keys are not known, or too old.
        """
        settings = self._settings
        if not settings.issuer:
            raise Denied("tokens are not accepted here")
        if len(token) > settings.token_bytes_max:
            raise Denied(f"the token has {len(token)} bytes, the limit is {settings.token_bytes_max}")
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in ALGORITHMS:
                raise Denied(f"the token's algorithm is not accepted, expected one of {', '.join(ALGORITHMS)}")
            key = await self._keys.find(key_id)
            if key is None:
                raise Denied("the token is signed with a key that its issuer does not publish")
            if key.algorithm_name is not None and key.algorithm_name != algorithm:
                raise Denied("the token's algorithm is not the one of its key")
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                issuer=settings.issuer,
                audience=settings.audience,
                leeway=settings.clock_skew_ms / 1000,
                options={"require": ["iss", "aud", "exp", settings.user_claim]},
            )
            expires_s = float(claims["exp"])
        except _MALFORMED as error:
            raise Denied(f"the token is refused: {_reason(error)}") from None  # the cause may quote the token
        return user_principal(_text(claims, settings.user_claim), _groups(claims, settings), expires_s)


def _text(claims: dict[str, Any], name: str) -> str:
    value = claims[name]
    if not isinstance(value, str) or not 1 <= len(value) <= 256:
        raise Denied(f"the token's claim {name!r} is not a text of 1 to 256 characters")
    return value


def _groups(claims: dict[str, Any], settings: TokenSettings) -> frozenset[str]:
    found = claims.get(settings.groups_claim, [])
    if not isinstance(found, list) or not all(isinstance(group, str) for group in found):
        raise Denied(f"the token's claim {settings.groups_claim!r} is not a list of texts")
    if len(found) > settings.groups_max:
        raise Denied(f"the token has {len(found)} groups, the limit is {settings.groups_max}")
    return frozenset(found)


def _reason(error: Exception) -> str:
    reasons: list[tuple[type[jwt.PyJWTError], str]] = [
        (jwt.ExpiredSignatureError, "it has expired"),
        (jwt.ImmatureSignatureError, "it is not valid yet"),
        (jwt.InvalidIssuerError, "another issuer made it"),
        (jwt.InvalidAudienceError, "it is for another audience"),
        (jwt.MissingRequiredClaimError, "it lacks a required claim"),
        (jwt.InvalidSignatureError, "its signature is wrong"),
    ]
    return next((text for kind, text in reasons if isinstance(error, kind)), "it is malformed")
