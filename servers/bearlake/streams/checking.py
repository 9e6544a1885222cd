"""Checks the records of batches that clients encoded: decompresses them, and looks at every record.

A batch that cannot be read would stop its partition's consumers for good, so every batch is checked unless the stream says otherwise
(`record.validation=header`). A small batch is checked at once, on the event loop, within a budget per turn of the loop. A larger one is
checked by a thread, which leaves the interpreter's lock free while it decompresses. Both are bounded in memory: see `CheckSettings`.

Source: Apache Kafka, LogValidator (validates the records of every batch, compressed or not).
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import chain
from typing import ParamSpec, TypeVar

from bearlake import kernel
from bearlake.errors import BearlakeError, Invalid, TooLarge
from bearlake.objects import Buffer
from bearlake.records import codec as record_codec
from bearlake.records.batch import COMPRESSION_MASK
from bearlake.records.compression import Scratch
from bearlake.streams.configs import StreamRules
from bearlake.streams.turns import TurnBudget

P = ParamSpec("P")
T = TypeVar("T")

_AT_ONCE_BATCH_BYTES_MAX = 64 * 1024
"""Larger batches are always checked by a thread."""
_SCRATCH = Scratch()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """How records of batches that clients encoded are checked."""

    uncompressed_bytes_max: int = field(default=64 * 1024 * 1024, metadata={"min": 1024 * 1024})
    """Largest uncompressed size of a batch; a larger batch is refused. Each thread may hold this much."""
    thread_count: int = field(default=2, metadata={"min": 1})
    """Threads that check large batches, decode and encode large bodies of gRPC and REST, and decompress large Pulsar entries."""
    loop_bytes_max: int = field(default=1024 * 1024, metadata={"min": 0})
    """Uncompressed bytes that are checked, or read for Pulsar clients, on the event loop per turn. A larger budget
    costs other clients latency, a smaller budget needs more switches to threads."""


class BadRecord(Invalid):
    """Records of the batch are malformed or break the stream's rules; `indexes` lists them for the client."""

    def __init__(self, indexes: Sequence[int], reason: str) -> None:
        super().__init__(reason)
        self.indexes = indexes


class Checked(IntEnum):
    """What is known of a batch that is admitted."""

    NOTHING = 0
    """A client encoded the batch."""
    RECORDS = 1
    """Its records are good: this server encoded the batch."""
    ALL = 2
    """Its records are good, and they have keys if the stream requires keys."""


def needs_check(rules: StreamRules, known: Checked) -> bool:
    """Whether the records must be looked at."""
    return (rules.requires_keys and known < Checked.ALL) or (rules.validates_records and known < Checked.RECORDS)


def check_records(batch: Buffer, rules: StreamRules, known: Checked, bytes_max: int) -> int:
    """Decompress the batch and check every record, and that keys exist where key compaction needs them.

    Returns the uncompressed size in bytes.

    Raises:
        BadRecord: a record is malformed, or has no key although `cleanup.policy` contains `compact`.
        TooLarge: the batch decompresses to more than `bytes_max`.
        Corrupt: the compressed bytes are damaged, or in a form that Kafka's Java client does not read.
    """
    if (
        known < Checked.RECORDS
        and not rules.requires_keys
        and (size_bytes := kernel.check_batch(batch, bytes_max)) >= 0
    ):
        return size_bytes
    opened = record_codec.Opened(batch, bytes_max, _SCRATCH)
    if known < Checked.RECORDS:
        opened.refuse_unusual()
        if (bad := opened.first_bad_record()) >= 0:
            raise BadRecord([bad], f"record {bad} of the batch is malformed")
    if rules.requires_keys:
        records = chain.from_iterable(opened.parts())
        keyless = [position for position, record in enumerate(records) if record[2] is None]
        if keyless:
            raise BadRecord(
                keyless, "Compacted topic cannot accept message without key."
            )  # Kafka: LogValidator.validateKey
    return opened.size_bytes


class Checks:
    """Checks batches for one server. Use it from the event loop's thread only."""

    def __init__(self, settings: CheckSettings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(settings.thread_count, thread_name_prefix="check-records")
        self.budget = TurnBudget(settings.loop_bytes_max)
        """Uncompressed bytes of batches that may be checked and read on the event loop."""

    def close(self) -> None:
        """Shut down without waiting; pending results are discarded."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def at_once(self, batch: Buffer, attributes: int, rules: StreamRules, known: Checked) -> BearlakeError | bool:
        """Check a batch now if that is little work.

        Returns True if the batch is good, False if it must go to `check`, or the error for its producer. `attributes` are the batch's.
        """
        if not needs_check(rules, known):
            return True
        is_light = not attributes & COMPRESSION_MASK and not rules.requires_keys
        if is_light:
            return self._outcome(batch, rules, known)
        budget = self.budget
        if len(batch) > _AT_ONCE_BATCH_BYTES_MAX or budget.left <= 0:
            return False
        bytes_max = min(budget.left, self._settings.uncompressed_bytes_max)
        budget.spend(len(batch))
        try:
            budget.spend(check_records(batch, rules, known, bytes_max))
        except TooLarge:
            budget.spend(bytes_max)
            return False
        except BearlakeError as error:
            return error
        return True

    async def check(self, batch: Buffer, attributes: int, rules: StreamRules, known: Checked) -> BearlakeError | None:
        """Check a batch, in a thread if it is much work; returns the error for its producer. `batch` must not change meanwhile."""
        outcome = self.at_once(batch, attributes, rules, known)
        if outcome is False:
            outcome = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._outcome, batch, rules, known
            )
        return None if isinstance(outcome, bool) else outcome

    async def off_loop(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return what `work` returns, or raise what it raises; it runs in a thread of the checks, so it must not use the event loop.

        If the caller is cancelled, work that has begun continues, and its result is discarded. Work waits for a free thread; what it holds
        meanwhile is bounded by the number of requests and the size of each.
        """
        called = partial(work, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, called)

    def _outcome(self, batch: Buffer, rules: StreamRules, known: Checked) -> BearlakeError | bool:
        try:
            check_records(batch, rules, known, self._settings.uncompressed_bytes_max)
        except BearlakeError as error:
            return error
        return True
