"""The topology of a streams group, as its members send it: subtopologies, and the topics that connect them.

Names are in no order that means anything, so topologies are kept sorted: members that send the same one in another order agree.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

from bearlake.streams.groups.room import octets_of


class InternalTopic(NamedTuple):
    """A repartition topic or a changelog, which the group creates."""

    name: str
    partition_count: int = 0
    """0: follows from the topics that the subtopology reads."""
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """A part of a topology whose tasks run alone."""

    subtopology_id: str
    sources: tuple[str, ...] = ()
    """Topics that it reads and that exist without the group."""
    repartition_sources: tuple[InternalTopic, ...] = ()
    """Internal topics that it reads."""
    repartition_sinks: tuple[str, ...] = ()
    """Internal topics that it writes for other subtopologies."""
    changelogs: tuple[InternalTopic, ...] = ()
    """Topics with the changes of its state; one of `sources` may serve as such."""
    copartitioned: tuple[tuple[str, ...], ...] = ()
    """Topics that it reads and that must have equal partition counts."""

    def inputs(self) -> list[str]:
        """Return the names of all topics that it reads."""
        return [*self.sources, *(topic.name for topic in self.repartition_sources)]

    def own_changelogs(self) -> list[InternalTopic]:
        """Return the changelogs that are no sources."""
        sources = set(self.sources)
        return [topic for topic in self.changelogs if topic.name not in sources]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state."""
        return bool(self.changelogs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """All subtopologies, sorted by id."""

    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    def size(self) -> int:
        """Count subtopologies, and the topics that they name: work grows with this number."""
        return sum(
            1
            + len(item.sources)
            + len(item.repartition_sources)
            + len(item.repartition_sinks)
            + len(item.changelogs)
            + sum(map(len, item.copartitioned))
            for item in self.subtopologies
        )

    def octets(self) -> int:
        """Return the size (bytes) of all names and configs."""
        return sum(octets_of(_texts(item)) for item in self.subtopologies)

    def required(self) -> set[str]:
        """Return the names of all topics that must exist."""
        names: set[str] = set()
        for subtopology in self.subtopologies:
            names.update(subtopology.inputs())
            names.update(topic.name for topic in subtopology.changelogs)
        return names

    def internal(self) -> Iterator[InternalTopic]:
        """Yield the topics that the group creates; a source that serves as a changelog is not one."""
        for subtopology in self.subtopologies:
            yield from subtopology.repartition_sources
            yield from subtopology.own_changelogs()

    def names(self) -> set[str]:
        """Return the names of all topics that the topology reads or writes."""
        return self.required().union(*(subtopology.repartition_sinks for subtopology in self.subtopologies))


def _texts(item: Subtopology) -> Iterator[str]:
    yield item.subtopology_id
    yield from item.sources
    yield from item.repartition_sinks
    for topic in (*item.repartition_sources, *item.changelogs):
        yield topic.name
        for key, value in topic.configs:
            yield key
            yield value
    for names in item.copartitioned:
        yield from names


def pack(topology: Topology) -> Mapping[str, object]:
    """Return the topology as a JSON object."""
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "id": item.subtopology_id,
                "sources": item.sources,
                "repartition_sources": item.repartition_sources,
                "repartition_sinks": item.repartition_sinks,
                "changelogs": item.changelogs,
                "copartitioned": item.copartitioned,
            }
            for item in topology.subtopologies
        ],
    }


def unpack(values: Mapping[str, Any]) -> Topology:
    """Return the topology of a JSON object. Raises `KeyError`, `TypeError`, `ValueError`."""
    return Topology(
        epoch=values["epoch"],
        subtopologies=tuple(
            Subtopology(
                subtopology_id=item["id"],
                sources=tuple(item["sources"]),
                repartition_sources=_topics(item["repartition_sources"]),
                repartition_sinks=tuple(item["repartition_sinks"]),
                changelogs=_topics(item["changelogs"]),
                copartitioned=tuple(map(tuple, item["copartitioned"])),
            )
            for item in values["subtopologies"]
        ),
    )


def _topics(items: Sequence[Any]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(name, count, replicas, tuple((key, value) for key, value in configs))
        for name, count, replicas, configs in items
    )


def listed(names: AbstractSet[str], limit: int = 20) -> str:
    """Return names for a text that clients show, in order; more than `limit` are counted only."""
    shown = ", ".join(sorted(names)[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
