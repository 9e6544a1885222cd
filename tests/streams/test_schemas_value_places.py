"""A limit that a value exceeds is the problem of that value, and not of a value before it."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined.frames import Answer
from bearlake.streams.schemas.confined.limits import EXIT_MEMORY
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values.model import Unfit
from fixtures.avro_cases import number

LONG = "A" * 2_000
SCHEMA = {"type": "array", "items": {"type": "enum", "name": "Kind", "symbols": [LONG]}}


def items(count: int) -> bytes:
    """An array in Avro; an item is one byte, and 2,003 as JSON."""
    return number(count) + b"\0" * count + number(0)


SMALL = [items(20)] * 10
"""400 KB as JSON."""
COSTLY = items(3_000_000)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool(SchemasSettings(value_bytes_max=200_000, value_time_ms_max=100, value_mebibyte_time_ms_max=100))
    yield made
    made.close()


async def test_a_value_before_a_costly_one_is_not_blamed_for_it(pool: Pool) -> None:
    schema = await pool.compiled("AVRO", json.dumps(SCHEMA), {})
    values = [*SMALL, COSTLY]
    found: list[bytes | Unfit] = []
    while len(found) < len(values):
        found += await pool.read(schema, values[len(found) :])

    assert [type(result) for result in found] == [bytes] * len(SMALL) + [Unfit]


class Ends:
    """Answers of children, in the place of those of a lane; then those of the lane."""

    def __init__(self, pool: Pool, ends: Sequence[Answer]) -> None:
        self._evaluate = pool._evaluate  # noqa: SLF001 - the call of a child
        self._ends = list(ends)

    async def __call__(self, work: str, schema: Compiled, values: Sequence[bytes], budget: Budget) -> Any:
        if self._ends:
            return self._ends.pop(0), budget.evaluating(1)
        return await self._evaluate(work, schema, values, budget)


def ended(done_count: int) -> Answer:
    """A child ran out of memory after so many values."""
    return Answer(EXIT_MEMORY << 8, 1, done_count, b"")


@pytest.mark.parametrize(
    ("ends", "read"),
    [
        ([ended(4)], [bytes] * 2),
        ([ended(1)], [bytes, Unfit]),
        ([ended(4), ended(2)], [bytes]),
        ([ended(3), ended(1)], [bytes, Unfit]),
        ([ended(1), ended(1)], [Unfit, Unfit]),
    ],
    ids=["its answer", "second", "answer twice", "second of fewer", "single"],
)
async def test_an_answer_that_is_too_large_is_read_in_parts(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, ends: Sequence[Answer], read: Sequence[type]
) -> None:
    schema = await pool.compiled("AVRO", json.dumps(SCHEMA), {})
    values = [items(1)] * 4

    monkeypatch.setattr(pool, "_evaluate", Ends(pool, ends))
    assert [type(result) for result in await pool.read(schema, values)] == read


@pytest.mark.parametrize(
    ("ends", "unfit", "count"),
    [([ended(2)], [2], 3), ([ended(3), ended(1)], [1], 2), ([ended(4)], [], 2), ([ended(0)], [0], 1)],
)
async def test_values_that_were_not_checked_are_not_reported_as_checked(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, ends: Sequence[Answer], unfit: Sequence[int], count: int
) -> None:
    schema = await pool.compiled("AVRO", json.dumps(SCHEMA), {})
    monkeypatch.setattr(pool, "_evaluate", Ends(pool, ends))
    found = await pool.checked_values(schema, [items(1)] * 4, pool.budget())

    assert sorted(found.unfit) == list(unfit)
    assert found.checked_count == count
    assert found.exceeds_limit == bool(unfit)  # no value is to blame for an answer that is too large
