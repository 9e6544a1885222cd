"""Identifies the caller by the client certificate on listeners that request one; other callers are anonymous."""

from aiohttp import web

from bearlake.streams.principal import ANONYMOUS, Principal


def principal_of(request: web.Request) -> Principal:
    """Return `User:` plus the subject's common name, or `User:ANONYMOUS` without a certificate. Source: RFC 5280, 4.1.2.6."""
    certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return Principal("User", value)
    return ANONYMOUS
