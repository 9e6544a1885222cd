"""POST …/consumer-groups/{group}/offsets:reset: move a group's committed offsets, or with `validate_only` only show what would move.

The group must have no members: they would read on where they are and commit over it. The commit is that of a Kafka client outside of the
group protocol, so the coordinator refuses it if a member has joined meanwhile.

Source: KIP-122 (reset of offsets: scenarios, the rule about members).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiohttp import web

from bearlake.metadata.model import CommittedOffset, PartitionBounds, PartitionKey, partition_index
from bearlake.protocols.rest.problems import Problem
from bearlake.protocols.rest.settings import RestSettings
from bearlake.protocols.rest.v3 import models
from bearlake.protocols.rest.v3.moving import goal_of
from bearlake.protocols.rest.v3.resources import CLUSTER, Site, answer, body, find_named
from bearlake.protocols.rest.v3.targets import at_time, given, keys_of
from bearlake.serving.http.login import principal_of
from bearlake.serving.live_servers import LiveServers
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups.model import MemberRef
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.groups.problems import Problem as GroupProblem
from bearlake.streams.principal import Operation, Resource, require
from bearlake.streams.service import Streams

_HAS_MEMBERS = frozenset(
    {GroupProblem.UNKNOWN_MEMBER, GroupProblem.ILLEGAL_GENERATION, GroupProblem.REBALANCE_IN_PROGRESS}
)
"""How a coordinator refuses a commit from outside of a group with members."""


class Move(NamedTuple):
    """A partition's committed offset (None: there is none), and where it moves."""

    partition: int
    current: int | None
    new: int
    bounds: PartitionBounds


class ResetRoutes:
    """The handler that resets offsets."""

    def __init__(self, streams: Streams, servers: LiveServers, settings: RestSettings) -> None:
        self._streams = streams
        self._servers = servers
        self._settings = settings

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the handler."""
        router.add_post(CLUSTER + "/consumer-groups/{group}/offsets:reset", self.reset)

    async def reset(self, request: web.Request) -> web.Response:
        """Move a group's offsets in a topic, or show what would move."""
        site = Site(request, self._servers)
        asked = await body(request, models.RESET, self._settings)
        group, who = request.match_info["group"], principal_of(request)
        require(self._streams.authorizer, who, Operation.READ, Resource.GROUP, group)
        view = await find_named(self._streams, who, Operation.READ, asked.topic_name)
        await self._require_known(group)
        moves = await self._moves(group, view, asked)
        if not asked.validate_only and moves:
            offsets = {view.partition(move.partition): CommittedOffset(offset=move.new) for move in moves}
            details = f"offsets of {view.name} {goal_of(asked)}"
            try:
                with self._streams.audit.change(who, Operation.ALTER, Resource.GROUP.value, group, details):
                    await self._streams.groups.commit(MemberRef(group=group), offsets)
            except GroupRefusal as refusal:
                if refusal.problem not in _HAS_MEMBERS:
                    raise
                raise Problem(409, 409, f"group {group[:249]} has members: stop its consumers first") from refusal
        shown = [_shown(group, view.name, move) for move in moves]
        return answer(site.listing("KafkaConsumerGroupOffsetList", f"/consumer-groups/{group}/offsets", shown))

    async def _require_known(self, group: str) -> None:
        """Raise `Problem` (404) for a group that nobody has used: a mistyped name would make a new one."""
        if not await self._streams.groups.offsets(group):
            try:
                await self._streams.groups.describe(group)
            except GroupRefusal as refusal:
                if refusal.problem is not GroupProblem.NOT_FOUND:
                    raise
                raise Problem(404, 404, f"Consumer group {group[:249]} cannot be found.") from refusal

    async def _moves(self, group: str, view: StreamView, asked: models.Reset) -> Sequence[Move]:
        """Return what moves. Raises `Problem` (400, 404)."""
        keys = keys_of(view, asked.partition_ids)
        committed = await self._streams.groups.offsets(group, keys)
        bounds = await self._streams.bounds(keys)
        current = {key: committed[key].offset for key in keys if key in committed}
        targets = await self._targets([key for key in keys if key in bounds], asked, current, bounds)
        return [
            Move(partition_index(key), current.get(key), _within(target, bounds[key]), bounds[key])
            for key, target in targets.items()
        ]

    async def _targets(
        self,
        keys: Sequence[PartitionKey],
        asked: models.Reset,
        current: Mapping[PartitionKey, int],
        bounds: Mapping[PartitionKey, PartitionBounds],
    ) -> Mapping[PartitionKey, int]:
        """Return the wanted offset of each partition; a shift moves only partitions that have an offset."""
        match asked.to:
            case "earliest":
                return {key: bounds[key].start for key in keys}
            case "latest":
                return {key: bounds[key].last_stable for key in keys}
            case "offset":
                return dict.fromkeys(keys, given(asked.offset, "offset"))
            case "shift":
                shift = given(asked.shift, "shift")
                return {key: current[key] + shift for key in keys if key in current}
            case "timestamp":
                time_ms, ends = (
                    given(asked.timestamp_ms, "timestamp_ms"),
                    {key: bounds[key].last_stable for key in keys},
                )
                return await at_time(self._streams, keys, time_ms, ends, is_committed=True)


def _within(offset: int, bounds: PartitionBounds) -> int:
    return min(max(offset, bounds.start), bounds.last_stable)


def _shown(group: str, topic: str, move: Move) -> dict[str, object]:
    before = None if move.current is None else max(0, move.bounds.last_stable - max(move.current, move.bounds.start))
    return {
        "consumer_group_id": group,
        "topic_name": topic,
        "partition_id": move.partition,
        "current_offset": move.current,
        "new_offset": move.new,
        "start_offset": move.bounds.start,
        "log_end_offset": move.bounds.last_stable,
        "current_lag": before,
        "new_lag": move.bounds.last_stable - move.new,
    }
