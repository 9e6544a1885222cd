"""Which partitions each application can answer queries about, for the members of a streams group (interactive queries).

Source: KIP-1071, PartitionsByUserEndpoint: the partitions of the topics that a task reads stand for the task.
"""

from collections.abc import Iterable

from bearlake.streams.groups.tasks.model import EndpointPartitions, StreamsGroup, TaskId


def endpoints_of(group: StreamsGroup) -> list[EndpointPartitions]:
    """Return the endpoints of all members that have one, each with the partitions of its member's tasks."""
    return [
        EndpointPartitions(member.endpoint, partitions_of(group, member.active), partitions_of(group, member.standby))
        for member in group.members.values()
        if member.endpoint is not None
    ]


def partitions_of(group: StreamsGroup, tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """Return the indexes of the partitions that tasks read, by topic."""
    inputs = (
        {} if group.topology is None else {item.subtopology_id: item.inputs() for item in group.topology.subtopologies}
    )
    found: dict[str, list[int]] = {}
    for task in sorted(tasks):
        for name in inputs.get(task.subtopology_id, ()):
            topic = group.topics.get(name)
            if topic is not None and task.partition < topic.partition_count:
                found.setdefault(name, []).append(task.partition)
    return found
