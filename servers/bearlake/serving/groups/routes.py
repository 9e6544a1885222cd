"""This server's coordinator for members that live in other servers: handlers of the admin API (see `packing`).

Joins and syncs wait for other members. One request waits at most `WAIT_S` and is then asked to repeat, so that the caller soon notices
if this server is gone. The member's own wait continues meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from bearlake.errors import Overloaded, TooLarge
from bearlake.serving.groups import packing, requests
from bearlake.serving.groups.packing import Document
from bearlake.serving.http.limits import own_limits
from bearlake.serving.http.models import Reader
from bearlake.streams.groups.model import MemberRef
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.revisions import Outdated
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.streams.groups.coordinator import Coordinator

WAIT_S = 5.0
REQUEST_BYTES_MAX = 64 * 1024 * 1024
"""Large, because a leader's sync carries every member's assignment."""
REQUEST_COUNT_MAX = 16_384
"""Concurrent requests of other servers, including waiting ones."""

T = TypeVar("T")


class GroupRoutes:
    """Handlers under `/v1/groups`."""

    def __init__(self, coordinating: "Callable[[], Awaitable[Coordinator]]") -> None:
        """`coordinating` returns this server's coordinator, always the same one."""
        self._coordinating = coordinating
        self._coordinator: Coordinator
        self._open_count = 0
        metrics.GROUP_PEER_OPEN.set_function(lambda: self._open_count)
        metrics.GROUP_PEER_OPEN_MAX.set(REQUEST_COUNT_MAX)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        self._add(router, requests.JOIN, self.join)
        self._add(router, requests.SYNC, self.sync)
        self._add(router, requests.BEATS, self.heartbeat)
        self._add(router, requests.LEAVE, self.leave)
        self._add(router, requests.COMMIT, self.commit)
        self._add(router, requests.DELETE, self.delete)
        self._add(router, requests.DESCRIBE, self.describe)

    def _add(self, router: web.UrlDispatcher, reader: Reader[T], begin: Callable[[T], Awaitable[web.Response]]) -> None:
        router.add_post(f"/v1/groups/{begin.__name__}", own_limits(self._guarded(reader, begin)))

    def join(self, asked: requests.Join) -> Awaitable[web.Response]:
        """Join or rejoin."""
        joining = self._coordinator.join(asked.group, asked.join_request(), revision=asked.revision)
        revision = self._revision(asked.group)
        return _waited(joining, lambda joined: {**packing.pack_joined(joined), **revision()}, revision)

    def sync(self, asked: requests.Sync) -> Awaitable[web.Response]:
        """Give or get assignments."""
        waiting = self._coordinator.sync(asked.sender(), asked.protocol, asked.assignments, revision=asked.revision)
        revision = self._revision(asked.group)
        return _waited(waiting, lambda synced: {**packing.pack_synced(synced), **revision()}, revision)

    def heartbeat(self, asked: requests.Beats) -> Awaitable[web.Response]:
        """Members are alive; one problem, or null, for each."""
        return self._beat(asked.senders())

    def leave(self, asked: requests.Leave) -> Awaitable[web.Response]:
        """A member leaves."""
        left = self._coordinator.leave(asked.sender(), revision=asked.revision)
        revision = self._revision(asked.group)
        return _answered(left, lambda member_id: {"member_id": member_id, **revision()})

    def commit(self, asked: requests.Commit) -> Awaitable[web.Response]:
        """Commit offsets."""
        committed = self._coordinator.commit(asked.sender(), asked.positions(), revision=asked.revision)
        revision = self._revision(asked.group)
        return _answered(committed, lambda _: revision())

    def delete(self, asked: requests.Delete) -> Awaitable[web.Response]:
        """Delete a group without members, and its offsets."""
        return _answered(self._coordinator.delete(asked.group), lambda _: {})

    def describe(self, asked: requests.Describe) -> Awaitable[web.Response]:
        """The group as it is now."""
        return _answered(self._coordinator.describe(asked.group), packing.pack_group)

    def _revision(self, group: str) -> Callable[[], Document]:
        """Return a function that adds the group's newest revision to a response."""
        return lambda: {"revision": self._coordinator.revision(group)}

    async def _beat(self, members: Sequence[MemberRef]) -> web.Response:
        problems = await asyncio.gather(
            *(self._problem(member) for member in members)
        )  # concurrently: they share confirmations
        return web.json_response(packing.pack_problems(problems))

    async def _problem(self, member: MemberRef) -> Problem | None:
        try:
            await self._coordinator.heartbeat(member)
        except GroupRefusal as refusal:
            return refusal.problem
        return None

    def _guarded(
        self, reader: Reader[T], begin: Callable[[T], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Wrap `begin`, which returns an awaitable that runs the request."""

        async def run(request: web.Request) -> web.Response:
            if self._open_count >= REQUEST_COUNT_MAX:
                raise Overloaded("too many concurrent requests; retry later")
            self._open_count += 1
            try:
                self._coordinator = await self._coordinating()
                return await begin(reader.read(await _body(request)))
            except GroupRefusal as refusal:
                return web.json_response(packing.pack_refusal(refusal), status=409)
            except Outdated as outdated:
                return web.json_response({"revision": outdated.revision}, status=412)
            finally:
                self._open_count -= 1

        run.__doc__ = begin.__doc__  # the OpenAPI document shows it
        return run


async def _answered(work: Awaitable[T], pack: Callable[[T], Document]) -> web.Response:
    return web.json_response(pack(await work))


async def _waited(
    waiting: Awaitable[T], pack: Callable[[T], Document], pack_waiting: Callable[[], Document]
) -> web.Response:
    try:
        async with asyncio.timeout(WAIT_S):
            return await _answered(waiting, pack)
    except TimeoutError:
        return web.json_response(pack_waiting(), status=202)


async def _body(request: web.Request) -> bytes:
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > REQUEST_BYTES_MAX:
            raise TooLarge("a request about groups", size_bytes=len(body), bytes_max=REQUEST_BYTES_MAX)
    return bytes(body)
