"""Reads a Confluent-compatible schema registry over HTTP.

Source: Confluent Schema Registry API.
"""

import base64
import ssl

from bearlake.authorities import verifying_context
from bearlake.errors import Denied, Invalid
from bearlake.importing.http_source import HttpSource
from bearlake.importing.login import secret_in
from bearlake.importing.settings import RegistrySourceSettings

_SECTION = "imports.registry"
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"


class SourceRegistry(HttpSource):
    """One registry. Raises as `HttpSource`."""

    def __init__(self, url: str, settings: RegistrySourceSettings) -> None:
        """`url`: `http://host:port` or `https://…`, perhaps with a path. Raises `Invalid`; `Denied` if a password would be readable."""
        self._settings = settings
        try:
            context = verifying_context(settings.tls_ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"{_SECTION}.tls_ca_file: cannot use {settings.tls_ca_file}: {error}") from error
        super().__init__(
            "the registry",
            url,
            self._header,
            context,
            login_setting=f"{_SECTION}.user",
            accept=_ACCEPTED,
            timeout_ms=settings.timeout_ms,
            bytes_max=settings.response_bytes_max,
        )
        if settings.user and self.is_readable_on_the_way:
            raise Denied(f"the password of {settings.user!r} would be readable on the way to {self.host}: use https://")

    def _header(self, host: str, is_readable: bool) -> str:
        if not self._settings.user:
            return ""
        password = secret_in(self._settings.password_file, f"{_SECTION}.password_file")
        return f"Basic {base64.b64encode(f'{self._settings.user}:{password}'.encode()).decode()}"
