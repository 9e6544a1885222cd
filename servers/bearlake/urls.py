"""URLs of stores: a list of hosts, with IPv6 addresses among them, is what PostgreSQL's URLs may have, and `urlsplit` refuses by now.

Source: RFC 3986, appendix B; PostgreSQL, "Connection URIs". CPython 3.11.11, 3.12.8 and 3.13.1, and Debian's 3.11.2, accept a bracket only
where a host begins.
"""

import re
from urllib.parse import SplitResult

_URL = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


def split_store_url(url: str) -> SplitResult:
    """Split the URL of a store into its parts, which it does not check. Of a list of hosts, only `netloc` says what it has."""
    match = _URL.fullmatch(url)
    assert match is not None  # every text matches
    scheme, netloc, path, query, fragment = match.groups(default="")
    return SplitResult(scheme.lower(), netloc, path, query, fragment)


def one_host_each(url: str) -> list[str]:
    """Return the URL for each host of its list of hosts, in order; the rest of the URL stays."""
    parts = split_store_url(url)
    login, at, hosts = parts.netloc.rpartition("@")
    return [parts._replace(netloc=f"{login}{at}{host}").geturl() for host in hosts.split(",")]
