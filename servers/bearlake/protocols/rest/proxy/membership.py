"""A member of a classic consumer group inside this server: the client side of Kafka's group protocol.

The member joins, assigns if it is the leader, syncs and sends heartbeats. Kafka clients in the same group see an ordinary member.
"""

from collections.abc import Collection

from bearlake.errors import NotFound
from bearlake.protocols.rest.proxy import assignor
from bearlake.protocols.rest.proxy.assignor import Partition
from bearlake.protocols.rest.settings import RestSettings
from bearlake.streams.catalog import Catalog
from bearlake.streams.groups import assignment
from bearlake.streams.groups.model import Joined, JoinRequest, MemberRef
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.shared import Groups

PROTOCOL_TYPE = "consumer"
ATTEMPT_COUNT = 10
_AGAIN = frozenset({Problem.REBALANCE_IN_PROGRESS, Problem.ILLEGAL_GENERATION, Problem.UNKNOWN_MEMBER})


class GroupMember:
    """One member. Not for concurrent use, except `beat`."""

    def __init__(
        self, groups: Groups, catalog: Catalog, group: str, client: tuple[str, str], settings: RestSettings
    ) -> None:
        """`client` is the client id and host shown in group descriptions."""
        self._groups = groups
        self._catalog = catalog
        self._group = group
        self._client = client
        self._settings = settings
        self._counts: dict[str, int] = {}
        self._joined_topics: frozenset[str] = frozenset()
        self.id = ""
        """Member id; empty before the first join."""
        self.generation = -1

    async def join(self, topics: Collection[str]) -> list[Partition]:
        """Join or rejoin with these topics and return the assigned partitions. Waits for other members. Raises `GroupRefusal`."""
        for attempt in range(ATTEMPT_COUNT):
            try:
                joined = await self._groups.join(self._group, self._request(topics))
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
                return assignor.decode_assignment(synced.assignment)
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
        return frozenset(topics) != self._joined_topics or any(
            self._count(topic) != count for topic, count in self._counts.items()
        )

    async def leave(self) -> None:
        """Leave the group; no-op for a non-member. Raises `GroupRefusal`."""
        if self.id:
            member_id, self.id = self.id, ""
            await self._groups.leave(MemberRef(group=self._group, member_id=member_id))

    def ref(self) -> MemberRef:
        """Return the member as the sender of a request; before the first join, a client outside the group protocol."""
        return MemberRef(group=self._group, member_id=self.id, generation=self.generation if self.id else -1)

    def _request(self, topics: Collection[str]) -> JoinRequest:
        metadata = assignor.encode_subscription(topics)
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
        subscriptions = {member.member_id: assignment.decode_subscription(member.metadata) for member in joined.members}
        topics = {topic for subscribed in subscriptions.values() for topic in subscribed}
        for topic in topics:
            if self._catalog.peek(topic) is None:
                try:
                    await self._catalog.find(topic)
                except NotFound:
                    continue
        self._counts = {topic: self._count(topic) for topic in topics}
        counts = {topic: count for topic, count in self._counts.items() if count}
        assigned = assignor.assign(joined.protocol_name, subscriptions, counts)
        return {member: assignor.encode_assignment(partitions) for member, partitions in assigned.items()}

    def _count(self, topic: str) -> int:
        view = self._catalog.peek(topic)
        return view.partition_count if view is not None else 0
