"""A small client of the admin API, on the standard library alone."""

import functools
import http.client
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from typing_extensions import override

from bearlake import errors

F = TypeVar("F", bound=Callable[..., Any])

URL_DEFAULT = "http://127.0.0.1:9644"
TIMEOUT_S = 35
_KINDS: Mapping[int, type[errors.BearlakeError]] = {
    400: errors.Invalid,
    401: errors.Denied,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.Invalid,
    503: errors.Unavailable,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTls:
    """The PEM files of TLS with an admin API."""

    ca_file: Path | None = None
    """Authorities of the server's certificate; None: those that this machine trusts."""
    certificate_file: Path | None = None
    """The client's certificate; None: it has none."""
    key_file: Path | None = None
    """The key of the certificate; None: it is in the same file."""

    @property
    def is_given(self) -> bool:
        """Whether there is any file."""
        return any(file is not None for file in (self.ca_file, self.certificate_file, self.key_file))

    def context(self) -> ssl.SSLContext:
        """Return the client's TLS context. Raises `Invalid` if a file cannot be used."""
        if self.key_file is not None and self.certificate_file is None:
            raise errors.Invalid("--admin-key-file needs --admin-certificate-file")
        tried = self.ca_file
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                tried = self.certificate_file
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise errors.Invalid(f"cannot use {tried} for TLS: {error}") from error
        return context


def admin_options(command: F) -> F:
    """The options `--admin…`. The command gets one argument `admin` for them, an `AdminClient`."""

    @functools.wraps(command)
    def run(
        *arguments: Any,
        admin: str,
        admin_token_file: Path | None,
        admin_ca_file: Path | None,
        admin_certificate_file: Path | None,
        admin_key_file: Path | None,
        **options: Any,
    ) -> Any:
        tls = AdminTls(ca_file=admin_ca_file, certificate_file=admin_certificate_file, key_file=admin_key_file)
        return command(*arguments, admin=AdminClient(admin, admin_token_file, tls), **options)

    described: Any = run  # click's decorators do not keep the type of a function with keyword-only parameters
    for option in (
        _file_option("key", "Key of the client certificate (PEM)  [default: in the same file]."),
        _file_option("certificate", "Client certificate (PEM) of a super user, instead of a token."),
        ca_file_option,
        click.option(
            "--admin-token-file",
            type=click.Path(path_type=Path),
            help="File with the bearer token  [default: the variable BEARLAKE_ADMIN_TOKEN].",
        ),
        admin_option,
    ):
        described = option(described)
    found: F = described
    return found


def _file_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(
        f"--admin-{name}-file",
        type=click.Path(path_type=Path),
        envvar=f"BEARLAKE_ADMIN_{name.upper()}_FILE",
        show_envvar=True,
        help=text,
    )


ca_file_option = _file_option("ca", "Authorities (PEM) of the admin API's certificate  [default: the machine's].")
"""The option `--admin-ca-file`."""

admin_option = click.option(
    "--admin",
    envvar="BEARLAKE_ADMIN",
    default=URL_DEFAULT,
    show_default=True,
    show_envvar=True,
    metavar="URL",
    help="Admin API.",
)
"""The option `--admin`."""


class AdminClient:
    """Requests to one admin API."""

    def __init__(
        self, url: str, token_file: Path | None, tls: AdminTls | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Raises `Invalid`, without the token: a URL that is not http(s), an unusable token, or files that cannot be used for TLS."""
        tls = tls or AdminTls()
        scheme = urllib.parse.urlsplit(url).scheme
        if scheme not in ("http", "https"):
            raise errors.Invalid(f"--admin {url}: expected a URL such as {URL_DEFAULT}")
        if scheme == "http" and tls.is_given:
            raise errors.Invalid(
                f"--admin {url}: expected https://, because there are files for TLS with the admin API"
            )
        self._tls = tls.context() if scheme == "https" else None
        self._files = token_file, tls
        self._timeout_s = timeout_s
        self._url = url.rstrip("/")
        self._token = _token(token_file)
        self._opener = _opener(self._tls)

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:  # JSON
        """Send a request and return the answer's JSON; query values that are None are left out.

        Raises:
            Unavailable: no answer. Other kinds: as the server says.
        """
        try:
            return json.loads(self._answer(method, path, body, query))
        except ValueError as error:
            raise self._no_answer(error) from error

    def text(self, path: str) -> str:
        """Return an answer that is not JSON, such as metrics. Raises as `call`."""
        return self._answer("GET", path, None, {}).decode(errors="replace")

    def with_timeout(self, timeout_s: float) -> "AdminClient":
        """Return a client of the same API whose requests take at most `timeout_s`."""
        token_file, tls = self._files
        return AdminClient(self._url, token_file, tls, timeout_s=timeout_s)

    def of_peer(self, endpoint: str) -> "AdminClient":
        """Return a client of another server, whose `endpoint` a list of servers has: `host:port`, or with TLS `https://host:port`.

        Raises `Denied` if the other server has no TLS, although this one has: the token must not travel in the clear.
        """
        url = endpoint if endpoint.startswith("https://") else f"http://{endpoint}"
        token_file, tls = self._files
        has_tls = url.startswith("https:")
        if self._tls is not None and not has_tls:
            raise errors.Denied(f"{url} has no TLS, so the token is not sent there")
        return AdminClient(url, token_file, tls if has_tls else None, timeout_s=self._timeout_s)

    def _answer(self, method: str, path: str, body: object, query: Mapping[str, object]) -> bytes:
        given = {key: value for key, value in query.items() if value is not None}
        encoded = urllib.parse.urlencode(given, doseq=True)
        request = urllib.request.Request(  # noqa: S310 - http(s) only, see the constructor
            f"{self._url}{path}{'?' if encoded else ''}{encoded}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"} if body is not None else {},
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                found: bytes = response.read()
                return found
        except urllib.error.HTTPError as error:
            raise _KINDS.get(error.code, errors.Unavailable)(_detail(error)) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> errors.Unavailable:
        reason = getattr(error, "reason", error)
        return errors.Unavailable(f"no answer from {self._url}: {reason} ({self._advice(reason)})")

    def _advice(self, reason: object) -> str:
        """Return what may help after a request without an answer."""
        if isinstance(reason, ssl.SSLCertVerificationError):
            return "set the authorities of its certificate with --admin-ca-file or BEARLAKE_ADMIN_CA_FILE"
        if isinstance(reason, ssl.SSLError):
            return "the server may have no TLS there, or refuse the client's certificate: see --admin and --admin-certificate-file"
        if self._tls is None and isinstance(reason, ConnectionResetError | http.client.HTTPException):
            return "the admin API may have TLS: set an address that begins with https:// by --admin or BEARLAKE_ADMIN"
        return "is the server running? Set its address with --admin or BEARLAKE_ADMIN"

    def pages(self, path: str, key: str, **query: object) -> Iterator[Any]:
        """All items of a paged listing."""
        after: object = None
        while True:
            page = self.call("GET", path, after=after, **query)
            yield from page[key]
            after = page["next"]
            if after is None:
                return


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: urllib would send the token to any other server, also without TLS. The admin API sends none."""

    @override
    def redirect_request(self, *_: object) -> None:
        return None


def _opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Return what sends requests. Without TLS, it uses no proxy, which would read the token."""
    if tls is None:
        return urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=tls))


def _token(file: Path | None) -> str:
    """Return the token in the file or in BEARLAKE_ADMIN_TOKEN; empty without one. Raises `Invalid`, without the token."""
    place = "BEARLAKE_ADMIN_TOKEN" if file is None else str(file)
    try:
        token = os.environ.get("BEARLAKE_ADMIN_TOKEN", "") if file is None else file.read_text(encoding="utf-8")
    except OSError as error:
        raise errors.Invalid(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise errors.Invalid(f"{file} is no text") from None
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise errors.Invalid(
            f"the admin token in {place} has a line break or another character that no HTTP header can have"
        )
    return token


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code} {error.reason}"
