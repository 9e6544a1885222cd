"""Copies the committed offsets of consumer groups, after the records that they name.

An offset is copied when the target has all records below it, and never moved back here: consumers may have begun to read the target. Groups
whose offsets cannot be read or written are reported and do not stop the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bearlake.errors import BearlakeError
from bearlake.importing import source_groups
from bearlake.importing.cluster import Connections, SourceCluster
from bearlake.importing.progress import PartitionCopy
from bearlake.metadata.model import CommittedOffset, PartitionKey
from bearlake.streams.catalog import StreamView
from bearlake.streams.groups.model import MemberRef
from bearlake.streams.groups.problems import GroupRefusal
from bearlake.streams.service import Streams


@dataclass(slots=True)
class GroupsCopied:
    """The newest round: groups whose offsets the target has, and why others could not be copied."""

    names: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class GroupOffsets:
    """The groups of one import."""

    def __init__(self, cluster: SourceCluster, streams: Streams, *, is_repeated: bool) -> None:
        """`streams` reaches the servers that coordinate groups.

        is_repeated: a later round copies what this one cannot, so no round waits for coordinators that are away for a moment.
        """
        self._wait_ms = 0 if is_repeated else cluster.settings.timeout_ms
        self._cluster = cluster
        self._streams = streams
        self.copied = GroupsCopied()

    async def copy(self, partitions: Sequence[PartitionCopy[StreamView]]) -> None:
        """Copy the offsets of all groups in these partitions. Raises `Unavailable` if the source does not list its groups."""
        by_place = {(item.topic.name, item.index): item for item in partitions}
        round_ = GroupsCopied()
        async with Connections(self._cluster) as connections:
            coordinators = source_groups.Coordinators(self._cluster, connections, wait_ms=self._wait_ms)
            for name in await source_groups.names(self._cluster, connections):
                try:
                    found = await coordinators.offsets(name)
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

    async def _write(self, name: str, wanted: Mapping[PartitionKey, CommittedOffset]) -> None:
        present = await self._streams.coordinator.offsets(name, list(wanted))
        later = {
            key: offset for key, offset in wanted.items() if key not in present or present[key].offset < offset.offset
        }
        if later:
            await self._streams.groups.commit(MemberRef(group=name), later)
