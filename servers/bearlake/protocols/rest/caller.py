"""Who sends a request: the name in the client's certificate, on listeners that ask for one; else nobody in particular."""

from aiohttp import web

from bearlake.streams.principal import ANONYMOUS, Principal


def principal_of(request: web.Request) -> Principal:
    """`User:` and the common name of the certificate's subject, `User:ANONYMOUS` without one. Source: RFC 5280, 4.1.2.6."""
    certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return Principal("User", value)
    return ANONYMOUS
