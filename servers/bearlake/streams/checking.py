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
from typing import ParamSpec, TypeVar

from bearlake import kernel
from bearlake.errors import BearlakeError, Invalid, TooLarge
from bearlake.metadata.schemas import SchemaStore
from bearlake.objects import Buffer
from bearlake.records import codec as record_codec
from bearlake.records.batch import COMPRESSION_MASK
from bearlake.records.compression import Scratch
from bearlake.streams.configs import StreamRules
from bearlake.streams.schema_rules import SchemaRules
from bearlake.streams.schemas.compiled import SchemaCompiler, ValueChecker
from bearlake.streams.turns import TurnBudget
from bearlake.streams.validation.examining import Examination, Missing, NeedsOutside, TooManySchemas, Views
from bearlake.streams.validation.known import KnownSchemas
from bearlake.streams.validation.outside import Outside
from bearlake.streams.validation.settings import ValidationSettings
from bearlake.telemetry import metrics

P = ParamSpec("P")
T = TypeVar("T")

_AT_ONCE_BATCH_BYTES_MAX = 64 * 1024
"""Larger batches are always checked by a thread."""
_VALIDATED_AT_ONCE_BYTES_MAX = 256 * 1024
"""Uncompressed bytes of a batch that is validated by schemas on the event loop: 15 ms if its records are tiny."""
_AT_ONCE_SCHEMA_COUNT_MAX = 8
"""Schemas of such a batch: 4 ms if they are large."""
_PROBLEM_COUNT_MAX = 100
"""Records with problems that are listed for the client of a batch."""
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
    batch: Buffer, rules: StreamRules, known: Checked, bytes_max: int, examination: Examination | None = None
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


def _validate(opened: record_codec.Opened, examination: Examination) -> None:
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


def _refusal(examination: Examination, problems: Mapping[int, str]) -> BadRecord | None:
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
        self._known = None
        if schemas is not None:
            self._known = KnownSchemas(
                schemas, settings.schemas, self.off_loop, compiler, has_outside=checker is not None
            )
        wait_ms = settings.schemas.wait_ms_max
        self._outside = None if checker is None else Outside(checker, settings.thread_count, wait_ms)
        self.budget = TurnBudget(settings.loop_bytes_max)
        """Uncompressed bytes of batches that may be checked and read on the event loop."""

    @property
    def uncompressed_bytes_max(self) -> int:
        """Largest uncompressed size of a batch, in bytes."""
        return self._settings.uncompressed_bytes_max

    def close(self) -> None:
        """Shut down without waiting; pending results are discarded."""
        if self._known is not None:
            self._known.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def at_once(self, batch: Buffer, attributes: int, rules: StreamRules, known: Checked) -> BearlakeError | bool:
        """Check a batch now if that is little work.

        Returns True if the batch is good, False if it must go to `check`, or the error for its producer. `attributes` are the batch's.
        """
        if not needs_check(rules, known):
            return True
        examination = self._examination_at_once(rules, known)
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
        judged = self.at_once(batch, attributes, rules, known)
        if judged is not False:
            return None if isinstance(judged, bool) else judged
        schemas = rules.schemas if needs_schemas(rules, known) else None
        holds = not attributes & COMPRESSION_MASK
        views = None if schemas is None else self._views(schemas)
        examination = None if views is None else self._examination(rules, views, holds=holds)
        outcome = await self.off_loop(self._outcome, batch, rules, known, examination)
        try:
            if isinstance(outcome, Missing):
                assert schemas is not None
                views = await self._found(schemas, outcome, since)
                examination = self._examination(rules, views, holds=holds)
                outcome = await self.off_loop(self._outcome, batch, rules, known, examination)
            if isinstance(outcome, NeedsOutside):
                assert views is not None
                assert schemas is not None
                assert self._outside is not None
                async with self._outside.place(schemas):
                    examination = self._examination(rules, views)
                    outcome = await self.off_loop(self._outcome, batch, rules, known, examination)
                    outcome = await self._with_held(rules, outcome, examination, has_turn=True)
            else:
                outcome = await self._with_held(rules, outcome, examination)
        except BearlakeError as error:
            return error
        assert not isinstance(outcome, Missing | NeedsOutside), "a final view is complete"
        return None if isinstance(outcome, bool) else outcome

    async def _with_held(
        self,
        rules: StreamRules,
        outcome: BearlakeError | Missing | NeedsOutside | bool,
        examination: Examination | None,
        *,
        has_turn: bool = False,
    ) -> BearlakeError | Missing | NeedsOutside | bool:
        """Return the outcome for a batch after the values that it holds were checked. Raises `Overloaded`, `Unavailable`."""
        if outcome is not True or examination is None or not any(True for _ in examination.held()):
            return outcome
        assert self._outside is not None
        assert rules.schemas is not None
        await self._outside.check(rules.schemas, examination, has_turn=has_turn)
        return _refusal(examination, examination.problems()) or True

    async def problems(
        self, rules: SchemaRules, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> dict[int, str]:
        """Validate records by their schemas, in a thread; returns what is wrong with which, by index. No record depends on another one.

        Raises:
            Invalid: they name too many schemas.
            Unavailable, Overloaded: the registry did not answer in time.
        """
        since = asyncio.get_running_loop().time()

        def work(views: Views) -> Examination | Missing:
            examination = Examination(rules, views, self._settings.schemas.batch_schema_count_max, len(values))
            try:
                examination.add(0, keys, values)
                examination.problems()
            except Missing as missing:
                return missing
            return examination

        found = await self.off_loop(work, self._views(rules))
        if isinstance(found, Missing):
            found = await self.off_loop(work, await self._found(rules, found, since))
        assert not isinstance(found, Missing), "a final view is complete"
        if self._outside is not None and any(True for _ in found.held()):
            await self._outside.check(rules, found)
        return found.problems()

    async def off_loop(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return what `work` returns, or raise what it raises; it runs in a thread of the checks, so it must not use the event loop.

        If the caller is cancelled, work that has begun continues, and its result is discarded. Work waits for a free thread; what it holds
        meanwhile is bounded by the number of requests and the size of each.
        """
        called = partial(work, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, called)

    def _outcome(
        self, batch: Buffer, rules: StreamRules, known: Checked, examination: Examination | None = None
    ) -> BearlakeError | Missing | NeedsOutside | bool:
        try:
            check_records(batch, rules, known, self._settings.uncompressed_bytes_max, examination)
        except (BearlakeError, Missing, NeedsOutside) as error:
            return error
        return True

    def _examination_at_once(self, rules: StreamRules, known: Checked) -> Examination | None:
        """Return an examination that ends early: with too much work for the event loop, or a problem, whose reason a thread finds."""
        if rules.schemas is None or not needs_schemas(rules, known):
            return None
        return Examination(rules.schemas, self._views(rules.schemas), _AT_ONCE_SCHEMA_COUNT_MAX, 1, is_at_once=True)

    def _examination(self, rules: StreamRules, views: Views, *, holds: bool = True) -> Examination:
        assert rules.schemas is not None
        schema_count_max = self._settings.schemas.batch_schema_count_max
        return Examination(rules.schemas, views, schema_count_max, _PROBLEM_COUNT_MAX, holds=holds)

    def _views(self, schemas: SchemaRules) -> Views:
        """Return what this server knows now."""
        known = self._known
        assert known is not None, "records are validated with a registry only"
        key, value = (None if part is None else known.view(part) for part in (schemas.key, schemas.value))
        return Views(key=key, value=value)

    async def _found(self, schemas: SchemaRules, missing: Missing, since: float) -> Views:
        """Return views that are complete for the ids of a batch. Raises `Unavailable`, `Overloaded`."""
        known = self._known
        assert known is not None
        wanted = (schemas.key, missing.key_ids), (schemas.value, missing.value_ids)
        found = iter(await known.find([(part, ids) for part, ids in wanted if part is not None], since))
        key, value = (None if part is None else next(found) for part, _ in wanted)
        return Views(key=key, value=value, is_final=True)
