"""How connections to the source are secured: TLS, and the login of the user who reads.

Passwords and tokens come from files, which are read at each login. A password that others on the way could read is not sent.

Source: KIP-12, KIP-152 (SaslAuthenticate); RFC 4616 (PLAIN), RFC 5802 (SCRAM), RFC 7628 (OAUTHBEARER).
"""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from bearlake.errors import Corrupt, Denied, Invalid
from bearlake.importing.settings import SourceSettings
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.codec import Message
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.serving.authentication.scram_client import ScramLogin
from bearlake.serving.authentication.settings import OAUTHBEARER, PLAIN
from bearlake.serving.listener import is_loopback

SECRET_BYTES_MAX = 64 * 1024

Ask = Callable[[Message], Awaitable[Any]]
"""Sends a request and returns its response."""


class SourceLogin:
    """TLS and login of all connections to one source."""

    def __init__(self, settings: SourceSettings) -> None:
        """Raises `Invalid` if a TLS file cannot be used."""
        self._settings = settings
        self.tls = tls_context(settings, settings.SECTION) if settings.tls else None

    def server_name(self, host: str) -> str | None:
        """Return the name that the certificate of the broker at `host` must have; None without TLS."""
        if self.tls is None:
            return None
        return self._settings.tls_server_name or host

    async def log_in(self, ask: Ask, address: str, host: str) -> None:
        """Log in over a new connection to the broker `address`; nothing without a mechanism.

        Raises:
            Denied: the source refuses the user, or does not know the user's password itself; or a secret would travel in the open.
            Invalid: the source does not have this mechanism, or a file cannot be read.
            Corrupt: the source breaks the rules of the mechanism.
            Unavailable: as `ask`.
        """
        mechanism = self._settings.mechanism
        if not mechanism:
            return
        if mechanism in (PLAIN, OAUTHBEARER):
            self._check_secrecy(address, host)
        answer = await ask(messages.SaslHandshakeRequest(mechanism=mechanism))
        if answer.error_code != ErrorCode.NONE:
            known = ", ".join(answer.mechanisms or ()) or "none"
            raise Invalid(
                f"{self._settings.PEER} {address} does not let clients log in with {mechanism}; its mechanisms: {known} "
                f"({self._settings.SECTION}.mechanism)"
            )
        if mechanism == PLAIN:
            secret = f"\0{self._settings.user}\0{self._secret('password_file')}"
            await self._send(ask, address, secret.encode())
        elif mechanism == OAUTHBEARER:
            await self._send(ask, address, f"n,,\1auth=Bearer {self._secret('token_file')}\1\1".encode())
        else:
            login = ScramLogin(mechanism, self._settings.user, self._secret("password_file"))
            login.finish(await self._send(ask, address, login.prove(await self._send(ask, address, login.first()))))

    async def _send(self, ask: Ask, address: str, data: bytes) -> bytes:
        answer = await ask(messages.SaslAuthenticateRequest(auth_bytes=data))
        if answer.error_code == ErrorCode.NONE:
            return bytes(answer.auth_bytes or b"")
        if answer.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise Corrupt(f"{self._settings.PEER} {address} answered the login with error {answer.error_code}")
        who = self._settings.user or "the token"
        raise Denied(
            f"{self._settings.PEER} {address} refuses the login of {who}: {answer.error_message or 'no reason given'}"
        )

    def _secret(self, setting: str) -> str:
        return secret_in(getattr(self._settings, setting), f"{self._settings.SECTION}.{setting}")

    def _check_secrecy(self, address: str, host: str) -> None:
        if self.tls is None and not self._settings.plain_without_tls and not is_loopback(host):
            raise Denied(
                f"{self._settings.mechanism} would show the secret to everybody on the way to {address}: "
                f"set {self._settings.SECTION}.tls, or "
                f"{self._settings.SECTION}.plain_without_tls if you trust the network"
            )


def secret_in(file: str, setting: str) -> str:
    """Return the secret in a file, without a line break at the end. `setting` names the file in messages. Raises `Invalid`."""
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(SECRET_BYTES_MAX + 1)
        secret = data.decode().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{setting}: cannot read {file}: {error}") from error
    if not secret or len(data) > SECRET_BYTES_MAX or "\0" in secret:
        raise Invalid(f"{setting}: expected a secret of 1 to {SECRET_BYTES_MAX} bytes in {file}")
    return secret


class TlsFiles(Protocol):
    """The files of a TLS connection, as settings name them; empty: none."""

    @property
    def tls_ca_file(self) -> str:
        """Authorities of the peer's certificate; empty: those that this machine trusts."""

    @property
    def tls_certificate_file(self) -> str:
        """Our own certificate."""

    @property
    def tls_key_file(self) -> str:
        """Its key."""


def tls_context(settings: TlsFiles, section: str) -> ssl.SSLContext:
    """Return the context of connections that verify their peer. `section` names the settings in messages. Raises `Invalid`."""
    files = [settings.tls_ca_file, settings.tls_certificate_file, settings.tls_key_file]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if settings.tls_ca_file:
            context.load_verify_locations(settings.tls_ca_file)
        else:
            context.load_default_certs()
        if settings.tls_certificate_file:
            context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(f"{section}: cannot use {' and '.join(filter(None, files))} for TLS: {error}") from error
    return context
