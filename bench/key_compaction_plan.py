"""Random plans for `key_compaction_transactions.py`, and a model of what a log has after them: the oracle of the comparison."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

KEY_COUNT = 30
NAMES = (None, None, "copier-1", "copier-2", "copier-3")
"""Transactional ids of a plan's producers; None: without transactions."""
ROLL_MS = 5_000
"""Distance of the record that rolls Kafka's active segment (`segment.ms`)."""


class Sent(NamedTuple):
    """A record."""

    key: bytes
    value: bytes | None
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send a batch; in the transaction of `name`, which it may begin."""

    name: str | None
    batch: Sequence[Sent]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the transaction of `name`."""

    name: str
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Stop the server, or kill it, and start it again."""

    is_kill: bool


Step = Send | End | Restart
Found = set[tuple[int, bytes, bytes | None]]
"""(offset, key, value) of records."""


@dataclass
class Model:
    """What the log has: the oracle, and the source of random plans."""

    randomness: random.Random
    now_ms: int
    end: int = 0
    committed: dict[int, Sent] = field(default_factory=dict)
    open: dict[str, dict[int, Sent]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def phase(self, number: int) -> Iterator[Step]:
        """Yield random steps, each of which is in the model by then; at the end the record that rolls Kafka's segment."""
        restart_at = self.randomness.randrange(5, 25)
        for at in range(30):
            if at == restart_at:
                self._count("restart")
                yield Restart(is_kill=self.randomness.random() < 0.5)
            name = self.randomness.choice(NAMES)
            if name in self.open and self.randomness.random() < 0.5:
                yield self._end(name, is_commit=self.randomness.random() < 0.6)
            else:
                yield self._send(name, [self._record() for _ in range(self.randomness.randrange(1, 12))])
        if number % 2:
            yield from self._ends()
        yield self._roll(number)

    def last_phase(self, number: int) -> Iterator[Step]:
        """Yield the ends of all open transactions, and a record that rolls Kafka's segment."""
        yield from self._ends()
        yield self._roll(number)

    def stable_end(self, end: int) -> int:
        """Return the last stable offset, or `end` if that is less."""
        return min([end, *(min(records) for records in self.open.values())])

    def left(self, bound: int) -> Found:
        """Return the newest committed record of each key below `bound`."""
        newest = {sent.key: offset for offset, sent in sorted(self.committed.items()) if offset < bound}
        return {(offset, key, self.committed[offset].value) for key, offset in newest.items()}

    def below(self, bound: int) -> Found:
        """Return all committed records below `bound`."""
        return {(offset, sent.key, sent.value) for offset, sent in self.committed.items() if offset < bound}

    def _ends(self) -> Iterator[Step]:
        for name in list(self.open):
            yield self._end(name, is_commit=self.randomness.random() < 0.5)

    def _roll(self, number: int) -> Send:
        self.now_ms += ROLL_MS
        return self._send(None, [Sent(b"roll-%d" % number, b"", self.now_ms)])

    def _record(self) -> Sent:
        self.now_ms += 1
        key = b"k%d" % self.randomness.randrange(KEY_COUNT)
        is_tombstone = self.randomness.random() < 0.25
        return Sent(key, None if is_tombstone else self.randomness.randbytes(20), self.now_ms)

    def _send(self, name: str | None, batch: Sequence[Sent]) -> Send:
        records = self.committed if name is None else self.open.setdefault(name, {})
        records.update({self.end + at: sent for at, sent in enumerate(batch)})
        self.end += len(batch)
        self._count("batch")
        return Send(name=name, batch=batch)

    def _end(self, name: str, *, is_commit: bool) -> End:
        records = self.open.pop(name)
        if is_commit:
            self.committed.update(records)
        self.end += 1
        self._count("commit" if is_commit else "abort")
        return End(name=name, is_commit=is_commit)

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
