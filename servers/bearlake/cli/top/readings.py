"""Asks a deployment how it is: one `Reading` of the admin API and of every server's metrics page.

The servers' addresses come from the admin API that the user names. A server that does not answer within the time limit is shown as such and
does not delay the others.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bearlake.cli.admin_client import AdminClient
from bearlake.cli.top.metrics_page import MetricsPage
from bearlake.errors import BearlakeError, NotFound

THREAD_COUNT = 16
SERVER_COUNT_MAX = 200
STREAM_PAGE_COUNT = 1_000
GROUP_PAGE_COUNT = 200
BACKLOG_COUNT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReading:
    """A live server as the admin API lists it, with its metrics (None: it did not answer)."""

    row: Mapping[str, Any]  # JSON
    page: MetricsPage | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the deployment answered; `at_s` is this process's monotonic time."""

    at_s: float
    time_ms: int
    servers: Sequence[ServerReading]
    streams: Sequence[Mapping[str, Any]]
    groups: Sequence[Mapping[str, Any]]
    backlog: Mapping[str, Any]
    are_streams_complete: bool = True
    are_groups_complete: bool = True
    problems: Sequence[str] = ()
    """What could not be read, in words."""


class Deployment:
    """Asks the admin API at one address, and from there all servers. `close` ends its threads."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._peers: dict[str, AdminClient] = {}
        self._threads = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="top")

    def close(self) -> None:
        """Wait for requests that still run, at most for their time limit."""
        self._threads.shutdown(cancel_futures=True)

    def read(self) -> Reading:
        """Return a reading. Raises `Unavailable`, `Denied` and others if the admin API itself does not answer."""
        rows = self._admin.call("GET", "/v1/servers")["servers"]
        problems: list[str] = []
        if len(rows) > SERVER_COUNT_MAX:
            problems.append(f"only the first {SERVER_COUNT_MAX} of {len(rows)} servers are read")
        pages = self._threads.map(self._server, rows[:SERVER_COUNT_MAX])
        listings: Sequence[tuple[str, Mapping[str, object]]] = [
            ("/v1/streams", {"usage": "true", "limit": STREAM_PAGE_COUNT}),
            ("/v1/groups", {"limit": GROUP_PAGE_COUNT}),
            ("/v1/compaction/backlog", {"limit": BACKLOG_COUNT}),
        ]
        streams, groups, backlog = self._threads.map(
            lambda asked: self._optional(asked[0], asked[1], problems), listings
        )
        servers = self._with_own_page(list(pages))
        return Reading(
            at_s=time.monotonic(),
            time_ms=time.time_ns() // 1_000_000,
            servers=servers,
            streams=streams.get("streams", ()),
            groups=groups.get("groups", ()),
            backlog=backlog,
            are_streams_complete=streams.get("next") is None,
            are_groups_complete=groups.get("next") is None,
            problems=problems,
        )

    def _optional(self, path: str, query: Mapping[str, object], problems: list[str]) -> Mapping[str, Any]:
        """Return a listing; empty if this server has none (a compaction worker has no streams) or does not answer."""
        try:
            found: Mapping[str, Any] = self._admin.call("GET", path, **query)
        except NotFound:
            return {}
        except BearlakeError as error:
            problems.append(f"{path}: {error}")
            return {}
        return found

    def _server(self, row: Mapping[str, Any]) -> ServerReading:
        endpoint = row["endpoints"].get("admin")
        if endpoint is None:
            return ServerReading(row=row, page=None, problem="it has no admin API")
        try:
            if endpoint not in self._peers:  # once, because each client with TLS reads certificates
                self._peers[endpoint] = self._admin.of_peer(endpoint)
            return ServerReading(row=row, page=MetricsPage(self._peers[endpoint].text("/metrics")))
        except BearlakeError as error:
            return ServerReading(row=row, page=None, problem=str(error))

    def _with_own_page(self, servers: Sequence[ServerReading]) -> Sequence[ServerReading]:
        """Use the page of the named address for the only server, whose own address may be reachable from inside a cluster only."""
        if len(servers) != 1 or servers[0].page is not None:
            return servers
        try:
            page = MetricsPage(self._admin.text("/metrics"))
        except BearlakeError:
            return servers
        return [ServerReading(row=servers[0].row, page=page)]
