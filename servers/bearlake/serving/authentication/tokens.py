"""JSON Web Tokens: which are accepted, and which principal one names.

A token must have a signature by a key of the configured issuer, one of `ALGORITHMS`, and the claims `iss`, `aud`, `exp` and the one that
names the user. Symmetric algorithms and `none` are never accepted (RFC 8725 section 3.1), and a key that the token itself brings or names
by URL (`jwk`, `jku`, `x5u`) is not looked at.

Source: RFC 7519; RFC 8725 (best current practices); KIP-768 (claims of OAUTHBEARER).
"""

from dataclasses import dataclass
from typing import Any

import jwt

from bearlake.errors import Denied
from bearlake.serving.authentication.login import Login
from bearlake.serving.authentication.signing_keys import SigningKeys
from bearlake.streams.principal import Principal

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """JSON Web Tokens of one issuer."""

    issuer: str = ""
    """Issuer (`iss`) of accepted tokens; empty: no tokens are accepted."""
    audience: str = ""
    """Audience (`aud`) that a token must name."""
    keys_url: str = ""
    """URL of the issuer's keys (JWKS); empty: `jwks_uri` of `<issuer>/.well-known/openid-configuration`."""
    keys_file: str = ""
    """File with the issuer's keys (JWKS), instead of a URL. A file that changes is read again within a second."""
    user_claim: str = "sub"
    """Claim with the user's name."""
    groups_claim: str = "groups"
    """Claim with the user's groups, a list of strings; a token may lack it."""
    clock_skew_ms: int = 30_000
    """How far (ms) the issuer's clock may differ from this server's."""
    refresh_ms: int = 300_000
    """Time (ms) after which the keys are fetched again. A token with an unknown key has them fetched earlier, every `retry_ms` at most."""
    retry_ms: int = 10_000
    """Shortest time (ms) between two attempts to fetch the keys."""
    stale_ms_max: int = 3_600_000
    """Age (ms) of the keys after which tokens are refused because the issuer does not answer."""
    fetch_timeout_ms: int = 5_000
    """Time (ms) in which the issuer must answer."""
    token_bytes_max: int = 16_384
    """Largest token in bytes."""
    groups_max: int = 200
    """Most groups of one token."""


class Tokens:
    """Verifies tokens."""

    def __init__(self, settings: TokenSettings, keys: SigningKeys) -> None:
        self._settings = settings
        self._keys = keys

    async def verify(self, token: str) -> Login:
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
        except jwt.PyJWTError as error:
            raise Denied(f"the token is refused: {_reason(error)}") from None  # the cause may quote the token
        return Login(
            Principal("User", _text(claims, settings.user_claim)), _groups(claims, settings), float(claims["exp"])
        )


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


def _reason(error: jwt.PyJWTError) -> str:
    reasons: list[tuple[type[jwt.PyJWTError], str]] = [
        (jwt.ExpiredSignatureError, "it has expired"),
        (jwt.ImmatureSignatureError, "it is not valid yet"),
        (jwt.InvalidIssuerError, "another issuer made it"),
        (jwt.InvalidAudienceError, "it is for another audience"),
        (jwt.MissingRequiredClaimError, "it lacks a required claim"),
        (jwt.InvalidSignatureError, "its signature is wrong"),
    ]
    return next((text for kind, text in reasons if isinstance(error, kind)), "it is malformed")
