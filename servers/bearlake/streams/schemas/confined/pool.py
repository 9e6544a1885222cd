"""The server's side: compiles and compares schemas, and reads and writes values, in child processes with limits.

If a child exceeds a limit on its work, its schema or its values are invalid. If a child ends for another reason, a helper cannot start, or
the queue is full, they may be valid: the caller can try again.
"""

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bearlake.errors import Unavailable
from bearlake.streams.schemas.budget import Allowance, Budget
from bearlake.streams.schemas.compiled import CheckedValues, Compiled
from bearlake.streams.schemas.confined import frames
from bearlake.streams.schemas.confined.frames import Answer
from bearlake.streams.schemas.confined.lane import Call, Lane, Room
from bearlake.streams.schemas.confined.limits import Limits, is_memory, is_time
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values.model import Unfit
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""Largest compiled schema (bytes): a schema of the default `schema_bytes_max` in all its stored forms."""

_REFUSALS = {kind.__name__: kind for kind in (InvalidSchema, SchemaTooLarge)}


class Pool:
    """Compiles and compares schemas, and evaluates values. Use it from the event loop's thread; its creator closes it.

    All calls raise:
        InvalidSchema: the schema is invalid; the message says why.
        SchemaTooLarge: schema or values need more time or memory than the limits allow.
        Overloaded, Unavailable: nothing was processed; try again.
    """

    def __init__(
        self, settings: SchemasSettings, *, answer_bytes_max: int = ANSWER_BYTES_MAX, label: str = "schemas"
    ) -> None:
        """`label`: the kind of the schemas' work in metrics."""
        self._settings = settings
        self._limits = Limits(
            memory_bytes_max=settings.compile_memory_bytes_max,
            wall_ms_max=settings.compile_wait_ms_max,
            answer_bytes_max=answer_bytes_max,
        )
        compiling = Room(
            helper_count=settings.compile_count_max,
            queue_count=settings.compile_queue_count_max,
            queue_bytes=settings.compile_queue_bytes_max,
            wait_ms=settings.compile_wait_ms_max,
        )
        evaluating = Room(
            helper_count=settings.value_count_max,
            queue_count=settings.value_queue_count_max,
            queue_bytes=settings.value_queue_bytes_max,
            wait_ms=settings.compile_wait_ms_max,
        )
        self._compiling = Lane(frames.COMPILE, self._limits, compiling)
        self._evaluating = Lane(frames.EVALUATE, self._limits, evaluating)
        values = "values" if label == "schemas" else f"{label} of values"
        for name, lane, room in ((label, self._compiling, compiling), (values, self._evaluating, evaluating)):
            metrics.REGISTRY_WORK.labels(name).set_function(partial(getattr, lane, "request_count"))
            metrics.REGISTRY_WORK_MAX.labels(name).set(room.helper_count + room.queue_count)
            metrics.REGISTRY_WORK_BYTES.labels(name).set_function(partial(getattr, lane, "size_bytes"))
            metrics.REGISTRY_WORK_BYTES_MAX.labels(name).set(room.queue_bytes)

    def close(self) -> None:
        """Kill the helpers and their children; their requests fail with `Unavailable`."""
        self._compiling.close()
        self._evaluating.close()

    async def compiled(
        self, type_name: str, text: str, references: Mapping[str, str], budget: Budget | None = None
    ) -> Compiled:
        """Compile `text`. `references` has the texts of referenced schemas by name; each comes after the schemas that it references."""
        texts = [text, *references.values()]

        def encode() -> bytes:
            head = {"work": "compile", "type": type_name, "references": [*references]}
            return frames.packed(head, [schema_text.encode() for schema_text in texts])

        head, parts = await self._compile(encode, sum(map(len, texts)), budget)
        return Compiled.from_parts(head["compiled"], parts)

    async def incompatibilities(self, reader: Compiled, writer: Compiled, budget: Budget | None = None) -> list[str]:
        """Return why `reader` cannot read data written with `writer`; empty: compatible."""

        def encode() -> bytes:
            (first, parts), (second, others) = reader.as_parts(), writer.as_parts()
            head = {"work": "compare", "schemas": [first, second], "counts": [len(parts), len(others)]}
            return frames.packed(head, [*parts, *others])

        head, _ = await self._compile(encode, reader.size_bytes + writer.size_bytes, budget)
        reasons: list[str] = head["reasons"]
        return reasons

    async def written(
        self, schema: Compiled, texts: Sequence[bytes], budget: Budget | None = None
    ) -> list[bytes | Unfit]:
        """Serialize values, given as JSON texts; an `Unfit` stands for a value that does not fit the schema."""
        answer, allowance = await self._evaluate("write", schema, texts, budget or Budget(self._settings))
        return _results(*self._head_and_parts(answer, "work on the values", allowance))

    async def read(
        self, schema: Compiled, values: Sequence[bytes], budget: Budget | None = None
    ) -> list[bytes | Unfit]:
        """Return the JSON texts of serialized values, up to the first text that exceeds a limit: an `Unfit` stands for that text.

        An answer that would become too large ends earlier, with at least one value.
        """
        budget = budget or Budget(self._settings)
        answer, allowance = await self._evaluate("read", schema, values, budget)
        try:
            return _results(*self._head_and_parts(answer, "work on the values", allowance))
        except SchemaTooLarge as error:
            if answer.status == 0:  # the schema itself is too large
                raise
            unfit = Unfit(str(error))
        before, is_next_unfit = _before_end(answer, values)
        found = await self.read(schema, before, budget) if before else []
        is_complete = len(found) == len(before)  # fewer values have smaller limits: their answer may end earlier
        return [*found, unfit] if is_complete and is_next_unfit else found

    def budget(self) -> Budget:
        """Return what the values of one batch may need."""
        return Budget(self._settings)

    async def checked_values(self, schema: Compiled, values: Sequence[bytes], budget: Budget) -> CheckedValues:
        """Check values, up to the first one that exceeds a limit, or fewer if the answer would exceed one; at least one."""
        answer, allowance = await self._evaluate("check", schema, values, budget)
        try:
            head, _ = self._head_and_parts(answer, "work on the values", allowance)
        except SchemaTooLarge as error:
            if answer.status == 0:  # the schema itself is too large
                raise
            unfit = Unfit(str(error))
        else:
            return CheckedValues({int(at): Unfit(*failure) for at, failure in head["unfit"].items()}, len(values))
        before, is_next_unfit = _before_end(answer, values)
        found = await self.checked_values(schema, before, budget) if before else CheckedValues({}, 0)
        if found.checked_count == len(before) and is_next_unfit:
            return CheckedValues({**found.unfit, len(before): unfit}, len(before) + 1, exceeds_limit=True)
        return found

    # -- calls of children ---------------------------------------------------------------------------------------

    async def _compile(
        self, encode: Callable[[], bytes], size_bytes: int, budget: Budget | None
    ) -> tuple[dict[str, Any], list[bytes]]:
        budget = budget or Budget(self._settings)
        allowance = budget.compiling(self._limits.answer_bytes_max)
        answer = await self._compiling.ask([Call(encode, allowance.processor_ms)], size_bytes)
        budget.spend(answer.processor_ms)
        return self._head_and_parts(answer, "schema", allowance)

    async def _evaluate(
        self, work: str, schema: Compiled, values: Sequence[bytes], budget: Budget
    ) -> tuple[Answer, Allowance]:
        size_bytes = sum(map(len, values))
        allowance = budget.evaluating(size_bytes)

        def encode(*, is_complete: bool) -> bytes:
            compiled, parts = schema.as_parts() if is_complete else (None, [])
            head = {
                "work": work,
                "schema": schema.digest,
                "answer_bytes_max": allowance.answer_bytes,
                "depth_max": self._settings.value_depth_max,
                "processor_ms": allowance.processor_ms,
                "compiled": compiled,
                "compiled_parts": len(parts),
            }
            return frames.packed(head, [*parts, *values])

        calls = [
            Call(partial(encode, is_complete=False), allowance.processor_ms),
            Call(partial(encode, is_complete=True), allowance.processor_ms + self._settings.compile_time_ms_max),
        ]
        answer = await self._evaluating.ask(calls, size_bytes, schema.digest)
        budget.spend(answer.processor_ms, len(answer.message))
        return answer, allowance

    def _head_and_parts(self, answer: Answer, what: str, allowance: Allowance) -> tuple[dict[str, Any], list[bytes]]:
        """Return an answer's head (Any: JSON) and parts; raises the child's error, or the error for the way that the child ended."""
        if answer.status == 0:
            head, parts = frames.unpacked(answer.message)
            if "refused" in head:
                kind, message = head["refused"]
                raise _REFUSALS[kind](message)
            if "error" in head:
                metrics.REGISTRY_COMPILE_FAILURES.labels("fault").inc()
                log.error("a compiler of schemas failed unexpectedly", extra={"error": head["error"]})
                raise InvalidSchema("Invalid schema: its compiler failed on it")
            return head, parts
        reason, error = self._death(os.waitstatus_to_exitcode(answer.status), what, allowance)
        metrics.REGISTRY_COMPILE_FAILURES.labels(reason).inc()
        log.warning("a child that compiled a schema was ended", extra={"reason": reason, "status": answer.status})
        raise error

    def _death(self, code: int, what: str, allowance: Allowance) -> tuple[str, SchemaTooLarge | Unavailable]:
        limits = self._limits
        if is_time(code):
            return "time", SchemaTooLarge(
                f"The {what} needs more than {allowance.processor_ms / 1000:g} s of processor time"
            )
        if is_memory(code):
            size = f"{limits.memory_bytes_max / 1024 / 1024:g} MiB"
            return "memory", SchemaTooLarge(f"The {what} needs more than {size} of memory, or is nested too deeply")
        if -code == signal.SIGXFSZ:
            size = f"{limits.answer_bytes_max / 1024 / 1024:g} MiB"
            return "size", SchemaTooLarge(f"The {what} becomes larger than {size}")
        return "other", Unavailable("the process that compiled the schema ended early, try again")


def _before_end(answer: Answer, values: Sequence[bytes]) -> tuple[Sequence[bytes], bool]:
    """Return values that a child had finished before it exceeded a limit, and whether the next one is to blame.

    A child that had finished all values exceeded the limit with its answer: half of them have a smaller one.
    """
    done_count = answer.done_count
    if done_count == len(values) > 1:
        return values[: done_count // 2], False
    return values[: min(done_count, len(values) - 1)], True


def _results(head: Mapping[str, Any], parts: Sequence[bytes]) -> list[bytes | Unfit]:
    rest = iter(parts)
    return [next(rest) if failure is None else Unfit(*failure) for failure in head["results"]]
