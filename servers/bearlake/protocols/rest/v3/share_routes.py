"""Routes …/share-groups: share groups, their members, where they are in their partitions, and a reset of their offsets (KIP-932).

The members are those that the group's coordinator has saved: it saves each member that joins or leaves. Offsets are saved by the servers
that dispatch the partitions, up to a moment after the members' acknowledgements.

A reset names streams in which the group already has state, and needs a group without members, as Kafka's tools do. With `validate_only` it
only shows what would move.
"""

from collections.abc import Mapping, Sequence

from aiohttp import web

from bearlake.metadata.defaults import is_group_name
from bearlake.metadata.model import PartitionBounds, PartitionKey, partition_index, stream_number
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.v3 import models
from bearlake.protocols.rest.v3.deleting import refusals_of
from bearlake.protocols.rest.v3.moving import goal_of, move_each
from bearlake.protocols.rest.v3.resources import CLUSTER, Site, answer, body, find_named
from bearlake.protocols.rest.v3.targets import at_time, given, keys_of
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups.consumer.model import ConsumerMember
from bearlake.streams.groups.owned import restore
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.problems import Problem as GroupProblem
from bearlake.streams.groups.share.model import ShareGroup
from bearlake.streams.groups.shares import ShareCoordinator
from bearlake.streams.principal import Operation, Resource, require
from bearlake.streams.service import Streams
from bearlake.streams.share_deletion import delete_share_group
from bearlake.streams.shares import NoReach, SharePosition, ShareReach, Shares

_GROUPS = CLUSTER + "/share-groups"
_GROUP = _GROUPS + "/{group}"


class ShareGroupRoutes:
    """Handlers of share groups."""

    def __init__(
        self, streams: Streams, servers: LiveServers, settings: RestSettings, reach: ShareReach | None = None
    ) -> None:
        """`reach`: the servers that dispatch share groups; None: only this server does."""
        self._streams = streams
        self._servers = servers
        self._settings = settings
        self._coordinator = ShareCoordinator(streams.metadata, streams.coordinator.ownership)
        self._shares = Shares(streams.local_shares, streams.metadata.cursors, streams, reach or NoReach())

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get(_GROUPS, self.groups)
        router.add_get(_GROUP, self.group)
        router.add_delete(_GROUP, self.delete)
        router.add_get(f"{_GROUP}/consumers", self.consumers)
        router.add_get(f"{_GROUP}/lags", self.lags)
        router.add_post(f"{_GROUP}/offsets:reset", self.reset)

    async def groups(self, request: web.Request) -> web.Response:
        """List the share groups."""
        site = Site(request, self._servers)
        who, sees = principal_of(request), self._streams.authorizer.sees
        shown = []
        for listing in await self._streams.groups.all():
            if listing.protocol_type == ShareGroup.protocol_type and sees(
                who, Operation.DESCRIBE, Resource.GROUP, listing.group
            ):
                group = await self._find(listing.group)
                if group is not None:
                    shown.append(_group(site, group))
        return answer(site.listing("KafkaShareGroupList", "/share-groups", shown))

    async def group(self, request: web.Request) -> web.Response:
        """Get a share group."""
        return answer(_group(Site(request, self._servers), await self._existing(request)))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a share group that has no members, and what it has in all topics."""
        Site(request, self._servers)
        name, who = request.match_info["group"], principal_of(request)
        require(self._streams.authorizer, who, Operation.DELETE, Resource.GROUP, name)
        group = await self._find(name)
        if group is None:
            raise _unknown(name)
        await self._check_empty(name)
        catalog, delete = self._streams.catalog, self._streams.groups.delete
        with refusals_of(name), self._streams.audit.change(who, Operation.DELETE, Resource.GROUP.value, name):
            await delete_share_group(name, group.known, catalog, self._shares, delete)
        return web.Response(status=204)

    async def consumers(self, request: web.Request) -> web.Response:
        """List a share group's members."""
        site, group = Site(request, self._servers), await self._existing(request)
        shown = [_consumer(site, group, member) for member in group.members.values()]
        return answer(site.listing("KafkaShareGroupConsumerList", f"/share-groups/{group.name}/consumers", shown))

    async def lags(self, request: web.Request) -> web.Response:
        """List where a share group is in its partitions: the first record that is not done, and the number of those that are not."""
        site, group = Site(request, self._servers), await self._existing(request)
        who, peek = principal_of(request), self._streams.catalog.peek_number
        views = {
            number: view
            for number in group.known
            if (view := peek(number)) is not None and self._streams.sees(who, Operation.DESCRIBE, view.name)
        }
        keys = [key for view in views.values() for key in view.partitions()]
        positions = await self._shares.positions(group.name, keys)
        bounds = await self._streams.bounds(list(positions))
        shown = [
            _lag(site, group, views[stream_number(key)], key, position, bounds[key])
            for key, position in positions.items()
            if key in bounds
        ]
        shown.sort(key=lambda lag: (str(lag["topic_name"]), lag["partition_id"]))
        return answer(site.listing("KafkaShareGroupLagList", f"/share-groups/{group.name}/lags", shown))

    async def reset(self, request: web.Request) -> web.Response:
        """Move a share group's offsets in a topic, or show what would move."""
        site = Site(request, self._servers)
        asked = await body(request, models.SHARE_RESET, self._settings)
        name, who = request.match_info["group"], principal_of(request)
        require(self._streams.authorizer, who, Operation.READ, Resource.GROUP, name)
        view = await find_named(self._streams, who, Operation.READ, asked.topic_name)
        group = await self._find(name)
        if group is None:
            raise _unknown(name)
        if view.stream.number not in group.known:
            raise Problem(404, 404, f"share group {name[:249]} has no offsets in topic {view.name}")
        keys = keys_of(view, asked.partition_ids)
        bounds = await self._streams.bounds(keys)
        keys = [key for key in keys if key in bounds]
        positions = await self._shares.positions(name, keys)
        targets = await self._targets(keys, asked, bounds)
        if not asked.validate_only:
            await self._check_empty(name)
            details = f"share group offsets of {view.name} {goal_of(asked)}"
            with self._streams.audit.change(who, Operation.ALTER, Resource.GROUP.value, name, details) as noted:
                await move_each(targets, lambda key, offset: self._shares.reset(name, key, offset), noted)
        shown = [_moved(name, view, key, positions.get(key), target, bounds[key]) for key, target in targets.items()]
        return answer(site.listing("KafkaShareGroupOffsetList", f"/share-groups/{name}/offsets", shown))

    # -- inside --------------------------------------------------------------------------------------------------

    async def _find(self, name: str) -> ShareGroup | None:
        if not is_group_name(name):
            return None
        group = restore(name, await self._streams.metadata.groups.load(name))
        return group if isinstance(group, ShareGroup) else None

    async def _existing(self, request: web.Request) -> ShareGroup:
        name = request.match_info["group"]
        may = self._streams.authorizer.allows(principal_of(request), Operation.DESCRIBE, Resource.GROUP, name)
        group = await self._find(name) if may else None
        if group is None:
            raise _unknown(name)
        return group

    async def _targets(
        self, keys: Sequence[PartitionKey], asked: models.ShareReset, bounds: Mapping[PartitionKey, PartitionBounds]
    ) -> Mapping[PartitionKey, int]:
        """Return the new offset of each partition, inside of the partition. Raises `Problem` (400)."""
        match asked.to:
            case "earliest":
                return {key: bounds[key].start for key in keys}
            case "latest":
                return {key: bounds[key].end for key in keys}
            case "offset":
                offset = given(asked.offset, "offset")
                return {key: min(max(offset, bounds[key].start), bounds[key].end) for key in keys}
            case "timestamp":
                time_ms, ends = given(asked.timestamp_ms, "timestamp_ms"), {key: bounds[key].end for key in keys}
                return await at_time(self._streams, keys, time_ms, ends, is_committed=False)

    async def _check_empty(self, name: str) -> None:
        """Raise `Problem` (409) if the group has members; another server's group is read as that server has saved it."""
        try:
            await self._coordinator.check_empty(name)
        except GroupRefusal as refusal:
            if refusal.problem is GroupProblem.NOT_COORDINATOR:
                group = await self._find(name)
                if group is not None and not group.members:
                    return
            elif refusal.problem is not GroupProblem.NON_EMPTY:
                raise
            raise Problem(409, 409, f"share group {name[:249]!r} has members: stop its consumers first") from refusal


def _unknown(name: str) -> Problem:
    return Problem(404, 404, f"Share group {name[:249]} cannot be found.")


def _group(site: Site, group: ShareGroup) -> dict[str, object]:
    path = f"/share-groups/{group.name}"
    fields = {
        "share_group_id": group.name,
        "state": group.state.name,
        "consumer_count": len(group.members),
        "partition_count": sum(len(member.assigned) for member in group.members.values()),
        "consumers": site.related(f"{path}/consumers"),
    }
    return site.resource("KafkaShareGroup", path, f"/share-group={group.name}", fields)


def _consumer(site: Site, group: ShareGroup, member: ConsumerMember) -> dict[str, object]:
    fields = {
        "share_group_id": group.name,
        "consumer_id": member.member_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topic_names": sorted(member.topics),
        "partition_count": len(member.assigned),
    }
    path = f"/share-groups/{group.name}/consumers/{member.member_id}"
    return site.resource(
        "KafkaShareGroupConsumer", path, f"/share-group={group.name}/consumer={member.member_id}", fields
    )


def _lag(
    site: Site,
    group: ShareGroup,
    view: StreamView,
    key: PartitionKey,
    position: SharePosition,
    bounds: PartitionBounds,
) -> dict[str, object]:
    index = partition_index(key)
    fields = {
        "share_group_id": group.name,
        "topic_name": view.name,
        "partition_id": index,
        "current_offset": position.start,
        "log_end_offset": bounds.end,
        "lag": position.lag,
    }
    path = f"/share-groups/{group.name}/lags/{view.name}/partitions/{index}"
    return site.resource(
        "KafkaShareGroupLag", path, f"/share-group={group.name}/lag={view.name}/partition={index}", fields
    )


def _moved(
    group: str,
    view: StreamView,
    key: PartitionKey,
    position: SharePosition | None,
    target: int,
    bounds: PartitionBounds,
) -> dict[str, object]:
    return {
        "share_group_id": group,
        "topic_name": view.name,
        "partition_id": partition_index(key),
        "current_offset": None if position is None else position.start,
        "new_offset": target,
        "start_offset": bounds.start,
        "log_end_offset": bounds.end,
        "current_lag": None if position is None else position.lag,
        "new_lag": bounds.end - target,
    }
