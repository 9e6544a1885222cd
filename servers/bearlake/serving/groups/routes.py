"""This server's coordinator for members that live in other servers: handlers of the admin API (see `packing`).

Joins and syncs wait for other members. One request waits at most `WAIT_S` and is then asked to repeat, so that the caller soon notices
if this server is gone. The member's own wait continues meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

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
Begin: TypeAlias = "Callable[[Coordinator, T], Awaitable[web.Response]]"
"""Returns an awaitable that runs a request."""


class GroupRoutes:
    """Handlers under `/v1/groups`."""

    def __init__(self, coordinating: "Callable[[], Awaitable[Coordinator]]") -> None:
        """`coordinating` returns this server's coordinator, always the same one."""
        self._coordinating = coordinating
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

    def _add(self, router: web.UrlDispatcher, reader: Reader[T], begin: "Begin[T]") -> None:
        router.add_post(f"/v1/groups/{begin.__name__}", own_limits(self._guarded(reader, begin)))

    def join(self, coordinator: "Coordinator", asked: requests.Join) -> Awaitable[web.Response]:
        """Join or rejoin."""
        joining = coordinator.join(asked.group, asked.join_request(), revision=asked.revision)
        revision = _revision(coordinator, asked.group)
        return _waited(joining, lambda joined: {**packing.pack_joined(joined), **revision()}, revision)

    def sync(self, coordinator: "Coordinator", asked: requests.Sync) -> Awaitable[web.Response]:
        """Give or get assignments."""
        waiting = coordinator.sync(asked.sender(), asked.protocol, asked.assignments, revision=asked.revision)
        revision = _revision(coordinator, asked.group)
        return _waited(waiting, lambda synced: {**packing.pack_synced(synced), **revision()}, revision)

    def heartbeat(self, coordinator: "Coordinator", asked: requests.Beats) -> Awaitable[web.Response]:
        """Members are alive; one problem, or null, for each."""
        return _beat(coordinator, asked.senders())

    def leave(self, coordinator: "Coordinator", asked: requests.Leave) -> Awaitable[web.Response]:
        """A member leaves."""
        left = coordinator.leave(asked.sender(), revision=asked.revision)
        revision = _revision(coordinator, asked.group)
        return _answered(left, lambda member_id: {"member_id": member_id, **revision()})

    def commit(self, coordinator: "Coordinator", asked: requests.Commit) -> Awaitable[web.Response]:
        """Commit offsets."""
        committed = coordinator.commit(asked.sender(), asked.positions(), revision=asked.revision)
        revision = _revision(coordinator, asked.group)
        return _answered(committed, lambda _: revision())

    def delete(self, coordinator: "Coordinator", asked: requests.Delete) -> Awaitable[web.Response]:
        """Delete a group without members, and its offsets."""
        return _answered(coordinator.delete(asked.group), lambda _: {})

    def describe(self, coordinator: "Coordinator", asked: requests.Describe) -> Awaitable[web.Response]:
        """The group as it is now."""
        return _answered(coordinator.describe(asked.group), packing.pack_group)

    def _guarded(self, reader: Reader[T], begin: "Begin[T]") -> Callable[[web.Request], Awaitable[web.Response]]:

        async def run(request: web.Request) -> web.Response:
            if self._open_count >= REQUEST_COUNT_MAX:
                raise Overloaded("too many concurrent requests; retry later")
            self._open_count += 1
            try:
                coordinator = await self._coordinating()
                return await begin(coordinator, reader.read(await _body(request)))
            except GroupRefusal as refusal:
                return web.json_response(packing.pack_refusal(refusal), status=409)
            except Outdated as outdated:
                return web.json_response({"revision": outdated.revision}, status=412)
            finally:
                self._open_count -= 1

        run.__doc__ = begin.__doc__  # the OpenAPI document shows it
        return run


def _revision(coordinator: "Coordinator", group: str) -> Callable[[], Document]:
    """Return a function that adds the group's newest revision to a response."""
    return lambda: {"revision": coordinator.revision(group)}


async def _beat(coordinator: "Coordinator", members: Sequence[MemberRef]) -> web.Response:
    # Concurrent: they share confirmations.
    problems = await asyncio.gather(*(_problem(coordinator, member) for member in members))
    return web.json_response(packing.pack_problems(problems))


async def _problem(coordinator: "Coordinator", member: MemberRef) -> Problem | None:
    try:
        await coordinator.heartbeat(member)
    except GroupRefusal as refusal:
        return refusal.problem
    return None


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
