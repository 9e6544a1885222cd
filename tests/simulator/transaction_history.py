"""The judgement of transactions in the words of their clients: only what producers were told, and what readers of committed records got.

- All records of a committed transaction are there: once, and in the order in which the producer sent them.
- No record of an aborted transaction, or of one that nobody tried to commit, is ever read.
- If the producer does not know whether it committed, all records are there, or none.
- What was read once stays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from bearlake import kernel
from bearlake.metadata.model import PartitionKey
from bearlake.records import codec as record_codec

BYTES_MAX = 1 << 20


class Outcome(Enum):
    """What a producer knows of its transaction."""

    NOTHING_COMMITTED = auto()
    """It aborted, or the producer never tried to commit it, or the commit was refused."""
    COMMITTED = auto()
    UNKNOWN = auto()
    """The producer tried to commit, and does not know the outcome."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A transaction as its producer sees it."""

    producer: str
    values: dict[PartitionKey, list[bytes]] = field(default_factory=dict)
    """The records that the producer was told are stored, in the order in which it sent them."""
    lost: list[bytes] = field(default_factory=list)
    """Records of batches without an answer, or that were refused. They may be stored, and belong to this transaction or to none."""
    outcome: Outcome = Outcome.NOTHING_COMMITTED
    is_read: bool = False


class TransactionHistory:
    """All transactions of a run, and all reads of committed records."""

    def __init__(self, fail: Callable[[str], None], start_of: Callable[[PartitionKey], int]) -> None:
        """`start_of`: the start offset of a partition; what a trim removed is not missed."""
        self._fail = fail
        self._start_of = start_of
        self._attempts: list[Attempt] = []
        self._of_value: dict[bytes, Attempt] = {}
        self._final: dict[PartitionKey, list[bytes]] = {}

    def begins(self, producer: str) -> Attempt:
        """A producer begins a transaction."""
        attempt = Attempt(producer)
        self._attempts.append(attempt)
        return attempt

    def sends(self, attempt: Attempt, batch: bytes) -> list[bytes]:
        """A producer sends a batch in its transaction; returns its values, which are unique."""
        values = [record.value or b"" for record in record_codec.decode(batch, BYTES_MAX)]
        for value in values:
            self._of_value[value] = attempt
        return values

    def reads(self, views: Sequence[memoryview]) -> list[bytes]:
        """A reader of committed records got these batches; returns the values of transactions."""
        found: list[bytes] = []
        if not self._of_value:  # without transactions, records may be undecodable on purpose
            return found
        for view in views:
            for position, _, header in kernel.batches(view, 0, len(view)):
                if header.record_count == 0:
                    continue
                for record in record_codec.decode(view[position : position + header.length], BYTES_MAX):
                    if (attempt := self._of_value.get(record.value or b"")) is not None:
                        attempt.is_read = True
                        found.append(record.value or b"")
        return found

    def reads_at_the_end(self, key: PartitionKey, views: Sequence[memoryview]) -> None:
        """A part of a complete read of a partition, in order."""
        self._final.setdefault(key, []).extend(self.reads(views))

    def starts_over(self, key: PartitionKey) -> None:
        """A complete read of the partition begins."""
        self._final[key] = []

    def counts(self) -> dict[str, int]:
        """Transactions by what their producers know."""
        outcomes = [attempt.outcome for attempt in self._attempts]
        return {f"transaction {kind.name}": outcomes.count(kind) for kind in Outcome}

    def check(self) -> None:
        """Judge all transactions, after complete reads of all partitions."""
        places = {key: {value: at for at, value in enumerate(values)} for key, values in self._final.items()}
        for key, values in self._final.items():
            if len(places[key]) < len(values):
                self._fail(f"a record of a transaction is read twice from {key}")
        newest: dict[tuple[str, PartitionKey], int] = {}
        for attempt in self._attempts:
            checked = {key: values for key, values in attempt.values.items() if self._start_of(key) == 0}
            found = [
                place
                for key, values in checked.items()
                for value in values
                if (place := places[key].get(value)) is not None
            ]
            count = sum(map(len, checked.values()))
            if attempt.outcome is Outcome.NOTHING_COMMITTED and (found or attempt.is_read):
                self._fail(f"records of a transaction of {attempt.producer} are read that it did not commit")
            if attempt.outcome is Outcome.COMMITTED and len(found) < count:
                self._fail(f"{count - len(found)} of {count} records of a committed transaction are missing")
            if len(found) not in (0, count) or (attempt.is_read and count and not found):
                self._fail(f"{len(found)} of {count} records of a transaction of {attempt.producer} are read")
            if found and any(value in place for value in attempt.lost for place in places.values()):
                self._fail("a batch is read whose producer committed without it")
            for key, values in checked.items() if found else ():
                for value in values:
                    place = places[key][value]
                    if place < newest.get((attempt.producer, key), -1):
                        self._fail(f"records of {attempt.producer} are out of order in {key}")
                    newest[attempt.producer, key] = place
