"""Moves the committed offsets of consumer groups to the target, through the runs of the ledger.

An offset is moved when the target has all records below it, and never back: consumers may have begun to read there. Groups whose offsets
cannot be read or written, such as those with members at the target, are reported and do not stop the others.

Source: Kafka protocol guide (OffsetCommit without a member: generation -1).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bearlake.errors import BearlakeError, Unavailable
from bearlake.exporting.target import ExportedTopic, ExportTarget
from bearlake.importing import source_groups
from bearlake.importing.cluster import Connections, SourceCluster, check
from bearlake.importing.groups import GroupsCopied
from bearlake.importing.progress import PartitionCopy
from bearlake.importing.source_groups import Coordinators
from bearlake.metadata.model import CommittedOffset
from bearlake.protocols.kafka import messages

_COMMIT_NEWEST = 9
"""The newest version of OffsetCommit that names topics."""

Place = tuple[str, int]


class GroupMoves:
    """The groups of one export."""

    def __init__(
        self, source: SourceCluster, target: SourceCluster, exported: ExportTarget, *, is_repeated: bool
    ) -> None:
        """is_repeated: a later round moves what this one cannot, so no round waits for coordinators that are away for a moment."""
        self._source = source
        self._target = target
        self._exported = exported
        self._is_repeated = is_repeated
        self.copied = GroupsCopied()

    async def move(self, partitions: Sequence[PartitionCopy[ExportedTopic]]) -> None:
        """Move the offsets of all groups in these partitions. Raises `Denied`, `Unavailable` if the source does not list its groups."""
        places = {(item.topic.name, item.index): item for item in partitions}
        round_ = GroupsCopied()
        async with Connections(self._source) as connections, Connections(self._target) as others:
            here, there = self._coordinators(self._source, connections), self._coordinators(self._target, others)
            for name in await source_groups.names(self._source, connections):
                try:
                    found = await here.offsets(name)
                    wanted = self._wanted(found, places)
                    if wanted:
                        await self._write(there, name, wanted)
                        round_.names.append(name)
                except BearlakeError as error:
                    round_.refused[name] = str(error)
        self.copied = round_

    def _coordinators(self, cluster: SourceCluster, connections: Connections) -> Coordinators:
        return Coordinators(cluster, connections, wait_ms=0 if self._is_repeated else cluster.settings.timeout_ms)

    def _wanted(
        self, found: Mapping[Place, CommittedOffset], places: Mapping[Place, PartitionCopy[ExportedTopic]]
    ) -> dict[Place, CommittedOffset]:
        wanted: dict[Place, CommittedOffset] = {}
        for place, committed in found.items():
            copy = places.get(place)
            if copy is None or committed.offset > copy.end:
                continue
            account = self._exported.ledger.accounts[place]
            offset = account.runs.target_of(committed.offset, copy.view.parts[place[1]].target_next)
            if offset is None and account.runs.dropped:
                raise Unavailable(
                    f"offset {committed.offset} of topic {place[0]!r}, partition {place[1]}, is older than the runs in memory "
                    "(exports.target.runs_in_memory_max)"
                )
            if offset is None:  # nothing was exported, and the source has nothing: the group is at the end
                offset = copy.view.parts[place[1]].target_next
            wanted[place] = CommittedOffset(offset=offset, metadata=committed.metadata)
        return wanted

    async def _write(self, coordinators: Coordinators, name: str, wanted: Mapping[Place, CommittedOffset]) -> None:
        present = await coordinators.offsets(name)
        topics: dict[str, list[messages.OffsetCommitRequest.Partition]] = {}
        kind = messages.OffsetCommitRequest
        for (topic, index), committed in wanted.items():
            if (topic, index) in present and present[topic, index].offset >= committed.offset:
                continue
            topics.setdefault(topic, []).append(
                kind.Partition(
                    partition_index=index, committed_offset=committed.offset, committed_metadata=committed.metadata
                )
            )
        if not topics:
            return
        request = kind(
            group_id=name,
            member_id="",
            topics=[kind.Topic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
        )

        def check_answer(answer: Any) -> None:
            for item in answer.topics:
                for partition in item.partitions:
                    what = f"the offset of group {name!r} in topic {item.name!r}, partition {partition.partition_index}"
                    check(partition.error_code, what, self._target.settings.PEER)

        await coordinators.ask(name, request, newest=_COMMIT_NEWEST, check_answer=check_answer)
