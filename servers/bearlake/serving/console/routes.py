"""Which requests the console passes on: those of the public APIs that its page sends, and no other.

The admin API also has requests between servers (`/v1/groups/join` and others); those never pass.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from bearlake.errors import Invalid
from bearlake.serving.listener import is_loopback

APIS = ("admin", "rest", "registry", "pulsar", "catalog")
"""The public APIs, as the page names them. `pulsar` is Pulsar's HTTP API, `catalog` the Iceberg REST catalog with SQL."""
OPTIONAL = frozenset({"pulsar", "catalog"})
"""APIs that a deployment may not have; without them, the console has no page for what they serve."""

_NAME = r"[^/?#]+"
_TOPIC = rf"/admin/v2/persistent/{_NAME}/{_NAME}/{_NAME}"
_PASSED: Mapping[str, Sequence[tuple[str, re.Pattern[str]]]] = {
    "admin": [
        (methods, re.compile(pattern))
        for methods, pattern in (
            ("GET", r"/(healthz|readyz|metrics)"),
            ("GET", r"/v1/(servers|config|groups|transactions|users)"),
            ("GET POST DELETE", r"/v1/access"),
            ("GET", r"/v1/access/decisions"),
            ("GET POST PATCH DELETE", r"/v1/streams"),
            ("GET", rf"/v1/streams/{_NAME}(/partitions)?"),
            ("GET", r"/v1/compaction/(backlog|commits|tasks)"),
            ("POST", r"/v1/compaction/tasks/[0-9]+/retry"),
        )
    ],
    "pulsar": [
        ("GET", re.compile(r"/admin/v2/(tenants|namespaces/[^/?#]+)")),
        ("GET", re.compile(rf"{_TOPIC}/(subscriptions|partitions|(partitioned-)?(stats|internalStats))")),
    ],
    "catalog": [
        ("GET", re.compile(rf"/v1/(live/)?namespaces(/{_NAME}/tables(/{_NAME})?)?")),
        ("POST", re.compile(r"/v1/sql")),
    ],
    "rest": [("GET POST PUT PATCH DELETE", re.compile(r"/v3/clusters(/.*)?"))],
    "registry": [
        ("GET POST", re.compile(r"/(subjects|schemas|compatibility)(/.*)?")),
        ("GET", re.compile(r"/(config|mode)(/.*)?")),
    ],
}
_UP = re.compile(r"(^|/|%2f)(\.|%2e){1,2}(/|%2f|$)", re.IGNORECASE)
"""A segment that leads elsewhere once a server has resolved it."""


def passes(api: str, method: str, path: str) -> bool:
    """Return whether a request goes on to an API; `path` is as it was sent, without its query."""
    if "\\" in path or "%5c" in path.lower() or _UP.search(path):
        return False
    return any(
        method in methods.split() and pattern.fullmatch(path) is not None for methods, pattern in _PASSED.get(api, ())
    )


def check_exposure(host: str, urls: Mapping[str, str]) -> None:
    """Raise `Invalid` if a console on `host` would let other machines reach an API that listens on loopback.

    Such an API may trust every caller, because only this machine reaches it.
    """
    if is_loopback(host):
        return
    for api, url in urls.items():
        if is_loopback(urlsplit(url).hostname or ""):
            raise Invalid(
                f"the console on {host} can be reached from elsewhere, and console.{api}_url ({url}) is on loopback, where every caller "
                "may be trusted: bind the console to 127.0.0.1 (console.host), or name an address at which clients log in"
            )


def check_url(api: str, url: str) -> str:
    """Return the URL of an API without a slash at its end. Raises `Invalid`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
        raise Invalid(
            f"console.{api}_url: expected a URL such as http://127.0.0.1:9644, without a login, found {url!r}"
        )
    return url.rstrip("/")
