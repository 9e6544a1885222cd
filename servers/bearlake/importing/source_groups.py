"""Reads the consumer groups of a cluster: their names, and their committed offsets.

Source: Kafka protocol guide (ListGroups, FindCoordinator, OffsetFetch); KIP-447 (stable offsets).
"""

from bearlake.importing.cluster import Connections, SourceCluster, check
from bearlake.metadata.model import CommittedOffset
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.errors import ErrorCode

_OF_ONE_GROUP = 7
"""The newest version of OffsetFetch that asks for one group, by names of topics."""
_OF_ONE_KEY = 3
"""The same of FindCoordinator."""
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


async def coordinator(cluster: SourceCluster, connections: Connections, name: str) -> str:
    """Return the address of the group's coordinator. Raises `Denied`, `Unavailable`."""
    question = messages.FindCoordinatorRequest(key=name, key_type=0)
    place = await (await connections.to(cluster.brokers[0])).ask(question, newest=_OF_ONE_KEY)
    check(place.error_code, f"the offsets of group {name!r}", cluster.settings.PEER)
    return f"{place.host}:{place.port}"


async def offsets(
    cluster: SourceCluster, connections: Connections, name: str
) -> dict[tuple[str, int], CommittedOffset]:
    """Return the group's offsets by topic and partition. An offset that an open transaction may change is left out.

    Raises `Denied`, `Unavailable`.
    """
    address = await coordinator(cluster, connections, name)
    request = messages.OffsetFetchRequest(group_id=name, topics=None, require_stable=True)
    answer = await (await connections.to(address)).ask(request, newest=_OF_ONE_GROUP)
    check(answer.error_code, f"the offsets of group {name!r}", cluster.settings.PEER)
    return {
        (topic.name, item.partition_index): CommittedOffset(offset=item.committed_offset, metadata=item.metadata or "")
        for topic in answer.topics
        for item in topic.partitions
        if item.error_code == ErrorCode.NONE and item.committed_offset >= 0
    }
