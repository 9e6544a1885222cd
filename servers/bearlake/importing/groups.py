"""Copies the committed offsets of consumer groups, after the records that they name.

An offset is copied when the target has all records below it, and never moved back here: consumers may have begun to read the target. Groups
whose offsets cannot be read or written are reported and do not stop the others.

Source: Kafka protocol guide (ListGroups, FindCoordinator, OffsetFetch); KIP-447 (stable offsets).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bearlake.errors import BearlakeError, Denied
from bearlake.importing.cluster import Connections, SourceCluster, check
from bearlake.importing.progress import PartitionCopy
from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.protocols.kafka import messages
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.streams.groups.model import MemberRef
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.service import Streams

_OF_ONE_GROUP = 7
"""The newest version of OffsetFetch that asks for one group, by names of topics."""
_OF_ONE_KEY = 3
"""The same of FindCoordinator."""
_CONSUMER_PROTOCOLS = ("consumer", "")
"""Protocol types of groups that commit offsets; "": a group without members that joined."""


@dataclass(slots=True)
class GroupsCopied:
    """The newest round: groups whose offsets the target has, and why others could not be copied."""

    names: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class GroupOffsets:
    """The groups of one import."""

    def __init__(self, cluster: SourceCluster, streams: Streams) -> None:
        """`streams` reaches the servers that coordinate groups."""
        self._cluster = cluster
        self._streams = streams
        self.copied = GroupsCopied()

    async def copy(self, partitions: Sequence[PartitionCopy]) -> None:
        """Copy the offsets of all groups in these partitions. Raises `Unavailable` if the source does not list its groups."""
        by_place = {(item.topic.name, item.index): item for item in partitions}
        round_ = GroupsCopied()
        async with Connections(self._cluster) as connections:
            for name in await self._names(connections):
                try:
                    found = await self._read(connections, name)
                    wanted = {
                        by_place[place].view.partition(place[1]): offset
                        for place, offset in found.items()
                        if place in by_place and offset.offset <= by_place[place].end
                    }
                    if wanted:
                        await self._write(name, wanted)
                        round_.names.append(name)
                except (BearlakeError, GroupRefusal) as error:
                    round_.refused[name] = str(error)
        self.copied = round_

    async def _names(self, connections: Connections) -> list[str]:
        names: set[str] = set()
        for address in self._cluster.brokers:
            answer = await (await connections.to(address)).ask(messages.ListGroupsRequest())
            check(answer.error_code, "a list of its groups")
            names |= {group.group_id for group in answer.groups if group.protocol_type in _CONSUMER_PROTOCOLS}
        return sorted(names)

    async def _read(self, connections: Connections, name: str) -> dict[tuple[str, int], CommittedOffset]:
        """Return the group's offsets by topic and partition. An offset that an open transaction may change is left out."""
        question = messages.FindCoordinatorRequest(key=name, key_type=0)
        place = await (await connections.to(self._cluster.brokers[0])).ask(question, newest=_OF_ONE_KEY)
        _check(place.error_code, name)
        request = messages.OffsetFetchRequest(group_id=name, topics=None, require_stable=True)
        answer = await (await connections.to(f"{place.host}:{place.port}")).ask(request, newest=_OF_ONE_GROUP)
        _check(answer.error_code, name)
        return {
            (topic.name, item.partition_index): CommittedOffset(
                offset=item.committed_offset, metadata=item.metadata or ""
            )
            for topic in answer.topics
            for item in topic.partitions
            if item.error_code == ErrorCode.NONE and item.committed_offset >= 0
        }

    async def _write(self, name: str, wanted: Mapping[PartitionKey, CommittedOffset]) -> None:
        present = await self._streams.coordinator.offsets(name, list(wanted))
        later = {
            key: offset for key, offset in wanted.items() if key not in present or present[key].offset < offset.offset
        }
        if later:
            await self._streams.groups.commit(MemberRef(group=name), later)


def _check(code: int, name: str) -> None:
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        raise Denied(f"the source refuses the offsets of group {name!r}: {ErrorCode(code).name}")
    check(code, f"the offsets of group {name!r}")
