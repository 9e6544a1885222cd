"""This server's dispatcher for members of share groups that other servers serve: handlers of the admin API (see `packing`).

The dispatcher is loaded with the first request (decision 362).
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from aiohttp import web

from bearlake.errors import BearlakeError, Overloaded, TooLarge
from bearlake.serving.http.limits import own_limits
from bearlake.serving.http.models import Reader
from bearlake.serving.shares import packing
from bearlake.serving.shares.packing import Document

if TYPE_CHECKING:
    from bearlake.streams.subscriptions.share_dispatch import ShareDispatch

REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""A request acknowledges some 10,000 records one by one with less."""
REQUEST_COUNT_MAX = 4_096
"""Concurrent requests of other servers, including waiting ones."""

T = TypeVar("T")
Run: TypeAlias = "Callable[[ShareDispatch, T], Awaitable[Document]]"
"""Runs a request, and returns the answer."""
Undo: TypeAlias = "Callable[[ShareDispatch, T, Document], Awaitable[None]]"
"""Takes back what the answer gives."""


class ShareRoutes:
    """Handlers under `/v1/shares`."""

    def __init__(self, dispatching: "Callable[[], Awaitable[ShareDispatch]]") -> None:
        """`dispatching` returns this server's dispatcher, always the same one."""
        self._dispatching = dispatching
        self._open_count = 0

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        self._add(router, packing.ACQUIRE, self.acquire, self._take_back)
        self._add(router, packing.ACKNOWLEDGE, self.acknowledge)
        self._add(router, packing.RELEASE, self.release)
        self._add(router, packing.GIVE_BACK, self.give_back)
        self._add(router, packing.RESET, self.reset)
        self._add(router, packing.FORGET, self.forget)
        self._add(router, packing.SEEK, self.seek)

    def _add(
        self,
        router: web.UrlDispatcher,
        reader: Reader[T],
        run: "Run[T]",
        undo: "Undo[T] | None" = None,
    ) -> None:
        """`undo` runs if nobody can be sent the answer."""
        router.add_post(f"/v1/shares/{run.__name__}", own_limits(self._guarded(reader, run, undo)))

    async def acquire(self, dispatch: "ShareDispatch", asked: packing.Acquire) -> Document:
        """Acquire records for a member."""
        return packing.pack_answers(await dispatch.acquire(asked.ask()))

    async def _take_back(self, dispatch: "ShareDispatch", asked: packing.Acquire, document: Document) -> None:
        """The server that asked has gone, and perhaps has released the member's locks already: nobody was sent the records."""
        for answer in packing.unpack_answers(document):
            ranges = [(run.start, run.end) for run in answer.acquired]
            if ranges:
                await dispatch.give_back(asked.group, answer.partition, asked.member, ranges)

    async def acknowledge(self, dispatch: "ShareDispatch", asked: packing.Acknowledge) -> Document:
        """Acknowledge records."""
        await dispatch.acknowledge(asked.group, asked.key(), asked.member, asked.all())
        return {}

    async def release(self, dispatch: "ShareDispatch", asked: packing.Release) -> Document:
        """Release what a member holds."""
        await dispatch.release(asked.group, asked.key(), asked.member, asked.via)
        return {}

    async def give_back(self, dispatch: "ShareDispatch", asked: packing.GiveBack) -> Document:
        """Take back what a member was not sent."""
        await dispatch.give_back(asked.group, asked.key(), asked.member, asked.ranges)
        return {}

    async def reset(self, dispatch: "ShareDispatch", asked: packing.Reset) -> Document:
        """Let a group continue at an offset."""
        await dispatch.reset(asked.group, asked.key(), asked.offset)
        return {}

    async def forget(self, dispatch: "ShareDispatch", asked: packing.Forget) -> Document:
        """Delete a group's state."""
        await dispatch.forget(asked.group, asked.key())
        return {}

    async def seek(self, dispatch: "ShareDispatch", asked: packing.Seek) -> Document:
        """Let a subscription continue at an offset."""
        await dispatch.seek(asked.group, asked.key(), asked.offset)
        return {}

    def _guarded(
        self,
        reader: Reader[T],
        run: "Run[T]",
        undo: "Undo[T] | None",
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def guarded(request: web.Request) -> web.Response:
            if self._open_count >= REQUEST_COUNT_MAX:
                raise Overloaded("too many concurrent requests; retry later")
            self._open_count += 1
            try:
                dispatch = await self._dispatching()
                asked = reader.read(await _body(request))
                try:
                    document = await run(dispatch, asked)
                    if undo is not None and request.transport is None:
                        await undo(dispatch, asked, document)
                    return web.json_response(document)
                except BearlakeError as error:
                    return web.json_response(packing.pack_problem(error), status=409)
            finally:
                self._open_count -= 1

        guarded.__doc__ = run.__doc__  # the OpenAPI document shows it
        return guarded


async def _body(request: web.Request) -> bytes:
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > REQUEST_BYTES_MAX:
            raise TooLarge("a request about share groups", size_bytes=len(body), bytes_max=REQUEST_BYTES_MAX)
    return bytes(body)
