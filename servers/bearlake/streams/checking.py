"""Checks the records of batches that clients encoded: decompresses them, and looks at every record.

A batch that cannot be read would stop its partition's consumers for good, so every batch is checked unless the stream says otherwise
(`record.validation=header`). A small batch is checked at once, on the event loop, within a budget per turn of the loop. A larger one is
checked by a thread, which leaves the interpreter's lock free while it decompresses. Both are bounded in memory: see `CheckSettings`.
If the stream asks for it, keys and values are also validated by their schemas (`validation/`), which may need a look-up.

Source: Apache Kafka, LogValidator (validates the records of every batch, compressed or not).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from bearlake import kernel
from bearlake.errors import BearlakeError, Invalid, TooLarge
from bearlake.late import Late
from bearlake.metadata.schemas import SchemaStore
from bearlake.objects import Buffer
from bearlake.records import codec as record_codec
from bearlake.records.batch import COMPRESSION_MASK
from bearlake.records.compression import Scratch
from bearlake.streams.configs import StreamRules
from bearlake.streams.schema_rules import SchemaRules
from bearlake.streams.schemas.compiled import SchemaCompiler, ValueChecker
from bearlake.streams.turns import TurnBudget
from bearlake.streams.validation.obstacles import Missing, NeedsOutside, TooManySchemas
from bearlake.streams.validation.settings import ValidationSettings
from bearlake.telemetry import metrics

if TYPE_CHECKING:
    from bearlake.streams.validation.examining import Examination, Views
    from bearlake.streams.validation.validator import Validator

P = ParamSpec("P")
T = TypeVar("T")

_AT_ONCE_BATCH_BYTES_MAX = 64 * 1024
"""Larger batches are always checked by a thread."""
_VALIDATED_AT_ONCE_BYTES_MAX = 256 * 1024
"""Uncompressed bytes of a batch that is validated by schemas on the event loop: 15 ms if its records are tiny."""
_SCRATCH = Scratch()


def _validator() -> "type[Validator]":
    from bearlake.streams.validation.validator import Validator

    return Validator


VALIDATOR = Late(_validator)


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
    schemas: ValidationSettings = field(default_factory=ValidationSettings)
    """How keys and values are validated by their schemas."""


class BadRecord(Invalid):
    """Records of the batch are malformed or break the stream's rules; `indexes` lists them for the client.

    `reasons` has what is wrong with each, in the same order, if that differs.
    """

    def __init__(self, indexes: Sequence[int], reason: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.indexes = indexes
        self.reasons = reasons or [reason] * len(indexes)


class Checked(IntEnum):
    """What is known of a batch that is admitted."""

    NOTHING = 0
    """A client encoded the batch."""
    RECORDS = 1
    """Its records are good: this server encoded the batch."""
    SCHEMAS = 2
    """Its records are good, and they have the schemas that the stream requires."""
    ALL = 3
    """Its records are good, they have those schemas, and keys if the stream requires keys."""


def needs_check(rules: StreamRules, known: Checked) -> bool:
    """Whether the records must be looked at."""
    return (
        (rules.requires_keys and known < Checked.ALL)
        or (rules.validates_records and known < Checked.RECORDS)
        or needs_schemas(rules, known)
    )


def needs_schemas(rules: StreamRules, known: Checked) -> bool:
    """Whether the records must be validated by their schemas."""
    return rules.schemas is not None and known < Checked.SCHEMAS


def check_records(
    batch: Buffer, rules: StreamRules, known: Checked, bytes_max: int, examination: "Examination | None" = None
) -> int:
    """Decompress the batch and check every record, and that keys exist where key compaction needs them.

    With an `examination`, also validate the records by their schemas. Returns the uncompressed size in bytes.

    Raises:
        BadRecord: a record is malformed, has no key although `cleanup.policy` contains `compact`, or does not have the schema that it
            must have.
        TooLarge: the batch decompresses to more than `bytes_max`.
        Corrupt: the compressed bytes are damaged, or in a form that Kafka's Java client does not read.
        Missing: schemas must be looked up first.
        NeedsOutside: values must be checked outside of this process, and the examination did not hold them.
        TooManySchemas: the records name more schemas than a batch may.
    """
    if (
        known < Checked.RECORDS
        and not rules.requires_keys
        and examination is None
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
    if examination is not None:
        _validate(opened, examination)
    return opened.size_bytes


def _validate(opened: record_codec.Opened, examination: "Examination") -> None:
    """Validate the records of a batch by their schemas. Raises as `check_records`."""
    start = 0
    for part in opened.parts():
        try:
            examination.add(start, [record[2] for record in part], [record[3] for record in part])
        except TooManySchemas as error:
            raise BadRecord((), str(error)) from error
        start += len(part)
        if examination.is_over:
            break
    problems = examination.problems()
    if not any(True for _ in examination.held()) and (refusal := _refusal(examination, problems)):
        raise refusal


def _refusal(examination: "Examination", problems: Mapping[int, str]) -> BadRecord | None:
    """Return why the batch is refused; None: there are no problems."""
    if not problems:
        return None
    metrics.APPEND_SCHEMA_REFUSALS.inc()
    index, reason = next(iter(problems.items()))
    count = f"{len(problems)} or more" if examination.is_over else len(problems)
    summary = f"{count} records of the batch do not have the schemas that the stream requires, the first is record"
    return BadRecord([*problems], f"{summary} {index}: {reason}", [*problems.values()])


class Checks:
    """Checks batches for one server. Use it from the event loop's thread only."""

    def __init__(
        self,
        settings: CheckSettings,
        schemas: SchemaStore | None = None,
        compiler: SchemaCompiler | None = None,
        checker: ValueChecker | None = None,
    ) -> None:
        """`schemas`: the registry, for streams whose records are validated by their schemas. None: there are no such streams.

        `compiler`: for values of Protobuf schemas, `checker`: for those of JSON Schema. None: they are refused where values are checked.
        """
        self._settings = settings
        self._threads = ThreadPoolExecutor(settings.thread_count, thread_name_prefix="check-records")
        self._schemas, self._compiler, self._checker = schemas, compiler, checker
        self._validator: Validator | None = None
        """Built with the first batch that is validated."""
        self.budget = TurnBudget(settings.loop_bytes_max)
        """Uncompressed bytes of batches that may be checked and read on the event loop."""

    @property
    def uncompressed_bytes_max(self) -> int:
        """Largest uncompressed size of a batch, in bytes."""
        return self._settings.uncompressed_bytes_max

    def close(self) -> None:
        """Shut down without waiting; pending results are discarded."""
        if self._validator is not None:
            self._validator.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def at_once(self, batch: Buffer, attributes: int, rules: StreamRules, known: Checked) -> BearlakeError | bool:
        """Check a batch now if that is little work.

        Returns True if the batch is good, False if it must go to `check`, or the error for its producer. `attributes` are the batch's.
        """
        if not needs_check(rules, known):
            return True
        examination = None
        if rules.schemas is not None and needs_schemas(rules, known):
            if self._validator is None:
                return False
            examination = self._validator.at_once(rules.schemas)
        is_light = not attributes & COMPRESSION_MASK and not rules.requires_keys and examination is None
        if is_light:
            judged = self._outcome(batch, rules, known)
            assert not isinstance(judged, Missing | NeedsOutside), "nothing was examined"
            return judged
        budget = self.budget
        if len(batch) > _AT_ONCE_BATCH_BYTES_MAX or budget.left <= 0:
            return False
        bytes_max = min(budget.left, self._settings.uncompressed_bytes_max)
        if examination is not None:
            bytes_max = min(bytes_max, _VALIDATED_AT_ONCE_BYTES_MAX)
        budget.spend(len(batch))
        try:
            budget.spend(check_records(batch, rules, known, bytes_max, examination))
        except TooLarge:
            budget.spend(bytes_max)
            return False
        except Missing:
            return False
        except BearlakeError as error:
            return False if examination is not None else error
        return True

    async def check(
        self, batch: Buffer, attributes: int, rules: StreamRules, known: Checked, since: float | None = None
    ) -> BearlakeError | None:
        """Check a batch, in a thread if it is much work; returns the error for its producer. `batch` must not change meanwhile.

        Schemas are found that were registered at `since`, a time of the event loop (None: now). Batches that arrived together share it, and
        so a look-up.
        """
        since = asyncio.get_running_loop().time() if since is None else since
        schemas = rules.schemas if needs_schemas(rules, known) else None
        validator = None if schemas is None else await self.validating()
        judged = self.at_once(batch, attributes, rules, known)
        if judged is not False:
            return None if isinstance(judged, bool) else judged
        if schemas is None or validator is None:
            outcome = await self.off_loop(self._outcome, batch, rules, known)
        else:
            holds = not attributes & COMPRESSION_MASK
            try:
                outcome = await self._validated(batch, rules, known, (schemas, validator), since, holds=holds)
            except BearlakeError as error:
                return error
        assert not isinstance(outcome, Missing | NeedsOutside), "a final view is complete"
        return None if isinstance(outcome, bool) else outcome

    async def validating(self) -> "Validator":
        """Return the validator; a thread loads its code first, if need be."""
        made = await VALIDATOR.get()
        if self._validator is None:
            assert self._schemas is not None, "records are validated with a registry only"
            settings = self._settings
            parts = self.off_loop, self._compiler, self._checker, settings.thread_count
            self._validator = made(self._schemas, settings.schemas, *parts)
        return self._validator

    async def _validated(
        self,
        batch: Buffer,
        rules: StreamRules,
        known: Checked,
        by: "tuple[SchemaRules, Validator]",
        since: float,
        *,
        holds: bool,
    ) -> BearlakeError | Missing | NeedsOutside | bool:
        """Return the outcome for a batch that is validated in a thread. Raises `Overloaded`, `Unavailable`."""
        schemas, validator = by
        views = validator.views(schemas)
        examination = validator.examination(schemas, views, holds=holds)
        outcome = await self.off_loop(self._outcome, batch, rules, known, examination)
        if isinstance(outcome, Missing):
            views = await validator.found(schemas, outcome, since)
            examination = validator.examination(schemas, views, holds=holds)
            outcome = await self.off_loop(self._outcome, batch, rules, known, examination)
        if not isinstance(outcome, NeedsOutside):
            return await _with_held(by, outcome, examination)
        assert validator.outside is not None
        async with validator.outside.place(schemas):
            examination = validator.examination(schemas, views)
            outcome = await self.off_loop(self._outcome, batch, rules, known, examination)
            return await _with_held(by, outcome, examination, has_turn=True)

    async def problems(
        self, rules: SchemaRules, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> dict[int, str]:
        """Validate records by their schemas, in a thread; returns what is wrong with which, by index. No record depends on another one.

        Raises:
            Invalid: they name too many schemas.
            Unavailable, Overloaded: the registry did not answer in time.
        """
        since = asyncio.get_running_loop().time()
        validator = await self.validating()

        def work(views: "Views") -> "Examination | Missing":
            examination = validator.of_records(rules, views, len(values))
            try:
                examination.add(0, keys, values)
                examination.problems()
            except Missing as missing:
                return missing
            return examination

        found = await self.off_loop(work, validator.views(rules))
        if isinstance(found, Missing):
            found = await self.off_loop(work, await validator.found(rules, found, since))
        assert not isinstance(found, Missing), "a final view is complete"
        if validator.outside is not None and any(True for _ in found.held()):
            await validator.outside.check(rules, found)
        return found.problems()

    async def off_loop(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return what `work` returns, or raise what it raises; it runs in a thread of the checks, so it must not use the event loop.

        If the caller is cancelled, work that has begun continues, and its result is discarded. Work waits for a free thread; what it holds
        meanwhile is bounded by the number of requests and the size of each.
        """
        called = partial(work, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, called)

    def _outcome(
        self, batch: Buffer, rules: StreamRules, known: Checked, examination: "Examination | None" = None
    ) -> BearlakeError | Missing | NeedsOutside | bool:
        try:
            check_records(batch, rules, known, self._settings.uncompressed_bytes_max, examination)
        except (BearlakeError, Missing, NeedsOutside) as error:
            return error
        return True


async def _with_held(
    by: "tuple[SchemaRules, Validator]",
    outcome: BearlakeError | Missing | NeedsOutside | bool,
    examination: "Examination",
    *,
    has_turn: bool = False,
) -> BearlakeError | Missing | NeedsOutside | bool:
    """Return the outcome for a batch after the values that it holds were checked. Raises `Overloaded`, `Unavailable`."""
    schemas, validator = by
    if outcome is not True or not any(True for _ in examination.held()):
        return outcome
    assert validator.outside is not None
    await validator.outside.check(schemas, examination, has_turn=has_turn)
    return _refusal(examination, examination.problems()) or True
