"""Routes …/subscriptions: Pulsar subscriptions of all topics, and where one of them is in its partitions.

Positions are those that the dispatchers have saved, up to a moment after the consumers' acknowledgements. The lag counts records that
nobody has acknowledged. Consumers are in Pulsar's HTTP API, whose servers dispatch the partitions; a reset is in `subscription_reset.py`.
"""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from bearlake.metadata.model import PartitionBounds, PartitionKey, partition_index
from bearlake.metadata.subscriptions import Cursor, CursorId
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.v3.resources import CLUSTER, Site, find, items, long_answer
from bearlake.protocols.rest.v3.subscription_reset import lag_of
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation
from bearlake.streams.service import Streams
from bearlake.streams.subscriptions.share.terms import without_shares
from bearlake.streams.turns import in_turns

_AT_ONCE = 16
"""Streams or partitions whose cursors are read at once."""
_PAGE = 1_000
"""Cursors that are read with one query."""


class SubscriptionRoutes:
    """Handlers of subscriptions."""

    def __init__(self, streams: Streams, servers: LiveServers) -> None:
        self._streams = streams
        self._servers = servers
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get(CLUSTER + "/subscriptions", self.subscriptions)
        router.add_get(CLUSTER + "/topics/{topic}/subscriptions/{subscription}/lags", self.lags)

    async def subscriptions(self, request: web.Request) -> web.Response:
        """List the subscriptions of all topics."""
        site, catalog = Site(request, self._servers), self._streams.catalog
        who, shown = principal_of(request), list[bytes]()
        async with catalog.listing(who):
            async for part in in_turns(list(catalog.names())):
                seen = [name for name in part if self._streams.sees(who, Operation.DESCRIBE, name)]
                views = [view for name in seen if (view := catalog.peek(name)) is not None]
                found = await asyncio.gather(*(self._names(view) for view in views))
                shown += [
                    items(_subscription(site, view, name) for name in names)
                    for view, names in zip(views, found, strict=True)
                ]
            return long_answer(site.listing("BearlakeSubscriptionList", "/subscriptions", []), shown)

    async def lags(self, request: web.Request) -> web.Response:
        """List where a subscription is in its partitions."""
        site = Site(request, self._servers)
        view = await find(self._streams, request, Operation.DESCRIBE)
        name = request.match_info["subscription"]
        cursors = [cursor for cursor in await self._cursors(view) if cursor.name == name]
        if not cursors:
            raise Problem(404, 404, f"Subscription {name[:249]} cannot be found in topic {view.name}.")
        bounds = await self._streams.bounds([cursor.partition for cursor in cursors])
        shown = items(
            _lag(site, view, cursor, bounds[cursor.partition]) for cursor in cursors if cursor.partition in bounds
        )
        path = f"/topics/{view.name}/subscriptions/{name}/lags"
        return long_answer(site.listing("BearlakeSubscriptionLagList", path, []), [shown])

    async def _names(self, view: StreamView) -> list[str]:
        """Return the names of the stream's subscriptions."""
        names: set[str] = set()
        after: CursorId | None = None
        async with self._slots:
            while True:
                page = await self._streams.metadata.cursors.list(view.stream.number, after=after, limit=_PAGE)
                names.update(cursor.name for cursor in without_shares(page))
                if len(page) < _PAGE:
                    return sorted(names)
                after = CursorId(page[-1].partition, page[-1].name)

    async def _cursors(self, view: StreamView) -> list[Cursor]:
        """Return the cursors of all subscriptions in the stream, by partition."""

        async def load(partition: PartitionKey) -> Sequence[Cursor]:
            async with self._slots:
                return without_shares(await self._streams.metadata.cursors.load(partition))

        return [cursor for part in await asyncio.gather(*map(load, view.partitions())) for cursor in part]


def _subscription(site: Site, view: StreamView, name: str) -> dict[str, object]:
    fields = {"topic_name": view.name, "subscription_name": name}
    path, crn = f"/topics/{view.name}/subscriptions/{name}", f"/topic={view.name}/subscription={name}"
    lags = site.related(f"{path}/lags")
    return site.resource("BearlakeSubscription", path, crn, {**fields, "lags": lags})


def _lag(site: Site, view: StreamView, cursor: Cursor, bounds: PartitionBounds) -> dict[str, object]:
    index, (start, lag) = partition_index(cursor.partition), lag_of(cursor, bounds)
    fields = {
        "topic_name": view.name,
        "subscription_name": cursor.name,
        "partition_id": index,
        "current_offset": start,
        "log_end_offset": bounds.end,
        "lag": lag,
    }
    path = f"/topics/{view.name}/subscriptions/{cursor.name}/lags/{index}"
    crn = f"/topic={view.name}/subscription={cursor.name}/lag={index}"
    return site.resource("BearlakeSubscriptionLag", path, crn, fields)
