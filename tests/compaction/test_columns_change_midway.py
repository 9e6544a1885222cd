"""Columns that are declared, or become wider, while a worker compacts or merges: before every seventh of its calls to the stores."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from bearlake.compaction.settings import ColumnSettings
from bearlake.compaction.value_schemas import ValueSchemas
from bearlake.streams.catalog import StreamView
from bearlake.streams.principal import ANONYMOUS
from fixtures.cleaned_stream import Life
from fixtures.typed_lake import TypedLake, settings, typed_lake

pytestmark = pytest.mark.slow

LONG = 5_000_000_000
ROUND_COUNT_MIN = 8
"""Rounds in which the change comes before the worker has compacted everything; a round takes more calls than that."""


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[TypedLake]:
    async with typed_lake(tmp_path) as found:
        yield found


@dataclass
class Disturbed(Life):
    """A worker during whose life something happens: before its call of number `at`."""

    at: int = 0
    disturb: Callable[[], Coroutine[Any, Any, None]] | None = None
    disturbance: asyncio.Task[None] | None = None

    @override
    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self.call_count += 1
        if self.call_count == self.at and self.disturb is not None:
            self.disturbance = asyncio.create_task(self.disturb())
            await asyncio.shield(self.disturbance)  # it goes on if the worker has enough
        return await call()


async def alter(lake: TypedLake, stream: StreamView, text: str) -> StreamView:
    """Declare columns as ALTER TABLE does: the config first, then the table."""
    changed = await lake.streams.alter(ANONYMOUS, stream.stream, {"table.columns": text}, ())
    plan = await ValueSchemas(lake.stores.metadata, lake.tables, ColumnSettings()).plan(changed.stream)
    assert plan is not None
    if await lake.tables.state(changed.stream) is not None:
        await lake.tables.add_columns(changed.stream, plan.columns.book)
    return changed


async def types_of(lake: TypedLake, stream: StreamView) -> dict[str, str]:
    """The types of the table's typed columns."""

    def read() -> dict[str, str]:
        table = lake.tables.lookup().find(stream.stream)
        assert table is not None
        return {field.name: str(field.field_type) for field in table.schema().fields if not field.name.startswith("_")}

    return await lake.tables.run("types", read)


def value(record: dict[str, int]) -> bytes:
    return json.dumps(record).encode()


@pytest.mark.parametrize("merges", [False, True])
async def test_rows_are_whole_whenever_their_columns_change(lake: TypedLake, merges: bool) -> None:
    """Each round has a column that becomes wider midway, and one that is added midway."""
    stream = await lake.create(table__columns="id long")
    declared = {"id": "long"}
    sent: list[dict[str, int]] = []
    always: list[int] = []
    """Offsets of records that were appended after the change of their round: all their columns were declared."""

    async def declare(**columns: str) -> None:
        nonlocal stream
        declared.update(columns)
        stream = await alter(lake, stream, ", ".join(f"{name} {type_}" for name, type_ in declared.items()))

    for at in range(1, 400, 7):
        wide, added = f"w{at}", f"a{at}"
        await declare(**{wide: "int"})
        for _ in range(2):
            sent.append(dict.fromkeys([*declared, added], len(sent)))
            await lake.produce(stream, value(sent[-1]))

        life = Disturbed(at=at, disturb=partial(declare, **{wide: "long", added: "long"}))
        await lake.work(lambda: lake.is_compacted(stream), settings(merges=merges), life=life)
        if life.disturbance is None:
            break
        await life.disturbance

        assert await types_of(lake, stream) == declared
        always.append(len(sent))
        sent.append(dict.fromkeys(declared, LONG + at))
        await lake.produce(stream, value(sent[-1]))
    await lake.compact(stream)

    rows = await lake.rows(stream)
    assert len(always) >= ROUND_COUNT_MIN
    assert [(row["_offset"], row["_error"]) for row in rows] == [(offset, None) for offset in range(len(sent))]
    assert [row["id"] for row in rows] == [record["id"] for record in sent]
    for row, record in zip(rows, sent, strict=True):
        found = {name: row[name] for name in record if name in row}
        if row["_offset"] in always:
            assert found == record
        else:  # compacted before or after the column was added
            assert all(number in (None, record[name]) for name, number in found.items())
    assert await lake.read(stream) == [(offset, b"k", value(record)) for offset, record in enumerate(sent)]
