"""The assignors of the coordinator: they compute which member should have which partitions.

`uniform`: counts differ by at most one where subscriptions allow it, and members keep what they have. `range`: each topic is divided into
ranges by the order of the members, so that members get the same indexes of all topics with the same subscribers.

Pure functions; members are visited in the order of their instance ids, else member ids. Source: KIP-848, with the names of Apache Kafka.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from bearlake.metadata.model import PartitionKey, stream_number
from bearlake.streams.groups.consumer.model import Topic

UNIFORM = "uniform"
RANGE = "range"

BALANCE_ROUNDS_MAX = 16
"""Rounds of balancing of `uniform` with different subscriptions. Each halves the imbalance or ends the search."""

Assignment = dict[str, frozenset[PartitionKey]]
"""Partitions by member."""


class Subscriber(NamedTuple):
    """A member, for an assignor."""

    member_id: str
    place: str
    """What members are ordered by."""
    streams: frozenset[int]
    """Numbers of the streams that the member subscribes to."""


Assignor = Callable[[Iterable[Subscriber], Mapping[int, Topic], Mapping[str, frozenset[PartitionKey]]], Assignment]
"""Takes the members, the subscribed topics by number, and the present assignment."""


def by_range(
    members: Iterable[Subscriber], topics: Mapping[int, Topic], present: Mapping[str, frozenset[PartitionKey]]
) -> Assignment:
    """Divide each topic into ranges."""
    ordered = sorted(members, key=lambda member: member.place)
    found: dict[str, list[PartitionKey]] = {member.member_id: [] for member in ordered}
    for number, takers in sorted(_takers(ordered).items()):
        topic = topics.get(number)
        if topic is None:
            continue
        size, extra = divmod(topic.partition_count, len(takers))
        keys, start = topic.partitions(), 0
        for place, member in enumerate(takers):
            end = start + size + (place < extra)
            found[member.member_id] += map(PartitionKey, keys[start:end])
            start = end
    return {member_id: frozenset(keys) for member_id, keys in found.items()}


def uniformly(
    members: Iterable[Subscriber], topics: Mapping[int, Topic], present: Mapping[str, frozenset[PartitionKey]]
) -> Assignment:
    """Balance the counts of partitions, moving as few as possible."""
    ordered = sorted(members, key=lambda member: member.place)
    if not ordered:
        return {}
    if all(member.streams == ordered[0].streams for member in ordered):
        return _alike(ordered, topics, present)
    return _different(ordered, topics, present)


def _alike(
    members: list[Subscriber], topics: Mapping[int, Topic], present: Mapping[str, frozenset[PartitionKey]]
) -> Assignment:
    """All members subscribe to the same topics: each gets the quota, and the first that have more keep one more."""
    streams = members[0].streams
    free = {key for number in streams if number in topics for key in map(PartitionKey, topics[number].partitions())}
    quota, extra = divmod(len(free), len(members))
    found: Assignment = {}
    for member in members:
        had = present.get(member.member_id, frozenset())
        keeps = had if had <= free else had & free
        if len(keeps) > quota:
            size = quota + (extra > 0)
            extra -= extra > 0
            if len(keeps) > size:
                keeps = frozenset(sorted(keeps)[:size])
        found[member.member_id] = keeps
        free -= keeps
    left = sorted(free, reverse=True)
    for member in members:
        keeps = found[member.member_id]
        size = quota
        if extra and len(keeps) <= quota:
            size, extra = quota + 1, extra - 1
        if len(keeps) < size:
            found[member.member_id] = keeps.union(left.pop() for _ in range(size - len(keeps)))
    return found


def _different(
    members: list[Subscriber], topics: Mapping[int, Topic], present: Mapping[str, frozenset[PartitionKey]]
) -> Assignment:
    """Members subscribe to different topics: free partitions go to the member with the least, then full members give to others."""
    takers = {number: found for number, found in _takers(members).items() if number in topics}
    found: dict[str, set[PartitionKey]] = {}
    taken: set[PartitionKey] = set()
    for member in members:
        kept = {
            key
            for key in present.get(member.member_id, ())
            if stream_number(key) in member.streams
            and stream_number(key) in takers
            and key in topics[stream_number(key)].partitions()
            and key not in taken
        }
        found[member.member_id] = kept
        taken |= kept
    for number in sorted(takers, key=lambda number: (len(takers[number]), number)):
        free = [key for key in map(PartitionKey, topics[number].partitions()) if key not in taken]
        if free:
            _give(free, takers[number], found)
    for _ in range(BALANCE_ROUNDS_MAX):
        if not any(_balance(number, takers[number], found) for number in sorted(takers)):
            break
    return {member_id: frozenset(keys) for member_id, keys in found.items()}


def _give(free: Iterable[PartitionKey], takers: list[Subscriber], found: Mapping[str, set[PartitionKey]]) -> None:
    heap = [(len(found[member.member_id]), place, member.member_id) for place, member in enumerate(takers)]
    heapq.heapify(heap)
    for key in free:
        count, place, member_id = heap[0]
        found[member_id].add(key)
        heapq.heapreplace(heap, (count + 1, place, member_id))


def _balance(number: int, takers: list[Subscriber], found: Mapping[str, set[PartitionKey]]) -> bool:
    """Move partitions of one topic from the members with most partitions to those with least; returns whether any moved."""
    poor = [(len(found[member.member_id]), place, member.member_id) for place, member in enumerate(takers)]
    rich = sorted(poor, key=lambda item: (-item[0], item[1]))
    heapq.heapify(poor)
    has_moved = False
    for _, _, member_id in rich:
        mine = found[member_id]
        for key in sorted(key for key in mine if stream_number(key) == number):
            count, place, poorest = poor[0]
            if len(mine) - count <= 1 or poorest == member_id:
                break
            mine.remove(key)
            found[poorest].add(key)
            heapq.heapreplace(poor, (count + 1, place, poorest))
            has_moved = True
    return has_moved


def _takers(members: Iterable[Subscriber]) -> dict[int, list[Subscriber]]:
    """Return the subscribers of each stream, in the order of `members`."""
    takers: dict[int, list[Subscriber]] = {}
    for member in members:
        for number in member.streams:
            takers.setdefault(number, []).append(member)
    return takers


BY_NAME: Mapping[str, Assignor] = {UNIFORM: uniformly, RANGE: by_range}
"""All assignors."""
