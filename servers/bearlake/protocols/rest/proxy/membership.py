"""A member of a classic consumer group inside this server: the client side of Kafka's group protocol.

The member joins, assigns if it is the leader, syncs and sends heartbeats. Kafka clients in the same group see an ordinary member.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress

from bearlake.errors import NotFound
from bearlake.protocols.rest.proxy import assignor
from bearlake.protocols.rest.proxy.assignor import Partition
from bearlake.protocols.rest.settings import RestSettings
from bearlake.streams.groups import assignment, leading
from bearlake.streams.groups.model import Joined, JoinRequest, MemberRef
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.service import Streams
from bearlake.streams.turns import in_turns

PROTOCOL_TYPE = "consumer"
ATTEMPT_COUNT = 10
_AGAIN = frozenset({Problem.REBALANCE_IN_PROGRESS, Problem.ILLEGAL_GENERATION, Problem.UNKNOWN_MEMBER})


class GroupMember:
    """One member. Not for concurrent use, except `beat`."""

    def __init__(self, streams: Streams, group: str, client: tuple[str, str], settings: RestSettings) -> None:
        """`client` is the client id and host shown in group descriptions."""
        self._groups = streams.groups
        self._catalog = streams.catalog
        self._off_loop = streams.checks.off_loop
        self._group = group
        self._client = client
        self._settings = settings
        self._counts: dict[str, int] = {}
        self._joined_topics: frozenset[str] = frozenset()
        self.id = ""
        """Member id; empty before the first join."""
        self.generation = -1

    async def join(self, topics: Collection[str]) -> Sequence[Partition]:
        """Join or rejoin with these topics and return the assigned partitions. Waits for other members. Raises `GroupRefusal`."""
        for attempt in range(ATTEMPT_COUNT):
            try:
                metadata = await leading.encoded_subscription(topics, self._off_loop)
                joined = await self._groups.join(self._group, self._request(metadata))
                self.id, self.generation = joined.member_id, joined.generation
                self._joined_topics = frozenset(topics)
                assignments = await self._assign(joined) if joined.leader == self.id else {}
                protocol = joined.protocol_type, joined.protocol_name
                synced = await self._groups.sync(self.ref(), protocol, assignments)
            except GroupRefusal as refusal:
                if refusal.problem is Problem.UNKNOWN_MEMBER:
                    self.id = ""
                if refusal.problem not in _AGAIN or attempt == ATTEMPT_COUNT - 1:
                    raise
            else:
                return assignor.pairs(await leading.decoded_assignment(synced.assignment, self._off_loop))
        raise AssertionError("the last attempt returns or raises")

    async def beat(self, topics: Collection[str]) -> bool:
        """Send a heartbeat; return whether the member must rejoin: at the group's request, or after a change of topics or partition counts.

        Raises:
            GroupRefusal: the coordinator has moved or does not answer.
        """
        try:
            await self._groups.heartbeat(self.ref())
        except GroupRefusal as refusal:
            if refusal.problem not in _AGAIN:
                raise
            return True
        return frozenset(topics) != self._joined_topics or await self._has_changed()

    async def _has_changed(self) -> bool:
        """Whether the counts of partitions have changed since this member assigned them as the leader."""
        async for part in in_turns(list(self._counts.items())):
            if any(self._count(topic) != count for topic, count in part):
                return True
        return False

    async def leave(self) -> None:
        """Leave the group; no-op for a non-member. Raises `GroupRefusal`."""
        if self.id:
            member_id, self.id = self.id, ""
            await self._groups.leave(MemberRef(group=self._group, member_id=member_id))

    def ref(self) -> MemberRef:
        """Return the member as the sender of a request; before the first join, a client outside the group protocol."""
        return MemberRef(group=self._group, member_id=self.id, generation=self.generation if self.id else -1)

    def _request(self, metadata: bytes) -> JoinRequest:
        return JoinRequest(
            member_id=self.id,
            instance_id=None,
            client_id=self._client[0],
            client_host=self._client[1],
            session_timeout_ms=self._settings.consumer_session_ms,
            rebalance_timeout_ms=self._settings.consumer_rebalance_ms,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple((name, metadata) for name in assignment.PROTOCOLS),
            requires_known_id=False,
            can_skip_assignment=True,
        )

    async def _assign(self, joined: Joined) -> dict[str, bytes]:
        subscriptions, topics = await leading.subscriptions_of(joined, self._off_loop)
        found: dict[str, int] = {}
        async for part in in_turns(list(topics)):
            for topic in part:
                if self._catalog.peek(topic) is None:
                    with suppress(NotFound):
                        await self._catalog.find(topic)
                found[topic] = self._count(topic)
        self._counts = found
        counts = {topic: count for topic, count in found.items() if count}
        return await leading.assignments_of(joined.protocol_name, subscriptions, counts, self._off_loop)

    def _count(self, topic: str) -> int:
        view = self._catalog.peek(topic)
        return view.partition_count if view is not None else 0
