"""Lets any server answer for any consumer instance: forwards a request to the server that has the instance.

    client ──► load balancer ──► any server ──(Bearlake-Forwarded)──► the server that has the instance

The server tries the instance's last known server, or its preferred server (`placement.py`). If the instance is not there, the server
asks all other servers at once; this is rare: the name is unknown, or servers joined or left. Local instances need no forwarding.
"""

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from aiohttp import hdrs, web

from bearlake.metadata.model import Server
from bearlake.protocols.rest import bodies, problems
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy import addresses, placement
from bearlake.protocols.rest.proxy.consumers import Consumers, name_taken
from bearlake.protocols.rest.proxy.peers import Peers, Unreachable, Untrusted
from bearlake.protocols.rest.proxy.placement import Key
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.http.guard import Handler
from bearlake.serving.http.login import FORWARDED, HttpListenerLogin, principal_of
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.principal import Principal

_SLICE_MS = 5_000
"""Longest wait for records that is forwarded as one request. Longer waits are split, so that a draining server need not abort one."""


class Forwarding:
    """Forwards requests for consumer instances to other servers."""

    def __init__(
        self,
        servers: LiveServers,
        settings: RestSettings,
        listener: Listener,
        consumers: Consumers,
        login: HttpListenerLogin | None,
    ) -> None:
        """Servers reach each other through `listener`; `consumers` are this server's instances; `login`: how clients log in."""
        self._settings = settings
        self._own_address = listener.address
        self._consumers = consumers
        self._peers = Peers(servers, settings, listener, login)
        self._places: OrderedDict[tuple[str, Key], int] = OrderedDict()  # node ids, least recently used first

    async def close(self) -> None:
        """Close connections to other servers."""
        await self._peers.close()

    def anywhere(self, handler: Handler) -> Handler:
        """Wrap `handler`, which knows only local instances, to serve the instances of all servers."""

        @functools.wraps(handler)  # keeps the handler's attributes
        async def handle(request: web.Request) -> web.StreamResponse:
            key = request.match_info["group"], request.match_info["instance"]
            if self._consumers.has(principal_of(request), *key) or self._is_for_here(request):
                return await handler(request)
            return await self._answer(request, key)

        return handle

    async def create(self, request: web.Request, body: bytes, key: Key, *, is_named: bool) -> web.Response | None:
        """Forward the creation to the preferred server of the instance; None if that is this server.

        `is_named`: the client chose the name, so the name must be unique. A draining server forwards to another server if possible.

        Raises:
            Problem: 40902, another server has an instance of this name; 50003, the other server did not answer.
        """
        who = principal_of(request)
        if self._consumers.has(who, *key) or self._is_for_here(request):
            return None
        order = placement.order(key, [server for server in self._peers.all() if self._stays(server)])
        if is_named:
            asked = [server for server in self._peers.others() if server not in order[:1]]  # the first checks itself
            if await self._find(who, key, asked) is not None:
                raise name_taken(key[1])
        for server in order:
            if self._peers.is_self(server):
                return None
            try:
                headers = _headers(request) | self._client_address(request)
                answer = await self._peers.send(who, server, "POST", request.rel_url.raw_path, headers, body)
            except Unreachable:
                continue
            if answer.status != 503:  # 503: draining or overloaded, so try the next server
                self._remember(who, key, server)
                return answer
        return None

    # -- internal ------------------------------------------------------------------------------------------------

    def _is_for_here(self, request: web.Request) -> bool:
        return FORWARDED in request.headers or not self._peers.others()

    def _stays(self, server: Server) -> bool:
        return not server.is_draining and not (self._peers.is_self(server) and self._consumers.is_draining)

    def _client_address(self, request: web.Request) -> dict[str, str]:
        """Return headers with the address that the client used. If that is this server's own address, return none, so that the client gets
        the other server's address."""
        scheme, host = addresses.of_client(request, self._own_address)
        is_direct = host == self._own_address and scheme == request.scheme
        return {} if is_direct else {addresses.PROTO: scheme, addresses.HOST: host}

    async def _answer(self, request: web.Request, key: Key) -> web.Response:
        """Return the answer of the instance's server; splits a long wait for records into several requests."""
        body = await bodies.read(request, self._settings.request_bytes_max) if request.can_read_body else None
        loop = asyncio.get_running_loop()
        wait_ms = self._wait_ms(request)
        until = loop.time() + wait_ms / 1000
        path = request.rel_url.raw_path_qs
        while True:
            left_ms = max(0, int((until - loop.time()) * 1000))
            if wait_ms > _SLICE_MS:
                path = request.rel_url.update_query(timeout=min(left_ms, _SLICE_MS)).raw_path_qs
            answer = await self._pass_on(request, path, body, key)
            is_empty = answer.status == 200 and answer.body == b"[]"
            if not is_empty or left_ms <= _SLICE_MS or self._consumers.is_draining:
                return answer

    def _wait_ms(self, request: web.Request) -> int:
        """Return the client's wait for records; 0 if absent or invalid."""
        text = request.query.get("timeout", "")
        is_number = text.isascii() and text.isdigit() and len(text) < 19
        return min(int(text), self._settings.request_timeout_ms) if is_number else 0

    async def _pass_on(self, request: web.Request, path: str, body: bytes | None, key: Key) -> web.Response:
        """Forward one request. Raises `Problem`: 40403, no server has the instance; 50003, the server that may have it does not answer."""
        headers, who = _headers(request), principal_of(request)
        others = self._peers.others()
        guess = self._guess(who, key, others)
        may_have_instance = False
        if guess is not None:
            try:
                answer = await self._peers.send(who, guess, request.method, path, headers, body)
            except Untrusted:
                pass
            except Unreachable:
                may_have_instance = not guess.is_draining  # a draining server listens as long as it has instances
            else:
                if not _is_absent(answer):
                    self._remember(who, key, guess)
                    return answer
        holder = await self._find(who, key, [server for server in others if server is not guess])
        if holder is None:
            self._places.pop((str(who), key), None)
            if may_have_instance:
                raise _away()
            raise problems.consumer_not_found()
        self._remember(who, key, holder)
        try:
            return await self._peers.send(who, holder, request.method, path, headers, body)
        except Unreachable as error:
            raise _away() from error

    def _guess(self, who: Principal, key: Key, others: Sequence[Server]) -> Server | None:
        """Return the server that most likely has the instance; None if that is this server."""
        node_id = self._places.get((str(who), key))
        remembered = next((server for server in others if server.ref.node_id == node_id), None)
        if remembered is not None:
            return remembered
        first = placement.order(key, self._peers.all())[0]
        return None if self._peers.is_self(first) else first

    async def _find(self, who: Principal, key: Key, servers: Sequence[Server]) -> Server | None:
        """Return the server that has the instance; asks all at once. Raises `Problem` (50003) if none has it and one does not answer."""
        questions = [asyncio.create_task(self._ask(who, server, key)) for server in servers]
        unanswered: Problem | None = None
        try:
            for question in asyncio.as_completed(questions):
                try:
                    holder = await question
                except Problem as problem:
                    unanswered = problem
                else:
                    if holder is not None:
                        return holder
        finally:
            for task in questions:
                task.cancel()
            await asyncio.gather(*questions, return_exceptions=True)
        if unanswered is not None:
            raise unanswered
        return None

    async def _ask(self, who: Principal, server: Server, key: Key) -> Server | None:
        return server if await self._peers.has(who, server, key) else None

    def _remember(self, who: Principal, key: Key, server: Server) -> None:
        self._places[str(who), key] = server.ref.node_id
        self._places.move_to_end((str(who), key))
        while len(self._places) > self._settings.consumer_places_max:
            self._places.popitem(last=False)


def _headers(request: web.Request) -> dict[str, str]:
    passed: Mapping[str, str] = request.headers
    return {name: passed[name] for name in (hdrs.ACCEPT, hdrs.CONTENT_TYPE) if name in passed}


def _is_absent(answer: web.Response) -> bool:
    """Return whether the answer says that the instance does not exist."""
    assert isinstance(answer.body, bytes)
    return answer.status == 404 and (not answer.body or b'"error_code": 40403' in answer.body)  # HEAD has no body


def _away() -> Problem:
    return Problem(
        503, 50003, "the server of this consumer instance does not answer; retry until its registration has lapsed"
    )
