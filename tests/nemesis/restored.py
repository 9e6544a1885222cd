"""Checks what a backup has brought back, by the histories of all clients. Pure: no stores, no clock.

A backup is one moment of the lost deployment, between its begin and its end. So a record that was acknowledged before the backup began is
there, a record that was sent after it ended is not, batches and transactions are there as a whole or not at all, and there is one moment
for all topics: if a record is there, then everything is that was acknowledged before this record was sent. `drill.py` also records its
reads as those of a client during the backup, so the promises of `simulator.history` hold for them too.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from simulator.history.copies import COPY
from simulator.history.model import Operation, Outcome, Produce, Take, Transact

Place = tuple[str, int]
"""A topic and a partition."""
SHOWN = 2


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What a restored deployment has, before anything new was written. Times are those of the histories."""

    begun: int
    ended: int
    """Of the backup."""
    records: Mapping[Place, Sequence[tuple[int, str, str]]]
    """Offset, id and digest of all records of ordinary topics, by partition."""
    committed: Mapping[Place, Sequence[tuple[int, str, str]]]
    """The same of transactional topics, as readers of committed records get them."""


def copied(restored: Restored, source: str, target: str, offsets: Mapping[int, int]) -> list[str]:
    """Return the partitions whose copies are not those of the records below the copiers' committed offsets."""
    found = []
    for partition, end in sorted(offsets.items()):
        due = [name for offset, name, _ in restored.committed[source, partition] if offset < end]
        got = [name.partition(COPY)[0] for _, name, _ in restored.committed[target, partition]]
        if due != got:
            found.append(
                f"{target}/{partition} has {len(got)} copies, {len(due)} records were copied below offset {end}"
            )
    return found


def shared(operations: Iterable[Operation], restored: Restored, given: Mapping[Place, Collection[int]]) -> list[str]:
    """Return what contradicts the state of a share group, whose new members were `given` these offsets after the restore.

    A record whose acceptance was stored before the backup began is done. A record that no member had taken when the backup ended is given.
    """
    done: dict[Place, set[int]] = {}
    taken: dict[Place, set[int]] = {}
    for operation in operations:
        if isinstance(call := operation.call, Take):
            place = (call.log.topic, call.log.partition)
            if operation.is_ok and operation.returned < restored.begun:
                done.setdefault(place, set()).update(call.offsets)
            if operation.start <= restored.ended:
                taken.setdefault(place, set()).update(call.offsets)
    found = []
    for place, offsets in sorted(given.items()):
        if again := sorted(done.get(place, set()).intersection(offsets)):
            found.append(
                f"{place[0]}/{place[1]}: a share group is given {len(again)} records again, as offset {again[0]}"
            )
    for place, records in sorted(restored.records.items()):
        left = {offset for offset, _, _ in records}.difference(taken.get(place, ()), given.get(place, ()))
        if place in given.keys() | taken.keys() and left:
            found.append(f"{place[0]}/{place[1]}: a share group never gets {len(left)} records, as offset {min(left)}")
    return found


def problems(operations: Iterable[Operation], restored: Restored) -> list[str]:
    """Return what contradicts the promises of a backup: a sentence per kind, with its number and examples."""
    check = _Check(restored)
    for operation in operations:
        check.add(operation)
    return check.found()


@dataclass
class _Content:
    """The records of one partition."""

    offsets: dict[str, list[int]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


class _Check:
    def __init__(self, restored: Restored) -> None:
        self._restored = restored
        self._content: dict[Place, _Content] = {}
        for place, records in (*restored.records.items(), *restored.committed.items()):
            content = self._content[place] = _Content()
            for offset, name, digest in records:
                content.offsets.setdefault(name, []).append(offset)
                content.digests[name] = digest
        self._problems: dict[str, list[str]] = {}
        self._newest_there: tuple[int, str] = (-1, "")
        """When it was sent."""
        self._oldest_lost: tuple[int, str] | None = None
        """When it was acknowledged."""

    def add(self, operation: Operation) -> None:
        """Check one operation."""
        call = operation.call
        if isinstance(call, Produce):
            place = (call.log.topic, call.log.partition)
            self._written(operation, [(place, record.id) for record in call.records])
            self._compare(operation, call, place)
        elif isinstance(call, Transact):
            self._written(operation, [((call.topic, partition), name) for partition, name in call.writes])

    def _written(self, operation: Operation, writes: Sequence[tuple[Place, str]]) -> None:
        known = [(place, name) for place, name in writes if place in self._content]
        if not known:
            return
        name = known[0][1]
        lost = [name for place, name in known if name not in self._content[place].offsets]
        if lost and len(lost) < len(known):
            self._note("are there without the rest of their batch or transaction", name)
        if operation.is_ok and lost and operation.returned < self._restored.begun:
            self._note("were acknowledged before the backup began and are lost", lost[0])
        if len(lost) < len(known):
            if operation.outcome is Outcome.FAIL:
                self._note("were refused or aborted and are there", name)
            if operation.start > self._restored.ended:
                self._note("were sent after the backup had ended and are there", name)
            self._newest_there = max(self._newest_there, (operation.start, name))
        elif operation.is_ok:
            self._oldest_lost = min(self._oldest_lost or (operation.returned, name), (operation.returned, name))

    def _compare(self, operation: Operation, call: Produce, place: Place) -> None:
        """Compare offsets and bytes with those of the acknowledgement."""
        content = self._content.get(place)
        base = operation.answer.offset if operation.is_ok else None
        for at, record in enumerate(call.records):
            if content is None or record.id not in content.offsets:
                continue
            if base is not None and base >= 0 and base + at not in content.offsets[record.id]:
                self._note("are at another offset than was acknowledged", record.id)
            if record.digest and content.digests[record.id] and record.digest != content.digests[record.id]:
                self._note("have other bytes than were sent", record.id)

    def _note(self, what: str, name: str) -> None:
        self._problems.setdefault(what, []).append(name)

    def found(self) -> list[str]:
        """Return the problems of all operations."""
        found = [
            f"{len(names)} records {what}: {', '.join(names[:SHOWN])}" for what, names in sorted(self._problems.items())
        ]
        if self._oldest_lost is not None and self._oldest_lost[0] < self._newest_there[0]:
            found.append(
                f"the backup is not one moment: {self._oldest_lost[1]} was acknowledged before {self._newest_there[1]} was sent,"
                " which is there alone"
            )
        return found
