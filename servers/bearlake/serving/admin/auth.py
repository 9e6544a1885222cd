"""Who may use the admin API.

On a loopback address every user of this machine has access, if the request's Host header names the machine itself (this blocks a web
page whose own name resolves to 127.0.0.1). Any other address requires a bearer token; the server does not start without one.
A configured token is always required, or else the login of a super user. The metrics token reads metrics and health, and nothing else.
`guard.py` applies these rules to requests.

Source: RFC 6750 (bearer tokens); CWE-346 and CWE-350 (DNS rebinding).
"""

from collections.abc import Mapping

from bearlake.errors import Invalid
from bearlake.serving.admin.settings import AdminSettings
from bearlake.serving.admin.token import AdminToken, check_token, read_token_file
from bearlake.serving.http.login import LoginRefused
from bearlake.serving.listener import is_loopback

TOKEN_VARIABLE = "BEARLAKE_ADMIN_TOKEN"  # noqa: S105 - a variable's name
METRICS_TOKEN_FILE = "admin.metrics_token_file"  # noqa: S105 - a setting's name
OPEN_PATHS = frozenset({"/livez", "/healthz", "/readyz"})
"""Paths of health checks, which need neither a token nor a login."""
METRICS_PATH = "/metrics"
"""The only other path that the metrics token may read."""


def has_access(authorization: str | None, host: str | None, token: AdminToken | None) -> bool:
    """Return whether a request with these headers may use the API; False: only with the login of a super user.

    `token` None: only this machine can reach the API, without a token.

    Raises:
        LoginRefused: no token is configured, and the Host header does not name this machine.
    """
    if token is not None:
        return token.is_in(authorization)
    if not is_own_name(host):
        raise LoginRefused(403, "send the request to this server as 127.0.0.1 or localhost", {})
    return True


def is_own_name(host_header: str | None) -> bool:
    """Return whether a request's Host header names this machine's loopback."""
    name = (host_header or "").lower()
    name = name[: name.rfind("]") + 1] if name.startswith("[") else name.partition(":")[0]
    return is_loopback(name.strip("[]"))


def read_token(settings: AdminSettings, environ: Mapping[str, str]) -> AdminToken | None:
    """Return the configured token, or None if none is needed.

    Raises:
        Invalid: the token is missing on a non-loopback address or beside client certificates, is too short, or its file cannot be read.
    """
    if settings.token_file:
        token = read_token_file(settings.token_file)
        return AdminToken(token, settings.token_file, overlap_ms=settings.token_overlap_ms)
    token = environ.get(TOKEN_VARIABLE, "")
    if token:
        check_token(token, f"the variable {TOKEN_VARIABLE}")
        return AdminToken(token)
    if settings.tls_client_ca_file:
        raise Invalid(
            "admin.tls_client_ca_file is set, and clients without a certificate, such as other servers, need a token: "
            f"set admin.token_file or the variable {TOKEN_VARIABLE}"
        )
    if is_loopback(settings.host):
        return None
    raise Invalid(
        f"the admin API on {settings.host} can be reached from elsewhere and needs a token: "
        f"set admin.token_file or the variable {TOKEN_VARIABLE}, or bind it to 127.0.0.1 (admin.host)"
    )


def read_metrics_token(settings: AdminSettings, token: AdminToken | None) -> AdminToken | None:
    """Return the token that reads only metrics, None if none is configured. `token` is the admin token.

    Raises:
        Invalid: there is no admin token, so the API is open to this machine anyway; both tokens are the same; the metrics token is too
            short, or its file cannot be read.
    """
    if not settings.metrics_token_file:
        return None
    found = read_token_file(settings.metrics_token_file, METRICS_TOKEN_FILE)
    if token is None:
        raise Invalid(
            f"{METRICS_TOKEN_FILE} is set, but without an admin token every user of this machine may use the whole API: "
            f"set admin.token_file or the variable {TOKEN_VARIABLE}"
        )
    if found in token.accepted():
        raise Invalid(f"{METRICS_TOKEN_FILE} has the admin token, which may do everything: use another token")
    return AdminToken(
        found, settings.metrics_token_file, overlap_ms=settings.token_overlap_ms, setting=METRICS_TOKEN_FILE
    )
