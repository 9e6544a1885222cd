"""Which partitions each application can answer queries about, for the members of a streams group (interactive queries).

Source: KIP-1071, PartitionsByUserEndpoint: the partitions of the topics that a task reads stand for the task.
"""

from collections.abc import Iterable, Sequence

from bearlake.streams.groups.tasks.model import EndpointPartitions, StreamsGroup, TaskId


def endpoints_of(group: StreamsGroup) -> Sequence[EndpointPartitions]:
    """Return the endpoints of all members that have one, each with the partitions of its member's tasks.

    All members ask after each change: the answer is kept for the group's `endpoint_epoch`.
    """
    state = group.endpoint_epoch, group.topics
    if group.endpoints is None or group.endpoints[0] != state:
        group.endpoints = state, _endpoints(group)
    return group.endpoints[1]


def _endpoints(group: StreamsGroup) -> Sequence[EndpointPartitions]:
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
