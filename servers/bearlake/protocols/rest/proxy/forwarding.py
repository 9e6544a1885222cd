"""Any server answers for any consumer instance: a request for one that lives elsewhere is passed on to the server that has it.

    client ──► load balancer ──► any server ──(Bearlake-Forwarded)──► the server that has the instance

It is looked for where it was last, or where it belongs (`placement.py`); is it not there, all others are asked at once, which only happens
for names that nobody has, and after servers came or went. An instance that is here is served here, without a look at others.
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
from bearlake.protocols.rest.proxy.peers import FORWARDED, Peers, Unreachable, Untrusted
from bearlake.protocols.rest.proxy.placement import Key
from bearlake.protocols.rest.settings import RestSettings
from bearlake.serving.http.guard import Handler
from bearlake.serving.listener import Listener
from bearlake.serving.live_servers import LiveServers

_SLICE_MS = 5_000
"""Longest wait for records that is passed on in one piece, so that a server which drains need not break one off."""


class Forwarding:
    """The way to consumer instances of other servers."""

    def __init__(self, servers: LiveServers, settings: RestSettings, listener: Listener, consumers: Consumers) -> None:
        """`listener` is the one by which servers reach each other; `consumers` are this server's."""
        self._settings = settings
        self._own_address = listener.address
        self._consumers = consumers
        self._peers = Peers(servers, settings, listener)
        self._places: OrderedDict[Key, int] = OrderedDict()  # node ids; the one asked for last is the last

    async def close(self) -> None:
        """Close connections to other servers."""
        await self._peers.close()

    def anywhere(self, handler: Handler) -> Handler:
        """`handler`, which knows this server's instances, for those of all servers."""

        @functools.wraps(handler)  # with its marks
        async def handle(request: web.Request) -> web.StreamResponse:
            key = request.match_info["group"], request.match_info["instance"]
            if self._consumers.has(*key) or self._is_for_here(request):
                return await handler(request)
            return await self._answer(request, key)

        return handle

    async def create(self, request: web.Request, body: bytes, key: Key, *, is_named: bool) -> web.Response | None:
        """Let the server make an instance that shall have it; None when this is the one.

        `is_named`: the client chose the name, which must be nobody else's. A server that drains has others make it, if there are any.

        Raises:
            Problem: 40902, another server has an instance of this name; 50003, a server went away with the request.
        """
        if self._consumers.has(*key) or self._is_for_here(request):
            return None
        order = placement.order(key, [server for server in self._peers.all() if self._stays(server)])
        if is_named:
            asked = [server for server in self._peers.others() if server not in order[:1]]  # the first looks itself
            if await self._find(key, asked) is not None:
                raise name_taken(key[1])
        for server in order:
            if self._peers.is_self(server):
                return None
            try:
                headers = _headers(request) | self._client_address(request)
                answer = await self._peers.send(server, "POST", request.rel_url.raw_path, headers, body)
            except Unreachable:
                continue
            if answer.status != 503:  # else it has stopped to take them, or has too much to do
                self._remember(key, server)
                return answer
        return None

    # -- inside --------------------------------------------------------------------------------------------------

    def _is_for_here(self, request: web.Request) -> bool:
        return FORWARDED in request.headers or not self._peers.others()

    def _stays(self, server: Server) -> bool:
        return not server.is_draining and not (self._peers.is_self(server) and self._consumers.is_draining)

    def _client_address(self, request: web.Request) -> dict[str, str]:
        """Headers that tell what the client calls this server; none if it uses this one's own address: it is told the other's, then."""
        scheme, host = addresses.of_client(request, self._own_address)
        is_direct = host == self._own_address and scheme == request.scheme
        return {} if is_direct else {addresses.PROTO: scheme, addresses.HOST: host}

    async def _answer(self, request: web.Request, key: Key) -> web.Response:
        """The answer of the server that has the instance; a long wait for records in pieces."""
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
        """How long the client says that it waits for records; 0 when it does not, or in no way that has a meaning."""
        text = request.query.get("timeout", "")
        is_number = text.isascii() and text.isdigit() and len(text) < 19
        return min(int(text), self._settings.request_timeout_ms) if is_number else 0

    async def _pass_on(self, request: web.Request, path: str, body: bytes | None, key: Key) -> web.Response:
        """Raises `Problem`: 40403, nobody has the instance; 50003, the server that may have it does not answer."""
        headers = _headers(request)
        others = self._peers.others()
        guess = self._guess(key, others)
        is_in_doubt = False
        if guess is not None:
            try:
                answer = await self._peers.send(guess, request.method, path, headers, body)
            except Untrusted:
                pass
            except Unreachable:
                is_in_doubt = not guess.is_draining  # one that drains listens for as long as it has instances
            else:
                if not _is_absent(answer):
                    self._remember(key, guess)
                    return answer
        holder = await self._find(key, [server for server in others if server is not guess])
        if holder is None:
            self._places.pop(key, None)
            if is_in_doubt:
                raise _away()
            raise problems.consumer_not_found()
        self._remember(key, holder)
        try:
            return await self._peers.send(holder, request.method, path, headers, body)
        except Unreachable as error:
            raise _away() from error

    def _guess(self, key: Key, others: Sequence[Server]) -> Server | None:
        """Where an instance is in all likelihood; None when that would be here."""
        node_id = self._places.get(key)
        remembered = next((server for server in others if server.ref.node_id == node_id), None)
        if remembered is not None:
            return remembered
        first = placement.order(key, self._peers.all())[0]
        return None if self._peers.is_self(first) else first

    async def _find(self, key: Key, servers: Sequence[Server]) -> Server | None:
        """Who of `servers` has an instance, all asked at once. Raises `Problem` (50003): nobody says so, and one does not answer."""
        questions = [asyncio.create_task(self._ask(server, key)) for server in servers]
        doubt: Problem | None = None
        try:
            for question in asyncio.as_completed(questions):
                try:
                    holder = await question
                except Problem as problem:
                    doubt = problem
                else:
                    if holder is not None:
                        return holder
        finally:
            for task in questions:
                task.cancel()
            await asyncio.gather(*questions, return_exceptions=True)
        if doubt is not None:
            raise doubt
        return None

    async def _ask(self, server: Server, key: Key) -> Server | None:
        return server if await self._peers.has(server, key) else None

    def _remember(self, key: Key, server: Server) -> None:
        self._places[key] = server.ref.node_id
        self._places.move_to_end(key)
        while len(self._places) > self._settings.consumer_places_max:
            self._places.popitem(last=False)


def _headers(request: web.Request) -> dict[str, str]:
    passed: Mapping[str, str] = request.headers
    return {name: passed[name] for name in (hdrs.ACCEPT, hdrs.CONTENT_TYPE) if name in passed}


def _is_absent(answer: web.Response) -> bool:
    """Whether an answer says that the instance is not there."""
    assert isinstance(answer.body, bytes)
    return answer.status == 404 and (not answer.body or b'"error_code": 40403' in answer.body)  # none: to HEAD


def _away() -> Problem:
    return Problem(
        503, 50003, "the server of this consumer instance does not answer; if it is gone, others will say so soon"
    )
