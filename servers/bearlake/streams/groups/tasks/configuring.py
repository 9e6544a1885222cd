"""How many tasks a topology has, and the topics that it needs: their partition counts follow from the topics that exist.

A repartition topic without a count of its own has as many partitions as the largest topic that its writers read. If it is copartitioned, it
has as many as the others. A changelog has a partition for each task of its subtopology.

Pure functions. Source: KIP-1071; Apache Kafka 4.3, InternalTopicManager (rules and texts).
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.tasks.topology import InternalTopic, Subtopology, Topology, listed

AT_ONCE_MAX = 2_000
"""Size of a topology that is looked at on the event loop: about 5 ms."""

CountOf = Callable[[str], int | None]
"""Returns the partition count of a topic, None if it does not exist."""


class StatusCode(IntEnum):
    """What the coordinator tells members about the group; the values are Kafka's."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """A status, and a text for people."""

    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A topology over the topics that exist."""

    task_counts: Mapping[str, int] = field(default_factory=dict)
    """Tasks by subtopology; empty while sources are missing or wrongly partitioned."""
    internal: Mapping[str, int] = field(default_factory=dict)
    """Partition counts of internal topics by name."""
    missing: Sequence[InternalTopic] = ()
    """The internal topics to create, with their partition counts."""
    problem: Status | None = None
    """Why tasks cannot be assigned."""

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _Mispartitioned(Exception):
    """Topics have partition counts that do not fit together."""


def check(topology: Topology) -> None:
    """Raise `GroupRefusal` (INVALID_TOPOLOGY) unless partition counts can follow from any topics that exist."""
    internal = {topic.name for topic in topology.internal()}
    try:
        _counts(topology, lambda name: None if name in internal else 1)
    except _Mispartitioned:
        return  # counts that the topology fixes may fit to those of other topics


def configure(topology: Topology, count_of: CountOf, task_count_max: int) -> Configured:
    """Return what follows from the topics that exist; `topology` has passed `check`."""
    internal = {topic.name: topic for topic in topology.internal()}
    absent = {
        name for subtopology in topology.subtopologies for name in subtopology.sources if count_of(name) is None
    } - internal.keys()
    if absent:
        return _failed(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {listed(absent)} are missing.")
    try:
        counts = _counts(topology, count_of)
        for name in sorted(internal):
            found = count_of(name)
            if found is not None and found != counts[name]:
                raise _Mispartitioned(
                    f"Existing topic {name} has different number of partitions: expected {counts[name]}, found {found}"
                )
    except _Mispartitioned as error:
        return _failed(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(error))
    tasks = {item.subtopology_id: _task_count(item, count_of, counts) for item in topology.subtopologies}
    if sum(tasks.values()) > task_count_max:
        text = f"The topology has {sum(tasks.values())} tasks, the limit is {task_count_max}."
        return _failed(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, text)
    missing = [
        topic._replace(partition_count=counts[name])
        for name, topic in sorted(internal.items())
        if count_of(name) is None
    ]
    configured = Configured(task_counts=tasks, internal={name: counts[name] for name in internal}, missing=missing)
    if not missing:
        return configured
    text = f"Internal topics are missing: [{listed({topic.name for topic in missing})}]"
    return replace(configured, problem=Status(StatusCode.MISSING_INTERNAL_TOPICS, text))


def _failed(code: StatusCode, text: str) -> Configured:
    return Configured(problem=Status(code, text))


def _counts(topology: Topology, count_of: CountOf) -> dict[str, int]:
    """Return the partition counts that internal topics should have."""
    counts = _repartitioned(topology, count_of)

    def current(name: str) -> int:
        found = count_of(name)
        if found is None:
            found = counts.get(name)
        if found is None:
            raise GroupRefusal(Problem.INVALID_TOPOLOGY, f"Number of partitions is not set for topic: {name}")
        return found

    fixed = {
        topic.name
        for subtopology in topology.subtopologies
        for topic in subtopology.repartition_sources
        if topic.partition_count
    }
    for subtopology in topology.subtopologies:
        for names in subtopology.copartitioned:
            _align(names, counts, fixed, current)
    for subtopology in topology.subtopologies:
        inputs = subtopology.inputs()
        if not inputs:
            text = f"No source topics found for subtopology {subtopology.subtopology_id}"
            raise GroupRefusal(Problem.INVALID_TOPOLOGY, text)
        largest = max(map(current, inputs))
        counts.update((topic.name, largest) for topic in subtopology.own_changelogs())
    return counts


def _repartitioned(topology: Topology, count_of: CountOf) -> dict[str, int]:
    """Return the counts of repartition topics: those that the topology fixes, and those that follow from what their writers read."""
    counts = {
        topic.name: topic.partition_count
        for subtopology in topology.subtopologies
        for topic in subtopology.repartition_sources
        if topic.partition_count
    }
    writers = [item for item in topology.subtopologies if item.repartition_sinks]
    _set_all_sinks(writers, counts, count_of)
    if any(name not in counts for item in writers for name in item.repartition_sinks):
        raise GroupRefusal(
            Problem.INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that cannot be"
            " resolved.",
        )
    for subtopology in topology.subtopologies:
        if any(topic.name not in counts for topic in subtopology.repartition_sources):
            raise GroupRefusal(
                Problem.INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never used"
                " as a sink topic.",
            )
    return counts


def _set_all_sinks(writers: Sequence[Subtopology], counts: dict[str, int], count_of: CountOf) -> None:
    """Set the counts of the topics that subtopologies write, as far as they follow.

    The result is that of rounds over all writers in their order, until a round finds nothing: the order decides which sources of a writer
    are known when its turn comes. A writer is looked at only when one of its sources is known, so the work grows with the topology alone.
    """
    readers: dict[str, list[int]] = {}
    for index, item in enumerate(writers):
        for topic in item.repartition_sources:
            readers.setdefault(topic.name, []).append(index)
    turns = [(0, index) for index in range(len(writers))]  # round and writer; a sorted list is a heap
    is_done = [False] * len(writers)
    while turns:
        turn, index = heapq.heappop(turns)
        if is_done[index] or not _set_sinks(writers[index], counts, count_of):
            continue
        is_done[index] = True
        for name in writers[index].repartition_sinks:
            for reader in readers.pop(name, ()):
                heapq.heappush(turns, (turn if reader > index else turn + 1, reader))


def _set_sinks(subtopology: Subtopology, counts: dict[str, int], count_of: CountOf) -> bool:
    """Set the counts of the topics that a subtopology writes; returns whether one of its sources is known."""
    known = [counts[topic.name] for topic in subtopology.repartition_sources if topic.name in counts]
    known += [count for name in subtopology.sources if (count := count_of(name)) is not None]
    if not known:
        return False
    largest = max(known)
    for name in subtopology.repartition_sinks:
        counts.setdefault(name, largest)
    return True


def _align(names: Sequence[str], counts: dict[str, int], fixed: set[str], current: Callable[[str], int]) -> None:
    """Give the repartition topics among copartitioned topics the count of the others. Raises `_Mispartitioned`."""
    flexible = [name for name in names if name in counts]
    others = {name: current(name) for name in names if name not in counts}
    leading = others or {name: counts[name] for name in names if name in fixed}
    if len(set(leading.values())) > 1:
        shown = ", ".join(f"{name}={count}" for name, count in sorted(leading.items()))
        raise _Mispartitioned(f"Following topics do not have the same number of partitions: [{{{shown}}}]")
    if not names:
        return
    count = next(iter(leading.values())) if leading else max(map(current, flexible))
    for name in flexible:
        if name in fixed and counts[name] != count:
            raise _Mispartitioned(
                f"Number of partitions [{counts[name]}] of repartition topic [{name}] doesn't match number of partitions [{count}] of the"
                " source topic."
            )
        counts[name] = count


def _task_count(subtopology: Subtopology, count_of: CountOf, counts: Mapping[str, int]) -> int:
    return max(counts[name] if (count := count_of(name)) is None else count for name in subtopology.inputs())
