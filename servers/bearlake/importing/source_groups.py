"""Reads the consumer groups of a cluster: their names, and their committed offsets.

Source: Kafka protocol guide (ListGroups, FindCoordinator, OffsetFetch); KIP-447 (stable offsets).
"""

import asyncio
from collections.abc import Callable
from typing import Any

from bearlake.errors import Overloaded
from bearlake.importing.cluster import Connections, SourceCluster, check
from bearlake.metadata.model import CommittedOffset
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.errors import ErrorCode

_OF_ONE_GROUP = 7
"""The newest version of OffsetFetch that asks for one group, by names of topics."""
_OF_ONE_KEY = 3
"""The same of FindCoordinator."""
_PAUSE_S = 0.1
_CONSUMER_PROTOCOLS = ("consumer", "")
"""Protocol types of groups that commit offsets; "": a group without members that joined."""


async def names(cluster: SourceCluster, connections: Connections) -> list[str]:
    """Return the names of all groups that may have offsets. Raises `Denied`, `Unavailable`."""
    found: set[str] = set()
    for address in cluster.brokers:
        answer = await (await connections.to(address)).ask(messages.ListGroupsRequest())
        check(answer.error_code, "a list of its groups", cluster.settings.PEER)
        found |= {group.group_id for group in answer.groups if group.protocol_type in _CONSUMER_PROTOCOLS}
    return sorted(found)


class Coordinators:
    """Asks the coordinators of one cluster's groups, for one round of questions.

    A coordinator may be away for a moment: while Kafka makes the topic of offsets at the first question of all, while a coordinator loads
    a group, and when a group moves. Then it is asked again, as clients do, until the round has waited for `wait_ms` in all.
    """

    def __init__(self, cluster: SourceCluster, connections: Connections, *, wait_ms: int) -> None:
        self._cluster = cluster
        self._connections = connections
        self._left_s = wait_ms / 1000

    async def ask(self, name: str, request: Any, *, newest: int, check_answer: Callable[[Any], None]) -> Any:
        """Return the answer of the group's coordinator, of the request's newest version up to `newest`. Any: the codec's classes.

        `check_answer` raises the error of an answer. Raises `Denied`, `Unavailable`; `Overloaded` if the coordinator is away for longer.
        """
        while True:
            try:
                address = await self._address(name)
                answer = await (await self._connections.to(address)).ask(request, newest=newest)
                check_answer(answer)
            except Overloaded:
                if self._left_s <= 0:
                    raise
                self._left_s -= _PAUSE_S
                await asyncio.sleep(_PAUSE_S)
            else:
                return answer

    async def offsets(self, name: str) -> dict[tuple[str, int], CommittedOffset]:
        """Return the group's offsets by topic and partition. An offset that an open transaction may change is left out. Raises as `ask`."""
        request = messages.OffsetFetchRequest(group_id=name, topics=None, require_stable=True)

        def check_answer(answer: Any) -> None:
            check(answer.error_code, f"the offsets of group {name!r}", self._cluster.settings.PEER)

        answer = await self.ask(name, request, newest=_OF_ONE_GROUP, check_answer=check_answer)
        return {
            (topic.name, item.partition_index): CommittedOffset(
                offset=item.committed_offset, metadata=item.metadata or ""
            )
            for topic in answer.topics
            for item in topic.partitions
            if item.error_code == ErrorCode.NONE and item.committed_offset >= 0
        }

    async def _address(self, name: str) -> str:
        question = messages.FindCoordinatorRequest(key=name, key_type=0)
        place = await (await self._connections.to(self._cluster.brokers[0])).ask(question, newest=_OF_ONE_KEY)
        check(place.error_code, f"the offsets of group {name!r}", self._cluster.settings.PEER)
        return f"{place.host}:{place.port}"
