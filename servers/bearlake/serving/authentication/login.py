"""The result of a login."""

from dataclasses import dataclass

from bearlake.streams.principal import Principal


@dataclass(frozen=True, slots=True)
class Login:
    """Whom a caller has proved to be."""

    principal: Principal
    groups: frozenset[str] = frozenset()
    """The user's groups, by the token's issuer."""
    expires_s: float | None = None
    """When the proof ends, in seconds since 1970; None: never."""
