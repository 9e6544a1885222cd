"""Settings of authentication: which proofs are accepted, and their limits."""

from dataclasses import dataclass, field

from bearlake.metadata.users import SCRAM_HASHES

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (*SCRAM_HASHES, PLAIN, OAUTHBEARER)
"""SASL mechanisms (RFC 4422)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSettings:
    """Limits of failed logins, per server."""

    per_address_max: int = 20
    """Failed logins of one address within `window_ms`; after that its logins by password are refused until the window has passed. A user
    who logged in from there before has an allowance of the same size for that address alone."""
    per_user_max: int = 100
    """Failed logins of one user within `window_ms`, all addresses together. Addresses where the user logged in before are exempt."""
    window_ms: int = 60_000
    """Time (ms) in which a full allowance of failures returns, evenly."""
    entries_max: int = 100_000
    """Addresses, and users, that are remembered; the one that was idle longest is forgotten first."""


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
    """File with the issuer's keys (JWKS), instead of a URL. It is read again every second, as long as tokens come."""
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
    """Maximum number of groups of one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationSettings:
    """Who may log in, and how. By default clients need not log in."""

    mechanisms: list[str] = field(default_factory=list)
    """Mechanisms of listeners that name none of their own: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER. Only Kafka has SCRAM; PLAIN
    and OAUTHBEARER also mean Basic and Bearer (HTTP, gRPC), and basic and token (Pulsar). Empty: clients of such a listener need not log
    in, unless it asks for client certificates."""
    anonymous: bool = False
    """Clients from other machines need not log in either, on listeners without mechanisms and client certificates. Without it, a server
    does not start such a listener on an address that other machines reach, unless the listener itself is `anonymous`."""
    plain_without_tls: bool = False
    """Also accept passwords and tokens on connections without TLS from other machines. Anyone on the network path can read them."""
    certificate_rules: list[str] = field(default_factory=lambda: ["DEFAULT"])
    """Rules that make a user name of a client certificate's subject (Kafka's `ssl.principal.mapping.rules`)."""
    login_ms: int = 10_000
    """Time (ms) in which a connection must log in."""
    refusal_ms: int = 100
    """Time (ms) that a connection stays open after a refused login, so that the client reads why (Kafka's
    `connection.failed.authentication.delay.ms`)."""
    session_ms_max: int = 3_600_000
    """Longest time (ms) between two logins of a Kafka or Pulsar connection, and longest time of one HTTP answer or gRPC call; a token that
    ends earlier shortens it. A connection by certificate ends likewise. After that time, Kafka's server closes the connection at its next
    request (KIP-368), others end at once, and clients log in again. 0: only tokens end."""
    checks_waiting_max: int = 1_000
    """Maximum number of passwords that wait to be checked. A check takes milliseconds of CPU time; further logins are refused for now."""
    checks_waiting_per_address_max: int = 100
    """The same for one address, whose passwords are checked one after another."""
    failures: FailureSettings = field(default_factory=FailureSettings)
    token: TokenSettings = field(default_factory=TokenSettings)

    def __post_init__(self) -> None:
        check_mechanisms(self.mechanisms, self)
        if self.anonymous and self.mechanisms:
            raise ValueError("anonymous: true contradicts mechanisms")


def check_mechanisms(mechanisms: list[str], settings: AuthenticationSettings) -> None:
    """Raise `ValueError` unless clients can use these mechanisms with these settings."""
    unknown = sorted(set(mechanisms) - set(MECHANISMS))
    if unknown:
        raise ValueError(f"mechanisms: unknown {', '.join(unknown)}, expected some of {', '.join(MECHANISMS)}")
    if OAUTHBEARER in mechanisms and not (settings.token.issuer and settings.token.audience):
        raise ValueError("mechanisms: OAUTHBEARER needs token.issuer and token.audience")
