"""A small client of the admin API, and the options `--admin…`."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from bearlake import errors
from bearlake.cli.http_client import Api, HttpClient, Tls, bearer

F = TypeVar("F", bound=Callable[..., Any])

URL_DEFAULT = "http://127.0.0.1:9644"
API = Api(word="admin", title="the admin API", url_default=URL_DEFAULT, error_field="detail")


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
        tls = Tls(ca_file=admin_ca_file, certificate_file=admin_certificate_file, key_file=admin_key_file)
        return command(*arguments, admin=AdminClient(admin, admin_token_file, tls), **options)

    described: Any = run  # click's decorators do not keep the type of a function with keyword-only parameters
    for option in (
        API.file_option("key", "Key of the client certificate (PEM)  [default: in the same file]."),
        API.file_option("certificate", "Client certificate (PEM) of a super user, instead of a token."),
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


ca_file_option = API.file_option("ca", "Authorities (PEM) of the admin API's certificate  [default: the machine's].")
"""The option `--admin-ca-file`."""

admin_option = API.option("Admin API.")
"""The option `--admin`."""


class AdminClient(HttpClient):
    """Requests to one admin API."""

    def __init__(
        self, url: str, token_file: Path | None, tls: Tls | None = None, *, request_s: float | None = None
    ) -> None:
        """`request_s`: as in `HttpClient`.

        Raises `Invalid`, without the token: a URL that is not http(s), an unusable token, or files that cannot be used for TLS.
        """
        self._files = token_file, tls or Tls()
        authorization = bearer(token_file, "BEARLAKE_ADMIN_TOKEN", "admin token")
        super().__init__(API, url, authorization, tls, request_s=request_s)

    def with_timeout(self, request_s: float) -> "AdminClient":
        """Return a client of the same API whose requests have this limit."""
        token_file, tls = self._files
        return AdminClient(self._url, token_file, tls, request_s=request_s)

    def of_peer(self, endpoint: str) -> "AdminClient":
        """Return a client of another server, whose `endpoint` a list of servers has: `host:port`, or with TLS `https://host:port`.

        Raises `Denied` if the other server has no TLS, although this one has: the token must not travel in the clear.
        """
        url = endpoint if endpoint.startswith("https://") else f"http://{endpoint}"
        token_file, tls = self._files
        has_tls = url.startswith("https:")
        if self._tls is not None and not has_tls:
            raise errors.Denied(f"{url} has no TLS, so the token is not sent there")
        return AdminClient(url, token_file, tls if has_tls else None, request_s=self._request_s)

    def pages(self, path: str, key: str, **query: object) -> Iterator[Any]:
        """All items of a paged listing."""
        after: object = None
        while True:
            page = self.call("GET", path, after=after, **query)
            yield from page[key]
            after = page["next"]
            if after is None:
                return
