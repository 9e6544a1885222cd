"""Run the checks over a whole history: split it by subject, and check each subject alone.

A subject is a partition, a group, a committed offset, a topic, or all transactions.

`check` takes operations in memory. `check_files` first distributes the operations of files over buckets on disk, so that only one bucket
(about 1/64 of the history, or its largest partition) is in memory at a time.
"""

import marshal
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from simulator.history.format import decode_call
from simulator.history.groups import check_group
from simulator.history.log import check_partition
from simulator.history.model import Call, OfGroup, OfOffset, OfTopic, OfTransactions, Operation
from simulator.history.promises import Violation
from simulator.history.reader import Events, read_events
from simulator.history.registers import check_offsets, check_topics
from simulator.history.transactions import check_transactions

BUCKET_COUNT = 64

Subject = tuple[str, ...]
TRANSACTIONS: Subject = ("transactions",)
"""All transactional topics: one topic may have copies of the records of another. `check_transactions` counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The strictness of the checks."""

    is_strict: bool = False
    """An operation that its client gave up cannot take effect after the client's next acknowledged operation."""
    slack: int = 0
    """Accepted overlap of assignments, in units of the history's clock."""


DEFAULT = Options()


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Counts of the checked operations, and the violations."""

    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        text = ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()))
        broken = Counter(violation.promise.name for violation in self.violations)
        found = ", ".join(f"{name} {count}" for name, count in sorted(broken.items())) or "every promise was kept"
        return f"{text}\n{found}"


def check(operations: Iterable[Operation], options: Options = DEFAULT) -> Verdict:
    """Check operations in memory, in any order."""
    verdict = Verdict()
    _check_all(operations, options, verdict)
    return verdict


def check_files(paths: Sequence[Path], options: Options = DEFAULT) -> Verdict:
    """Check the history in these files. Raises `Malformed`."""
    verdict = Verdict()
    with tempfile.TemporaryDirectory(prefix="history-") as folder, ExitStack() as closing:
        buckets = [closing.enter_context((Path(folder) / str(number)).open("w+b")) for number in range(BUCKET_COUNT)]
        for events in read_events(paths):
            subject = _subject(decode_call(events.begun))
            marshal.dump(tuple(events), buckets[zlib.crc32(repr(subject).encode()) % BUCKET_COUNT])
        for bucket in buckets:
            bucket.seek(0)
            _check_all(_spooled(bucket), options, verdict)
    return verdict


def _spooled(bucket: BinaryIO) -> Iterator[Operation]:
    while True:
        try:
            yield Events(*marshal.load(bucket)).operation()  # noqa: S302 - written by this process
        except EOFError:
            return


def _check_all(operations: Iterable[Operation], options: Options, verdict: Verdict) -> None:
    subjects: dict[Subject, list[Operation]] = defaultdict(list)
    for operation in operations:
        subjects[_subject(operation.call)].append(operation)
    for subject in sorted(subjects):
        found = subjects.pop(subject)
        verdict.counts["operations"] += len(found)
        if subject != TRANSACTIONS:
            verdict.counts[subject[0]] += 1
        verdict.violations += _check(subject, found, options, verdict.counts)


def _subject(call: Call) -> Subject:
    if isinstance(call, OfGroup):
        return "groups", call.group
    if isinstance(call, OfOffset):
        return "offsets", call.group, call.log.topic, str(call.log.partition), call.log.incarnation
    if isinstance(call, OfTopic):
        return "topics", call.topic
    if isinstance(call, OfTransactions):
        return TRANSACTIONS
    return "partitions", call.log.topic, str(call.log.partition)


def _check(
    subject: Subject, operations: Sequence[Operation], options: Options, counts: Counter[str]
) -> Iterator[Violation]:
    kind = subject[0]
    if kind == "groups":
        return check_group(operations, slack=options.slack)
    if kind == "offsets":
        return check_offsets(operations, is_strict=options.is_strict)
    if kind == "topics":
        return check_topics(operations, is_strict=options.is_strict)
    if subject == TRANSACTIONS:
        return check_transactions(operations, counts)
    return check_partition(operations, counts)
