"""Routes …/consumer-groups: groups, their members, and their lag.

A group that another server coordinates is shown as that server saved it at the last rebalance. Offsets and ends are current.
"""

from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from aiohttp import web

from bearlake.errors import NotFound
from bearlake.metadata.model import PARTITION_BITS, PartitionKey, partition_index
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.proxy import assignor
from bearlake.protocols.rest.proxy.assignor import Partition
from bearlake.protocols.rest.v3.deleting import refusals_of
from bearlake.protocols.rest.v3.resources import CLUSTER, Site, answer, items, long_answer
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.groups import leading
from bearlake.streams.groups.model import Group, GroupKind, GroupState, Member
from bearlake.streams.groups.owned import viewed
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.problems import Problem as GroupProblem
from bearlake.streams.principal import Operation, Resource, require
from bearlake.streams.service import Streams
from bearlake.streams.turns import in_turns

_GROUPS = CLUSTER + "/consumer-groups"
_GROUP = _GROUPS + "/{group}"
_STATES = {
    GroupState.EMPTY: "EMPTY",
    GroupState.NOT_READY: "NOT_READY",
    GroupState.ASSIGNING: "ASSIGNING",
    GroupState.RECONCILING: "RECONCILING",
    GroupState.PREPARING: "PREPARING_REBALANCE",
    GroupState.COMPLETING: "COMPLETING_REBALANCE",
    GroupState.STABLE: "STABLE",
    GroupState.DEAD: "DEAD",
}


class Lag(NamedTuple):
    """A group's lag in one partition, and the member that reads the partition."""

    partition: Partition
    current: int
    end: int
    member: Member | None

    @property
    def behind(self) -> int:
        """Number of uncommitted records."""
        return max(0, self.end - self.current)


class GroupRoutes:
    """Handlers of consumer groups."""

    def __init__(self, streams: Streams, servers: LiveServers) -> None:
        self._streams = streams
        self._servers = servers

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handlers."""
        router.add_get(_GROUPS, self.groups)
        router.add_get(_GROUP, self.group)
        router.add_delete(_GROUP, self.delete)
        router.add_get(f"{_GROUP}/consumers", self.consumers)
        router.add_get(f"{_GROUP}/lag-summary", self.summary)
        router.add_get(f"{_GROUP}/lags", self.lags)
        router.add_get(f"{_GROUP}/lags/{{topic}}/partitions/{{partition}}", self.lag)

    async def groups(self, request: web.Request) -> web.Response:
        """List the consumer groups."""
        site = Site(request, self._servers)
        names = {listing.group for listing in await self._streams.groups.all()}
        who, sees = principal_of(request), self._streams.authorizer.sees
        shown = []
        for name in sorted(names):
            group = await self._find(name) if sees(who, Operation.DESCRIBE, Resource.GROUP, name) else None
            if group is not None:
                shown.append(_group(site, group))
        return answer(site.listing("KafkaConsumerGroupList", "/consumer-groups", shown))

    async def group(self, request: web.Request) -> web.Response:
        """Get a consumer group."""
        site = Site(request, self._servers)
        return answer(_group(site, await self._existing(request)))

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a consumer group that has no members, and its offsets."""
        Site(request, self._servers)
        name, who = request.match_info["group"], principal_of(request)
        require(self._streams.authorizer, who, Operation.DELETE, Resource.GROUP, name)
        group = await self._find(name)
        if group is not None and group.kind is GroupKind.SHARE:
            raise Problem(409, 409, f"{name[:249]!r} is a share group: delete it by the routes of share groups")
        with (
            refusals_of(name),
            self._streams.audit.change(who, Operation.DELETE, Resource.GROUP.value, name),
        ):
            await self._streams.groups.delete(name)
        return web.Response(status=204)

    async def consumers(self, request: web.Request) -> web.Response:
        """List a group's members."""
        site = Site(request, self._servers)
        group = await self._existing(request)
        shown = [_consumer(site, group, member) for member in group.members.values()]
        return answer(site.listing("KafkaConsumerList", f"/consumer-groups/{group.name}/consumers", shown))

    async def lags(self, request: web.Request) -> web.Response:
        """List a group's lag by partition."""
        site = Site(request, self._servers)
        group = await self._existing(request)
        lags = await self._lags(request, group)
        shown = [items(_lag(site, group, lag) for lag in part) async for part in in_turns(lags)]
        return long_answer(site.listing("KafkaConsumerLagList", f"/consumer-groups/{group.name}/lags", []), shown)

    async def lag(self, request: web.Request) -> web.Response:
        """Get a group's lag in one partition."""
        site = Site(request, self._servers)
        group = await self._existing(request)
        topic, index = request.match_info["topic"], request.match_info["partition"]
        with suppress(NotFound):
            await self._streams.catalog.find(topic)
        view = self._streams.catalog.peek(topic)
        keys = [] if view is None else [key for key in view.partitions() if str(partition_index(key)) == index]
        for lag in await self._lags(request, group, keys):
            return answer(_lag(site, group, lag))
        raise Problem(404, 404, "Consumer lag cannot be found: the group has no offset there.")

    async def summary(self, request: web.Request) -> web.Response:
        """Get a group's largest and total lag."""
        site = Site(request, self._servers)
        group = await self._existing(request)
        lags = await self._lags(request, group)
        if not lags:
            raise Problem(404, 404, "Consumer group lag summary cannot be found: the group has no offsets.")
        worst, total = lags[0], 0
        async for part in in_turns(lags):
            worst = max(worst, *part, key=lambda lag: lag.behind)
            total += sum(lag.behind for lag in part)
        member = worst.member
        fields = {
            "consumer_group_id": group.name,
            "max_lag_consumer_id": member.member_id if member else "",
            "max_lag_instance_id": member.instance_id if member else None,
            "max_lag_client_id": member.client_id if member else "",
            "max_lag_topic_name": worst.partition[0],
            "max_lag_partition_id": worst.partition[1],
            "max_lag": worst.behind,
            "total_lag": total,
        }
        path = f"/consumer-groups/{group.name}/lag-summary"
        name = f"/consumer-group={group.name}/lag-summary"
        return answer(site.resource("KafkaConsumerGroupLagSummary", path, name, fields))

    async def _existing(self, request: web.Request) -> Group:
        name = request.match_info["group"]
        group = await self._find(name) if self._may(request, name) else None
        if group is None:
            raise Problem(404, 404, f"Consumer group {name[:249]} cannot be found.")
        return group

    def _may(self, request: web.Request, name: str) -> bool:
        who = principal_of(request)
        return self._streams.authorizer.allows(who, Operation.DESCRIBE, Resource.GROUP, name)

    async def _find(self, name: str) -> Group | None:
        try:
            return await self._streams.groups.describe(name)
        except GroupRefusal as refusal:
            if refusal.problem is GroupProblem.NOT_FOUND:
                return None
            if refusal.problem is not GroupProblem.NOT_COORDINATOR:
                raise
        saved = await self._streams.metadata.groups.load(name)
        return viewed(name, saved, self._streams.groups.settings.consumer.session_timeout_ms)

    async def _lags(
        self, request: web.Request, group: Group, partitions: Collection[PartitionKey] | None = None
    ) -> list[Lag]:
        """Return the lag in these partitions (None: in all that have an offset) that the caller may see, by topic and index."""
        who = principal_of(request)
        committed = await self._streams.groups.offsets(group.name, partitions)
        bounds = await self._streams.bounds(list(committed))
        if any(self._streams.catalog.peek_number(key >> PARTITION_BITS) is None for key in bounds):
            await self._streams.catalog.catch_up()
        owners = await self._owners(group)
        lags: dict[str, list[Lag]] = {}
        async for part in in_turns(sorted(committed)):
            for key in part:
                view = self._streams.catalog.peek_number(key >> PARTITION_BITS)
                if view is not None and key in bounds and self._streams.sees(who, Operation.DESCRIBE, view.name):
                    partition = view.name, partition_index(key)
                    lag = Lag(partition, committed[key].offset, bounds[key].last_stable, owners.get(partition))
                    lags.setdefault(view.name, []).append(lag)
        return [lag for name in sorted(lags) for lag in lags[name]]

    async def _owners(self, group: Group) -> dict[Partition, Member]:
        """Return the members that read the group's partitions; decodes large assignments in a thread."""
        owners: dict[Partition, Member] = {}
        if group.protocol_type != "consumer" and group.kind is not GroupKind.STREAMS:
            return owners
        for member in list(group.members.values()):
            assigned = await leading.decoded_assignment(member.assignment, self._streams.checks.off_loop)
            async for part in in_turns(assignor.pairs(assigned)):
                owners.update(dict.fromkeys(part, member))
        return owners


def _group(site: Site, group: Group) -> dict[str, object]:
    path = f"/consumer-groups/{group.name}"
    fields = {
        "consumer_group_id": group.name,
        "is_simple": group.protocol_type == "",
        "partition_assignor": group.protocol_name,
        "state": _STATES[group.state],
        "type": group.kind.name,
        "consumers": site.related(f"{path}/consumers"),
        "lag_summary": site.related(f"{path}/lag-summary"),
    }
    return site.resource("KafkaConsumerGroup", path, f"/consumer-group={group.name}", fields)


def _consumer(site: Site, group: Group, member: Member) -> dict[str, object]:
    path = f"/consumer-groups/{group.name}/consumers"
    fields = {
        "consumer_group_id": group.name,
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
    }
    name = f"/consumer-group={group.name}/consumer={member.member_id}"
    return site.resource("KafkaConsumer", path, name, fields)


def _lag(site: Site, group: Group, lag: Lag) -> dict[str, object]:
    topic, index = lag.partition
    fields = {
        "consumer_group_id": group.name,
        "topic_name": topic,
        "partition_id": index,
        "current_offset": lag.current,
        "log_end_offset": lag.end,
        "lag": lag.behind,
        "consumer_id": lag.member.member_id if lag.member else "",
        "instance_id": lag.member.instance_id if lag.member else None,
        "client_id": lag.member.client_id if lag.member else "",
    }
    path = f"/consumer-groups/{group.name}/lags/{topic}/partitions/{index}"
    name = f"/consumer-group={group.name}/lag={topic}/partition={index}"
    return site.resource("KafkaConsumerLag", path, name, fields)
