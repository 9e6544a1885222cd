"""Reads a Confluent-compatible schema registry over HTTP: one request at a time, without redirects, with a limit of time and size.

Source: Confluent Schema Registry API.
"""

import asyncio
import base64
import json
import ssl
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
)

from bearlake.errors import Corrupt, Denied, Invalid, NotFound, Unavailable
from bearlake.importing.login import secret_in
from bearlake.importing.settings import RegistrySourceSettings
from bearlake.serving.listener import is_loopback

_SECTION = "imports.registry"
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"


class SourceRegistry:
    """One registry."""

    def __init__(self, url: str, settings: RegistrySourceSettings) -> None:
        """`url`: `http://host:port` or `https://…`, perhaps with a path. Raises `Invalid`; `Denied` if a password would be readable."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise Invalid(
                "the URL of a registry: expected http://host:port or https://host:port, without user and query"
            )
        if settings.user and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise Denied(
                f"the password of {settings.user!r} would be readable on the way to {parts.hostname}: use https://"
            )
        self._url = url.rstrip("/")
        self._settings = settings
        self._opener = OpenerDirector()
        try:
            context = ssl.create_default_context(cafile=settings.tls_ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"{_SECTION}.tls_ca_file: cannot use {settings.tls_ca_file}: {error}") from error
        for handler in (HTTPHandler(), HTTPSHandler(context=context), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
            self._opener.add_handler(handler)

    async def get(self, *path: str, **query: str) -> Any:
        """Return the JSON document at a path, whose parts are quoted here.

        Raises:
            NotFound: there is none.
            Denied: the registry refuses this user.
            Corrupt: the answer is no JSON, or too large.
            Unavailable: no answer, or any other error.
        """
        url = "/".join([self._url, *(quote(part, safe="") for part in path)]) + (
            f"?{urlencode(query)}" if query else ""
        )
        data = await asyncio.to_thread(self._get, url)
        try:
            return json.loads(data)
        except ValueError as error:
            raise Corrupt(f"the registry's answer to {url} is not JSON") from error

    def _get(self, url: str) -> bytes:
        settings, headers = self._settings, {"Accept": _ACCEPTED}
        if settings.user:
            password = secret_in(settings.password_file, f"{_SECTION}.password_file")
            pair = f"{settings.user}:{password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        try:
            answer = self._opener.open(Request(url, headers=headers), timeout=settings.timeout_ms / 1000)  # noqa: S310 - http or https
            if answer is None:  # no handler took it
                raise Unavailable(f"the registry did not answer {url}")
            with answer:
                data: bytes = answer.read(settings.response_bytes_max + 1)
        except HTTPError as error:
            with error:
                raise _error(error.code, url) from error
        except (URLError, OSError, HTTPException) as error:
            raise Unavailable(f"the registry did not answer {url}: {error}") from error
        if len(data) > settings.response_bytes_max:
            raise Corrupt(f"the registry's answer to {url} has more than {settings.response_bytes_max} bytes")
        return data


def _error(status: int, url: str) -> Exception:
    if status == 404:
        return NotFound(f"the registry has no {url}")
    if status in (401, 403):
        return Denied(f"the registry refuses {url} (HTTP {status}): see {_SECTION}.user")
    return Unavailable(f"the registry answered {url} with HTTP {status}")
