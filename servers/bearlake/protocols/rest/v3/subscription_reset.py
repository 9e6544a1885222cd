"""POST …/subscriptions/{subscription}/offsets:reset: move a Pulsar subscription, or with `validate_only` only show what would move.

The server that dispatches a partition moves it there; this server asks that one. Unlike a consumer group, a subscription may have
consumers: they go on at the new position, as after a seek of their own.
"""

import asyncio
from collections.abc import Mapping, Sequence

from aiohttp import web

from bearlake.metadata.model import PartitionBounds, PartitionKey, partition_index
from bearlake.metadata.subscriptions import Cursor, unpack_ranges
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.v3 import models
from bearlake.protocols.rest.v3.moving import AT_ONCE, goal_of, move_each
from bearlake.protocols.rest.v3.resources import CLUSTER, Site, answer, body, find
from bearlake.protocols.rest.v3.targets import at_time, given, keys_of
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import Operation
from bearlake.streams.service import Streams
from bearlake.streams.shares import NoReach, ShareReach, Shares
from bearlake.streams.subscriptions.share.terms import without_shares


class SubscriptionResetRoutes:
    """The handler that moves subscriptions."""

    def __init__(
        self, streams: Streams, servers: LiveServers, settings: RestSettings, reach: ShareReach | None = None
    ) -> None:
        """`reach` finds the dispatchers of other servers; None: there are none."""
        self._streams = streams
        self._servers = servers
        self._settings = settings
        self._dispatchers = Shares(streams.local_shares, streams.metadata.cursors, streams, reach or NoReach())

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handler."""
        router.add_post(CLUSTER + "/topics/{topic}/subscriptions/{subscription}/offsets:reset", self.reset)

    async def reset(self, request: web.Request) -> web.Response:
        """Move a subscription in its topic, or show what would move."""
        site, who = Site(request, self._servers), principal_of(request)
        asked = await body(request, models.SUBSCRIPTION_RESET, self._settings)
        view = await find(self._streams, request, Operation.READ)
        name = request.match_info["subscription"]
        keys = keys_of(view, asked.partition_ids)
        bounds = await self._streams.bounds(keys)
        cursors = await self._cursors([key for key in keys if key in bounds], name)
        if not cursors:
            raise Problem(404, 404, f"Subscription {name[:249]} cannot be found in topic {view.name}.")
        targets = await self._targets(list(cursors), asked, bounds)
        if not asked.validate_only:
            details = f"reset {goal_of(asked)}"
            with self._streams.audit.change(
                who, Operation.READ, "Subscription", f"{view.name}/{name}", details
            ) as noted:
                await move_each(targets, lambda key, offset: self._dispatchers.seek(name, key, offset), noted)
        shown = [_shown(view, cursors[key], targets[key], bounds[key]) for key in targets]
        path = f"/topics/{view.name}/subscriptions/{name}/offsets"
        return answer(site.listing("BearlakeSubscriptionOffsetList", path, shown))

    async def _cursors(self, keys: Sequence[PartitionKey], name: str) -> Mapping[PartitionKey, Cursor]:
        """Return the subscription's cursor in each partition that has one."""
        found: dict[PartitionKey, Cursor] = {}

        async def load(key: PartitionKey) -> None:
            for cursor in without_shares(await self._streams.metadata.cursors.load(key)):
                if cursor.name == name:
                    found[key] = cursor

        for start in range(0, len(keys), AT_ONCE):
            await asyncio.gather(*map(load, keys[start : start + AT_ONCE]))
        return {key: found[key] for key in keys if key in found}

    async def _targets(
        self,
        keys: Sequence[PartitionKey],
        asked: models.SubscriptionReset,
        bounds: Mapping[PartitionKey, PartitionBounds],
    ) -> Mapping[PartitionKey, int]:
        """Return the new offset of each partition, inside of the partition. Raises `Problem` (400)."""
        match asked.to:
            case "earliest":
                return {key: bounds[key].start for key in keys}
            case "latest":
                return {key: bounds[key].last_stable for key in keys}
            case "offset":
                offset = given(asked.offset, "offset")
                return {key: min(max(offset, bounds[key].start), bounds[key].last_stable) for key in keys}
            case "timestamp":
                time_ms = given(asked.timestamp_ms, "timestamp_ms")
                ends = {key: bounds[key].last_stable for key in keys}
                return await at_time(self._streams, keys, time_ms, ends, is_committed=True)


def lag_of(cursor: Cursor, bounds: PartitionBounds) -> tuple[int, int]:
    """Return the offset at which a subscription goes on, and how many records from there on nobody has acknowledged."""
    start = max(cursor.mark_delete, bounds.start)
    ranges = unpack_ranges(cursor.mark_delete, cursor.acknowledged)
    acknowledged = sum(max(0, stop - max(first, start)) for first, stop in ranges)
    return start, max(0, bounds.end - start - acknowledged)


def _shown(view: StreamView, cursor: Cursor, target: int, bounds: PartitionBounds) -> dict[str, object]:
    current, lag = lag_of(cursor, bounds)
    return {
        "topic_name": view.name,
        "subscription_name": cursor.name,
        "partition_id": partition_index(cursor.partition),
        "current_offset": current,
        "new_offset": target,
        "start_offset": bounds.start,
        "log_end_offset": bounds.end,
        "current_lag": lag,
        "new_lag": bounds.end - target,
    }
