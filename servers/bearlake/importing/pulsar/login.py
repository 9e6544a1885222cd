"""How connections to a Pulsar source are secured: TLS, and a token from a file, which is read at each login."""

import ssl

from bearlake.errors import Denied
from bearlake.importing.login import secret_in, tls_context
from bearlake.importing.pulsar_settings import PulsarSourceSettings
from bearlake.serving.listener import is_loopback

SECTION = "imports.pulsar"


class PulsarLogin:
    """TLS and login of all connections to one source, also those of its HTTP API."""

    def __init__(self, settings: PulsarSourceSettings, *, is_tls: bool) -> None:
        """`is_tls`: whether the broker protocol uses TLS. Raises `Invalid` if a TLS file cannot be used."""
        self._settings = settings
        self.context = tls_context(settings, SECTION)
        """For the HTTP API, which says by its URL whether it uses TLS."""
        self.tls: ssl.SSLContext | None = self.context if is_tls else None

    def server_name(self, host: str) -> str | None:
        """Return the name that the certificate of the broker at `host` must have; None without TLS."""
        return None if self.tls is None else self._settings.tls_server_name or host

    def token(self, host: str) -> str | None:
        """Return the token for a broker; None: there is no login. Raises `Denied`: others could read it; `Invalid`: no such file."""
        if not self._settings.token_file:
            return None
        if self.tls is None:
            self._check_secrecy(host)
        return self._secret()

    def header(self, host: str, *, is_readable: bool) -> str:
        """Return the header `Authorization` for the HTTP API; empty: there is no login. Raises as `token`."""
        if not self._settings.token_file:
            return ""
        if is_readable:
            self._check_secrecy(host)
        return f"Bearer {self._secret()}"

    def _secret(self) -> str:
        return secret_in(self._settings.token_file, f"{SECTION}.token_file")

    def _check_secrecy(self, host: str) -> None:
        if not self._settings.token_without_tls and not is_loopback(host):
            raise Denied(
                f"the token would be readable on the way to {host}: use pulsar+ssl:// and https://, or set "
                f"{SECTION}.token_without_tls if you trust the network"
            )
