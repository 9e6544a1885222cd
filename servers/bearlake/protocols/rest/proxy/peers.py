"""The other REST servers of the deployment, and requests to them.

Connections are pooled, up to the server's own limit of concurrent requests. With TLS, the machine's trusted authorities must have
signed the other servers' certificates. A request names the client for which it is made by a token of the deployment
(`serving/http/login.py`), if clients log in. Listeners that require client certificates do not forward: servers have none.
"""

import logging
import ssl
from collections.abc import Mapping
from urllib.parse import quote

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from bearlake.metadata.model import Server
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy.placement import Key
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.http.login import FORWARDED, HttpListenerLogin
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.principal import Principal
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)


_CONNECT_S = 2.0
_QUESTION_S = 5.0
_MARGIN_S = 5.0
_KEEP_S = 15.0
_SKIPPED = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT)
_PASSED = (hdrs.CONTENT_TYPE, hdrs.RETRY_AFTER)


class Unreachable(Exception):
    """The request was not sent: no connection could be made in time."""


class Untrusted(Unreachable):
    """The server responds, but its certificate cannot be verified."""


class Peers:
    """HTTP client for the other servers. Use from the event loop's thread only. Connects on demand."""

    def __init__(
        self, servers: LiveServers, settings: RestSettings, listener: Listener, login: HttpListenerLogin | None
    ) -> None:
        """`login`: how clients of all servers log in; None: they need not."""
        self._servers = servers
        self._settings = settings
        self._tls = listener.tls
        self._login = login
        self._endpoint, _ = listener.endpoint("rest")
        self._session: aiohttp.ClientSession | None = None
        self._is_distrust_logged = False
        self._unreachable: set[int] = set()
        """Node ids of the servers that the log has reported as unreachable."""

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def all(self) -> list[Server]:
        """Return the live REST servers, including draining servers and this server. Only this server if forwarding is impossible."""
        is_personal = self._tls is not None and self._tls.newest.verify_mode is ssl.CERT_REQUIRED
        return [
            server
            for server in self._servers.live()
            if self._endpoint in server.endpoints and (self.is_self(server) or not is_personal)
        ]

    def others(self) -> list[Server]:
        """Return `all` without this server."""
        return [server for server in self.all() if not self.is_self(server)]

    def is_self(self, server: Server) -> bool:
        """Return whether `server` is this server."""
        return server.ref.node_id == self._servers.node_id

    async def send(
        self, who: Principal, server: Server, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> web.Response:
        """Send a request for a client and return the answer: status, body and content type. `path` (with query) is already escaped.

        Raises:
            Unreachable: the request was not sent.
            Problem: 50003, the request was sent but not answered, or the other server refuses this server's token.
        """
        limit_s = self._settings.request_timeout_ms / 1000 + _MARGIN_S
        return await self._send(who, server, method, path, headers, body, limit_s)

    async def has(self, who: Principal, server: Server, key: Key) -> bool:
        """Return whether a server has an instance of this client; False if unreachable.

        Raises `Problem` (50003) if the server does not answer.
        """
        group, name = (quote(part, safe="") for part in key)
        path = f"/consumers/{group}/instances/{name}"
        try:
            answer = await self._send(who, server, "HEAD", path, {}, None, _QUESTION_S)
        except Unreachable:
            return False
        if answer.status == 503:
            raise Problem(503, 50003, "another server, which may hold this consumer instance, is overloaded")
        return answer.status == 204

    async def _send(
        self,
        who: Principal,
        server: Server,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        limit_s: float,
    ) -> web.Response:
        url = URL(
            f"{'http' if self._tls is None else 'https'}://{server.endpoints[self._endpoint]}{path}", encoded=True
        )
        if self._login is not None:
            headers = {
                **headers,
                **await self._login.pass_on(who, server.ref.node_id, method, url.raw_path_qs),
            }
        outcome = "cancelled"
        try:
            async with self._open().request(
                method,
                url,
                data=body,
                headers={**headers, FORWARDED: str(self._servers.node_id)},
                skip_auto_headers=_SKIPPED,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=limit_s, sock_connect=_CONNECT_S),
            ) as response:
                if response.status == 401 and self._login is not None:
                    outcome = "refused"
                    raise Problem(
                        503, 50003, "another server refuses the token of this server; are their clocks right?"
                    )
                content = await response.read()
                passed = {name: response.headers[name] for name in _PASSED if name in response.headers}
                outcome = "answered"
                self._unreachable.discard(server.ref.node_id)
                return web.Response(status=response.status, body=content, headers=passed)
        except aiohttp.ClientSSLError as error:
            outcome = "untrusted"
            self._log_distrust(server, error)
            raise Untrusted(str(error)) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            outcome = "unreachable"
            self._log_unreachable(server, error)
            raise Unreachable(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            outcome = "lost"
            raise Problem(503, 50003, "the server that holds this consumer instance did not answer") from error
        finally:
            metrics.REST_FORWARDED.labels(outcome).inc()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._settings.request_count_max,
                keepalive_timeout=min(_KEEP_S, self._settings.idle_ms / 2000),  # close before the other side does
                ssl=True if self._tls is None else ssl.create_default_context(),
            )
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._session

    def _log_unreachable(self, server: Server, error: Exception) -> None:
        if server.ref.node_id not in self._unreachable:
            log.info("cannot reach another REST server", extra={"server": server.name, "error": str(error)})
        self._unreachable &= {other.ref.node_id for other in self.others()}
        self._unreachable.add(server.ref.node_id)

    def _log_distrust(self, server: Server, error: Exception) -> None:
        if not self._is_distrust_logged:
            log.warning(
                "cannot verify another REST server; not forwarding requests for its consumer instances",
                extra={"server": server.name, "error": str(error)},
            )
        self._is_distrust_logged = True
