"""Checks values that a batch holds for it outside of this process: those of JSON Schema.

A JSON Schema can make a validator work for any time, so child processes with limits do it (`schemas/confined`, decision 291). All values of
a batch share one limit of processor time. The batches of one stream take turns, so that a stream with a costly schema does not take the
processes from all others. Uncompressed values of compressed batches are held for few batches at once.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Final
from weakref import WeakValueDictionary

from bearlake.errors import Unavailable
from bearlake.streams.schema_rules import SchemaRules
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.compiled import ValueChecker
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge
from bearlake.streams.validation.examining import Examination, Held

_AT_ONCE_BYTES: Final = 1024 * 1024
"""Values of one request to a process."""
_VALUE_BYTES: Final = 32
"""What a value counts beside its bytes."""
_NOT_REACHED: Final = "was not checked, because an earlier value needs too much time or memory"


class Outside:
    """The checks of one server. Use it from the event loop's thread only."""

    def __init__(self, checker: ValueChecker, held_count_max: int, wait_ms_max: int) -> None:
        """`held_count_max`: compressed batches whose values are held at once. `wait_ms_max`: longest wait for a turn."""
        self._checker = checker
        self._wait_s = wait_ms_max / 1000
        self._held = asyncio.Semaphore(held_count_max)
        self._turns: WeakValueDictionary[SchemaRules, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, rules: SchemaRules) -> AsyncIterator[None]:
        """Keep all other batches of streams with these rules waiting, in the block. Raises `Unavailable`: others take too long."""
        lock = self._turns.setdefault(rules, asyncio.Lock())
        async with _within(lock, self._wait_s):
            yield

    @asynccontextmanager
    async def place(self, rules: SchemaRules) -> AsyncIterator[None]:
        """Let a compressed batch of a stream with these rules hold its values, in the block, when it is its turn.

        A batch takes its turn first: batches that wait for it must not hold the places of other streams. Raises `Unavailable` as `turn`.
        """
        async with self.turn(rules), _within(self._held, self._wait_s):
            yield

    async def check(self, rules: SchemaRules, examination: Examination, *, has_turn: bool = False) -> None:
        """Check what the examination holds, when it is the turn of a batch of a stream with these rules; note what is wrong.

        `has_turn`: the batch has a `turn` or a `place` already.

        Raises:
            Overloaded, Unavailable: not all values were checked. Nothing is wrong with the records.
        """
        async with nullcontext() if has_turn else self.turn(rules):
            await self._check(examination)

    async def _check(self, examination: Examination) -> None:
        budget = self._checker.budget()
        for held in examination.held():
            await self._check_held(examination, held, budget)

    async def _check_held(self, examination: Examination, held: Held, budget: Budget) -> None:
        count = len(held.values)
        for start, end in _parts(held.values):
            while start < end:
                if examination.is_over:
                    return
                try:
                    judged = await self._checker.checked_values(held.schema, held.values[start:end], budget)
                except (InvalidSchema, SchemaTooLarge) as error:
                    _note(examination, held, range(start, count), f"its schema cannot be checked: {error}")
                    return
                for at, unfit in sorted(judged.unfit.items()):
                    examination.note(held, start + at, str(unfit))
                start += judged.checked_count
                if judged.exceeds_limit and start < end:
                    _note(examination, held, range(start, count), _NOT_REACHED)
                    return


def _note(examination: Examination, held: Held, places: Sequence[int], reason: str) -> None:
    for at in places:
        if examination.is_over:
            return
        examination.note(held, at, reason)


def _parts(values: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of values that are checked together."""
    start = size = 0
    for at, value in enumerate(values):
        if size and size + len(value) > _AT_ONCE_BYTES:
            yield start, at
            start, size = at, 0
        size += len(value) + _VALUE_BYTES
    if start < len(values):
        yield start, len(values)


@asynccontextmanager
async def _within(turns: asyncio.Lock | asyncio.Semaphore, wait_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(wait_s):
            await turns.acquire()
    except TimeoutError as error:
        raise Unavailable(f"values of other batches are being checked for {wait_s:g} s; nothing was stored") from error
    try:
        yield
    finally:
        turns.release()
