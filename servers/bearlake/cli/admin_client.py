"""A small client of the admin API, on the standard library alone."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from bearlake import errors

F = TypeVar("F", bound=Callable[..., Any])

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


def admin_options(command: F) -> F:
    """The options `--admin` and `--admin-token-file`; the token may also be in BEARLAKE_ADMIN_TOKEN."""
    command = click.option(
        "--admin-token-file",
        type=click.Path(path_type=Path),
        help="File with the bearer token  [default: the variable BEARLAKE_ADMIN_TOKEN].",
    )(command)
    return click.option(
        "--admin",
        envvar="BEARLAKE_ADMIN",
        default="http://127.0.0.1:9644",
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="Admin API.",
    )(command)


class AdminClient:
    """Requests to one admin API."""

    def __init__(self, url: str, token_file: Path | None) -> None:
        """Raises `Invalid` for a URL that is not http(s), or an unreadable token file."""
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise errors.Invalid(f"--admin {url}: expected a URL such as http://127.0.0.1:9644")
        self._url = url.rstrip("/")
        self._token = os.environ.get("BEARLAKE_ADMIN_TOKEN", "")
        if token_file is not None:
            try:
                self._token = token_file.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise errors.Invalid(f"cannot read {token_file}: {error.strerror}") from error

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:  # JSON
        """Send a request and return the answer's JSON; query values that are None are left out.

        Raises:
            Unavailable: no answer. Other kinds: as the server says.
        """
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
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise _KINDS.get(error.code, errors.Unavailable)(_detail(error)) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise errors.Unavailable(
                f"no answer from {self._url}: {reason} (is the server running? Set its address with --admin or BEARLAKE_ADMIN)"
            ) from error

    def pages(self, path: str, key: str, **query: object) -> Iterator[Any]:
        """All items of a paged listing."""
        after: object = None
        while True:
            page = self.call("GET", path, after=after, **query)
            yield from page[key]
            after = page["next"]
            if after is None:
                return


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["detail"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code} {error.reason}"
