"""Expiry of streams (`Stream-TTL`, `Stream-Expires-At`), and deletion of streams that have forks.

All state is in the stream's configs, and every change applies only if the stream's version is unchanged, so any server can make it.
Times are the store's. Reads and writes renew a time to live, but the config changes at most once per tenth of it; a stream therefore
lives up to a tenth longer, never shorter.

A deleted stream with forks is marked and kept until its last fork is gone. A new fork is recorded at its source before the fork becomes
visible. The record changes the source's version, so either the deletion sees the fork, or the fork sees the deletion.
Source: Durable Streams Protocol 1.0, sections 4.2, 5.1 and 5.4.
"""

import asyncio
import contextlib
import logging
import re
from contextlib import suppress
from datetime import datetime

from bearlake.errors import BearlakeError, Conflict, NotFound
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.tailing import lineage
from bearlake.streams import configs as stream_configs
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import INTERNAL, Operation, Principal, Resource, require
from bearlake.streams.service import Streams
from bearlake.telemetry.fault_isolation import FaultIsolation
from bearlake.telemetry.outage import Outage

log = logging.getLogger(__name__)

TTL = "http.ttl.seconds"
EXPIRES_AT = "http.expires.at"
USED_AT = "http.used.at"
DELETED = "http.deleted"
FORKED = "http.forked"
INCOMPLETE = "http.incomplete"
ENDING = (TTL, EXPIRES_AT)
"""Expiry configs, which forks inherit."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)")
_MORTAL = (*ENDING, DELETED, INCOMPLETE)
_RENEW_PART = 10
_TRY_COUNT = 20
_PAGE_SIZE = 1_000


def parse_time(text: str) -> int | None:
    """Parse an RFC 3339 time into milliseconds since 1970; None for any other text."""
    if not _TIME.fullmatch(text):
        return None
    try:
        return int(datetime.fromisoformat(text.upper()).timestamp() * 1000)
    except ValueError:
        return None


def is_marked(view: StreamView, name: str) -> bool:
    """Return whether a boolean config is set."""
    return stream_configs.value(view.stream.configs, name) == "true"


class Lifetimes:
    """Expires streams on one server."""

    def __init__(self, streams: Streams, sweep_ms: int, create_ms_max: int) -> None:
        """`sweep_ms` is the pause between two sweeps; a creation that takes longer than `create_ms_max` counts as abandoned."""
        self._streams = streams
        self._sweep_ms = sweep_ms
        self._create_ms_max = create_ms_max
        self._isolation = FaultIsolation(log, "expire streams", streams.metadata.log.head)
        self._ahead_ms: int | None = None
        self._version = -1
        self._mortal: list[int] = []
        self._sources: frozenset[int] = frozenset()

    async def now_ms(self) -> int:
        """Return the store's time, from this server's clock and the clock difference at the last sweep."""
        if self._ahead_ms is None:
            self._ahead_ms = await self._streams.metadata.now_ms() - self._streams.clock.now_ms()
        return self._streams.clock.now_ms() + self._ahead_ms

    async def find(self, name: str) -> StreamView:
        """Return the stream of that name if it is available. Raises `Problem`: 404, and as `check` does."""
        for _ in range(_TRY_COUNT):
            try:
                view = await self._streams.catalog.find(name)
            except NotFound as error:
                raise Problem(404, 404, f"no stream {name[:249]}") from error
            try:
                return await self.check(view)
            except Problem as problem:
                if problem.status != 404:
                    raise  # 404: the stream is gone, but a new stream may already have its name
        raise Problem(503, 503, f"too many concurrent changes to stream {name}; retry later")

    async def check(self, view: StreamView) -> StreamView:
        """Return the stream if it is available. Raises `Problem`: 404, 410 if only its forks remain, 503 while it is being created."""
        is_over = not is_marked(view, DELETED) and await self._is_over(view)
        if is_over or is_marked(view, INCOMPLETE):
            view = await self._renewed(view)  # another server may have used the stream or completed its creation
            if await self._is_over(view):
                with contextlib.suppress(NotFound):
                    await self.remove(INTERNAL, view.name, is_due=True)
                view = await self._renewed(view)
        if is_marked(view, DELETED):
            raise Problem(410, 410, f"stream {view.name} is deleted; only its forks remain")
        if is_marked(view, INCOMPLETE):
            raise Problem(503, 503, f"stream {view.name} is being created; retry later")
        return view

    async def use(self, view: StreamView) -> None:
        """Renew a time to live, if at least a tenth of it has passed."""
        for _ in range(_TRY_COUNT):
            ttl_ms = _ttl_ms(view)
            now_ms = await self.now_ms() if ttl_ms is not None else 0
            if ttl_ms is None or now_ms - _used_ms(view) < ttl_ms // _RENEW_PART:
                return
            try:
                await self._streams.alter(INTERNAL, view.stream, {USED_AT: str(now_ms)}, [])
                return
            except NotFound:
                return  # the next check reports it
            except Conflict:
                view = await self._renewed(view)

    async def remove(self, who: Principal, name: str, *, is_due: bool = False) -> None:
        """Delete a stream, or mark it deleted while it has forks. With `is_due`, only if it has expired.

        Raises:
            NotFound: no such stream.
            Conflict: concurrent changes on every attempt.
        """
        for _ in range(_TRY_COUNT):
            view = StreamView(await self._streams.metadata.streams.get(name))
            if is_due and not await self._is_over(view):
                return
            try:
                if not await self._has_forks(view):
                    await self._streams.delete(who, view.stream, is_unchanged=True)
                elif not is_marked(view, DELETED):
                    require(self._streams.authorizer, who, Operation.DELETE, Resource.STREAM, name)
                    await self._streams.alter(INTERNAL, view.stream, {DELETED: "true"}, [])
                return
            except Conflict:
                continue
        raise Conflict(f"too many concurrent changes to stream {name}")

    async def run(self) -> None:
        """Delete expired streams. Ends only by cancellation."""
        outage = Outage(log, "deleting expired streams failed; retrying", "deleting expired streams works again")
        while True:
            await asyncio.sleep(self._sweep_ms / 1000)
            try:
                await self._sweep()
                outage.over()
            except BearlakeError as error:
                outage.failed(error)
            except Exception as error:  # noqa: BLE001 - boundary: the next round tries again
                outage.fault("delete expired streams", error)

    # -- internal ------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        self._look()
        if not self._mortal:
            return
        self._ahead_ms = await self._streams.metadata.now_ms() - self._streams.clock.now_ms()
        for number in self._mortal:
            view = self._streams.catalog.peek_number(number)
            if view is not None:
                async with self._isolation.of(view.name):
                    await self._end(view)
        self._isolation.end_round()

    async def _end(self, view: StreamView) -> None:
        """Delete the stream if it has expired."""
        if not await self._is_over(view):
            return
        if is_marked(view, DELETED) and view.stream.number in self._sources:
            return  # its forks still exist
        with suppress(NotFound):
            await self.remove(INTERNAL, view.name, is_due=True)
            log.info("deleted an expired stream", extra={"stream": view.name})

    def _look(self) -> None:
        """Find the streams that can expire, and those with forks, in this server's catalog."""
        catalog = self._streams.catalog
        if catalog.version != self._version:
            views = catalog.views()
            self._mortal = [
                view.stream.number for view in views if any(name in view.stream.configs for name in _MORTAL)
            ]
            forks = [fork for view in views if (fork := lineage.fork_of(view)) is not None]
            self._sources = frozenset(fork.number for fork in forks)
            self._version = catalog.version

    async def _is_over(self, view: StreamView) -> bool:
        """Return whether the stream is to be deleted now, or is marked deleted."""
        configs = view.stream.configs
        if not any(name in configs for name in _MORTAL):
            return False
        if is_marked(view, DELETED):
            return True
        now_ms = await self.now_ms()
        if is_marked(view, INCOMPLETE) and now_ms > view.stream.created_ms + self._create_ms_max:
            return True
        expires_ms = parse_time(stream_configs.value(configs, EXPIRES_AT))
        if expires_ms is not None and now_ms >= expires_ms:
            return True
        ttl_ms = _ttl_ms(view)
        return ttl_ms is not None and now_ms >= _used_ms(view) + ttl_ms + ttl_ms // _RENEW_PART

    async def _has_forks(self, view: StreamView) -> bool:
        """Return whether a fork of the stream exists. Reads the store, after the stream itself, because a server's catalog may be stale."""
        if not is_marked(view, FORKED):
            return False
        after = ""
        while page := await self._streams.metadata.streams.list(after=after, limit=_PAGE_SIZE):
            for stream in page:
                fork = lineage.fork_of(StreamView(stream)) if lineage.FORK in stream.configs else None
                if fork is not None and fork.number == view.stream.number:
                    return True
            after = page[-1].name
        return False

    async def _renewed(self, view: StreamView) -> StreamView:
        """Return the stream's current state in the store. Raises `Problem` (404)."""
        for stream in await self._streams.catalog.refresh([view.stream.number]):
            if not stream.is_deleted:
                return StreamView(stream)
        raise Problem(404, 404, f"no stream {view.name}")


def _ttl_ms(view: StreamView) -> int | None:
    if TTL not in view.stream.configs:
        return None
    ttl_s = int(stream_configs.value(view.stream.configs, TTL))
    return None if ttl_s < 0 else ttl_s * 1000


def _used_ms(view: StreamView) -> int:
    return max(view.stream.created_ms, int(stream_configs.value(view.stream.configs, USED_AT)))
