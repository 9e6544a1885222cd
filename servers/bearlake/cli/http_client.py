"""A small client of an HTTP API with JSON, on the standard library alone.

It keeps the caller's secret: no redirects, no proxy without TLS, and no message contains the secret.
"""

import base64
import http.client
import json
import os
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from typing_extensions import override

from bearlake import errors
from bearlake.authorities import verifying_context
from bearlake.cli.output import NOTICE_S, printable, say
from bearlake.http_answers import InTime, InTimeTls

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_S = 35
"""The longest time (s) to connect, and between two bytes of an answer, of a client without its own limit."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
_PIECE_BYTES = 64 * 1024
_REASON_LENGTH_MAX = 2_000
_KINDS: Mapping[int, type[errors.BearlakeError]] = {
    400: errors.Invalid,
    401: errors.Denied,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    413: errors.Invalid,
    422: errors.Invalid,
    503: errors.Unavailable,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An API that commands speak to, and the words of its options: `--rest`, `--rest-ca-file`, `BEARLAKE_REST`."""

    word: str
    """The option of its address, without dashes."""
    title: str
    """What messages call the API, as in "the admin API"."""
    url_default: str
    error_field: str
    """The field of an error's JSON that has the message."""

    @property
    def variable(self) -> str:
        """The variable that has the API's address."""
        return f"BEARLAKE_{self.word.upper()}"

    def option(self, text: str) -> Callable[[F], F]:
        """Return the option of the API's address."""
        return click.option(
            f"--{self.word}",
            envvar=self.variable,
            default=self.url_default,
            show_default=True,
            show_envvar=True,
            metavar="URL",
            help=text,
        )

    def login(self, user: str | None, password_file: Path | None, token_file: Path | None = None) -> str:
        """Return the header of the login that the options or variables name; empty without one. Raises `Invalid`, without the secret.

        user: logs in with a password; without a user, the token is used.
        """
        if user is None:
            if password_file is not None:
                raise errors.Invalid(f"--{self.word}-password-file needs --{self.word}-user")
            return bearer(token_file, f"{self.variable}_TOKEN", "token")
        if token_file is not None:
            raise errors.Invalid(f"--{self.word}-user and --{self.word}-token-file: expected one login")
        if ":" in user:
            raise errors.Invalid(f"--{self.word}-user: expected a name without a colon, which ends it in HTTP")
        return basic(user, password_file, f"{self.variable}_PASSWORD")

    def file_option(self, name: str, text: str) -> Callable[[F], F]:
        """Return an option that names a file."""
        return click.option(
            f"--{self.word}-{name}-file",
            type=click.Path(path_type=Path),
            envvar=f"{self.variable}_{name.upper()}_FILE",
            show_envvar=True,
            help=text,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The PEM files of TLS with an API."""

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

    def context(self, word: str = "admin") -> ssl.SSLContext:
        """Return the client's TLS context; `word` is the API's, for messages. Raises `Invalid` if a file cannot be used."""
        if self.key_file is not None and self.certificate_file is None:
            raise errors.Invalid(f"--{word}-key-file needs --{word}-certificate-file")
        tried = self.ca_file
        try:
            context = verifying_context(self.ca_file)
            if self.certificate_file is not None:
                tried = self.certificate_file
                context.load_cert_chain(self.certificate_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise errors.Invalid(f"cannot use {tried} for TLS: {error}") from error
        return context


class HttpClient:
    """Requests to one API."""

    def __init__(
        self,
        api: Api,
        url: str,
        authorization: str,
        tls: Tls | None = None,
        *,
        request_s: float | None = None,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        """Raises `Invalid`: a URL that is not http(s) or names a user, or files that cannot be used for TLS.

        authorization: the header of each request; empty: none.
        request_s: the longest time of a request with its connection and answer; None: `TIMEOUT_S` to connect, and between two bytes.
        """
        self.tls = tls = tls or Tls()
        scheme = _scheme(api, url)
        if scheme == "http" and tls.is_given:
            raise errors.Invalid(
                f"--{api.word} {url}: expected https://, because there are files for TLS with {api.title}"
            )
        self._api = api
        self._tls = tls.context(api.word) if scheme == "https" else None
        self._request_s = request_s
        self._answer_bytes_max = answer_bytes_max
        self._url = url.rstrip("/")
        self.authorization = authorization
        """The header of each request; empty: none."""
        self._opener = _opener(self._tls, request_s)

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:  # JSON
        """Send a request and return the answer's JSON; query values that are None are left out.

        Raises:
            Unavailable: no answer. Other kinds: as the server says.
        """
        try:
            return json.loads(self._answer(method, path, body, query))
        except (ValueError, RecursionError) as error:
            raise self._no_answer(error) from error

    def send(self, method: str, path: str) -> None:
        """Send a request whose answer has no content. Raises as `call`."""
        self._answer(method, path, None, {})

    def text(self, path: str) -> str:
        """Return an answer that is not JSON, such as metrics. Raises as `call`."""
        return self._answer("GET", path, None, {}).decode(errors="replace")

    def _answer(self, method: str, path: str, body: object, query: Mapping[str, object]) -> bytes:
        given = {key: value for key, value in query.items() if value is not None}
        encoded = urllib.parse.urlencode(given, doseq=True)
        request = urllib.request.Request(  # noqa: S310 - http(s) only, see the constructor
            f"{self._url}{path}{'?' if encoded else ''}{encoded}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"} if body is not None else {},
        )
        if self.authorization:
            request.add_header("Authorization", self.authorization)
        try:
            with self._notice(), self._opener.open(request, timeout=self._request_s or TIMEOUT_S) as response:
                return self._content(response)
        except urllib.error.HTTPError as error:
            with error:  # the connection
                raise _KINDS.get(error.code, errors.Unavailable)(self._detail(error)) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._no_answer(error) from error

    @contextmanager
    def _notice(self) -> Iterator[None]:
        """Say after `NOTICE_S` that the block still waits, unless its time is up soon after."""
        limit_s = self._request_s or TIMEOUT_S
        text = f"bearlake: no answer from {self._url} yet; waiting {limit_s:g} s at most"
        timer = threading.Timer(NOTICE_S, say, (text,), {"is_error": True})
        timer.daemon = True
        if TIMEOUT_S >= limit_s > 2 * NOTICE_S:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _content(self, response: Any) -> bytes:  # an HTTPResponse, which is an IO[bytes] in an HTTPError
        """Return an answer's content. Raises `ValueError`, `OSError`, `HTTPException`."""
        found = bytearray()
        while piece := response.read1(_PIECE_BYTES):
            found += piece
            if len(found) > self._answer_bytes_max:
                raise ValueError(f"its answer is larger than {self._answer_bytes_max} bytes")
        if response.length:
            raise http.client.IncompleteRead(bytes(found[:_PIECE_BYTES]), response.length)
        return bytes(found)

    def _detail(self, error: urllib.error.HTTPError) -> str:
        try:
            reason = json.loads(self._content(error.fp))[self._api.error_field]
        except (ValueError, LookupError, TypeError, RecursionError, OSError, http.client.HTTPException):
            reason = f"{self._url} answered {error.code} {error.reason} (is it {self._api.title}? Set its address with --{self._api.word})"
        return printable(str(reason)[:_REASON_LENGTH_MAX])

    def _no_answer(self, error: Exception) -> errors.Unavailable:
        reason = getattr(error, "reason", error)
        shown = printable(str(reason)[:_REASON_LENGTH_MAX])  # it may have the whole line that was no status
        return errors.Unavailable(f"no answer from {self._url}: {shown} ({self._advice(reason)})")

    def _advice(self, reason: object) -> str:
        """Return what may help after a request without an answer."""
        word, variable = self._api.word, self._api.variable
        if isinstance(reason, ssl.SSLCertVerificationError):
            return f"set the authorities of its certificate with --{word}-ca-file or {variable}_CA_FILE"
        if isinstance(reason, ssl.SSLError):
            return f"the server may have no TLS there, or refuse the client's certificate: see --{word} and --{word}-certificate-file"
        if self._tls is None and isinstance(reason, ConnectionResetError | http.client.HTTPException):
            return f"{self._api.title} may have TLS: set an address that begins with https:// by --{word} or {variable}"
        return f"is the server running? Set its address with --{word} or {variable}"


def _scheme(api: Api, url: str) -> str:
    """Return `http` or `https`. Raises `Invalid`; what may be a secret in the URL is not shown."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        raise errors.Invalid(f"--{api.word}: expected a URL such as {api.url_default}") from None
    if "@" in (parts.netloc or url):
        raise errors.Invalid(
            f"--{api.word}: expected a URL such as {api.url_default}, without a user or password in it"
        )
    if parts.scheme not in ("http", "https"):
        raise errors.Invalid(f"--{api.word} {url}: expected a URL such as {api.url_default}")
    return parts.scheme


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: urllib would send the secret to any other server, also without TLS. The APIs send none."""

    @override
    def redirect_request(self, *_: object) -> None:
        return None


class _HttpInTime(urllib.request.HTTPHandler):
    def __init__(self, request_s: float) -> None:
        super().__init__()
        self._request_s = request_s

    @override
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connect: Any = partial(InTime, ends_at=time.monotonic() + self._request_s)  # typeshed wants a class
        return self.do_open(connect, req)


class _HttpsInTime(urllib.request.HTTPSHandler):
    def __init__(self, request_s: float, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._request_s = request_s
        self._tls = context

    @override
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connect: Any = partial(InTimeTls, ends_at=time.monotonic() + self._request_s)  # typeshed wants a class
        return self.do_open(connect, req, context=self._tls)


def _opener(tls: ssl.SSLContext | None, request_s: float | None) -> urllib.request.OpenerDirector:
    """Return what sends requests; `request_s` as in `HttpClient`. Without TLS, it uses no proxy, which would read the secret."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if tls is None:
        handlers += [urllib.request.ProxyHandler({})]
        handlers += [] if request_s is None else [_HttpInTime(request_s)]
    else:
        handlers += [urllib.request.HTTPSHandler(context=tls) if request_s is None else _HttpsInTime(request_s, tls)]
    return urllib.request.build_opener(*handlers)


def read_secret(file: Path | None, variable: str) -> str:
    """Return the secret in the file, or else in the variable, without line breaks at its end; empty without one. Raises `Invalid`."""
    try:
        secret = os.environ.get(variable, "") if file is None else file.read_text(encoding="utf-8")
    except OSError as error:
        raise errors.Invalid(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise errors.Invalid(f"{file} is no text") from None
    return secret.rstrip("\r\n")


def bearer(file: Path | None, variable: str, title: str) -> str:
    """Return the header for the token in the file, or else in the variable; empty without a token. Raises `Invalid`, without the token."""
    token = read_secret(file, variable).strip()
    if not (token.isascii() and token.isprintable()):
        place = variable if file is None else str(file)
        raise errors.Invalid(
            f"the {title} in {place} has a line break or another character that no HTTP header can have"
        )
    return f"Bearer {token}" if token else ""


def basic(user: str, file: Path | None, variable: str) -> str:
    """Return the header for the user and the password in the file, or else in the variable. Raises `Invalid`."""
    password = read_secret(file, variable)
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
