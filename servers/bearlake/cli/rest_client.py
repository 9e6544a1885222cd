"""A small client of the REST API (v3), and the options `--rest…`."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from bearlake.cli.http_client import Api, HttpClient, Tls

F = TypeVar("F", bound=Callable[..., Any])

API = Api(word="rest", title="the REST server", url_default="http://127.0.0.1:8082", error_field="message")
_FILES = ("token", "password", "ca", "certificate", "key")


def rest_options(command: F) -> F:
    """The options `--rest…`. The command gets one argument `rest` for them, a `RestClient`."""

    @functools.wraps(command)
    def run(*arguments: Any, rest: str, rest_user: str | None, **options: Any) -> Any:
        files = {name: options.pop(f"rest_{name}_file") for name in _FILES}
        return command(*arguments, rest=RestClient(rest, rest_user, files), **options)

    described: Any = run  # click's decorators do not keep the type of a function with keyword-only parameters
    for option in (
        API.file_option("key", "Key of the client certificate (PEM)  [default: in the same file]."),
        API.file_option("certificate", "Client certificate (PEM), instead of a token or password."),
        API.file_option("ca", "Authorities (PEM) of the REST server's certificate  [default: the machine's]."),
        _secret_option("password", "File with the user's password  [default: the variable BEARLAKE_REST_PASSWORD]."),
        click.option("--rest-user", metavar="NAME", envvar="BEARLAKE_REST_USER", show_envvar=True, help="User."),
        _secret_option("token", "File with the bearer token  [default: the variable BEARLAKE_REST_TOKEN]."),
        API.option("REST server."),
    ):
        described = option(described)
    found: F = described
    return found


def _secret_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(f"--rest-{name}-file", type=click.Path(path_type=Path), help=text)


class RestClient(HttpClient):
    """Requests to the REST API of one server; paths are those inside of its cluster."""

    def __init__(
        self, url: str, user: str | None, files: Mapping[str, Path | None], *, request_s: float | None = None
    ) -> None:
        """Raises `Invalid`, without the secret: as `HttpClient`, or two logins at once.

        files: those with a `token` or `password`, and of TLS `ca`, `certificate` and `key`.
        user: logs in with a password; without a user, the token is used.
        request_s: as in `HttpClient`.
        """
        tls = Tls(ca_file=files.get("ca"), certificate_file=files.get("certificate"), key_file=files.get("key"))
        login = API.login(user, files.get("password"), files.get("token"))
        super().__init__(API, url, login, tls, request_s=request_s)
        self._cluster = ""

    def ask(self, method: str, path: str, body: object = None) -> Any:  # JSON
        """Send a request to `path` of the server's cluster; return the answer's JSON. Raises as `call`."""
        return self.call(method, self._inside(path), body)

    def tell(self, method: str, path: str) -> None:
        """Send a request to `path` of the server's cluster whose answer has no content. Raises as `call`."""
        self.send(method, self._inside(path))

    def all(self, path: str) -> list[Mapping[str, Any]]:
        """Return the items of a list; the API answers each in one piece. Raises as `call`."""
        found: list[Mapping[str, Any]] = self.ask("GET", path)["data"]
        return found

    def _inside(self, path: str) -> str:
        if not self._cluster:
            self._cluster = str(self.call("GET", "/v3/clusters")["data"][0]["cluster_id"])
        return f"/v3/clusters/{self._cluster}{path}"


def client_of(params: Mapping[str, Any], *, request_s: float) -> RestClient:
    """Return a client of the server that an unfinished line names so far, or the environment. Raises `Invalid`."""
    files = {}
    for name in _FILES:
        variable = None if name in ("token", "password") else os.environ.get(f"BEARLAKE_REST_{name.upper()}_FILE")
        given = params.get(f"rest_{name}_file") or variable
        files[name] = None if given is None else Path(given)
    url = params.get("rest") or os.environ.get(API.variable) or API.url_default
    user = params.get("rest_user") or os.environ.get("BEARLAKE_REST_USER")
    return RestClient(url, user, files, request_s=request_s)
