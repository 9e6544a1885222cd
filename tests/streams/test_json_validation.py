"""Validation of JSON values at the door: by JSON Schema, in child processes, and by declared columns, in the kernel."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from typing_extensions import override

from bearlake.errors import Invalid, Unavailable
from bearlake.records.batch import Compression
from bearlake.streams import config_changes
from bearlake.streams.checking import BadRecord
from bearlake.streams.schema_rules import SchemaRules
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.compiled import CheckedValues, Compiled, ValueChecker
from bearlake.streams.schemas.confined.frames import Answer
from bearlake.streams.schemas.confined.lane import Call
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values.wire import head
from bearlake.streams.validation.examining import Examination, Views
from bearlake.streams.validation.outside import Outside
from bearlake.streams.value_rules import schema_rules
from fixtures.registered import register
from fixtures.schema_door import VALUE, Door, bad, doors, opened, rules, rules_of_one
from fixtures.waiting import WAIT_S, until

ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer", "minimum": 1}, "item": {"type": "string", "pattern": "^[a-z]+$"}},
    "additionalProperties": False,
}
GOOD = [b'{"id": 1}', b' {"item": "boat", "id": 2.0}\n', b'{"id": 1, "id": 7}']
BAD = {
    b'{"item": "boat"}': "required property",
    b'{"id": 0}': "id: the value is less than the minimum of 1",
    b'{"id": 1, "item": "Boat"}': "item: ",
    b'{"id": 1, "more": 1}': "Additional properties",
    b"[]": 'not of type "object"',
    b'{"id": 1': "not valid JSON",
    b'{"id": NaN}': "not valid JSON",
    b"\xef\xbb\xbf{}": "not valid JSON",
    b'{"id": 1, "item": "\xff"}': "not valid JSON",
    '{"id": 1}'.encode("utf-16"): "not valid JSON",
    b"": "not valid JSON",
}
COLUMNS = rules(schema__validation="value", table__columns="id long, price decimal(6,2), tags list<string>")


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def json_door(closing: AsyncExitStack, schema: Any, **settings: Any) -> tuple[Door, int]:
    """A door with processes that check values, and the id of the schema."""
    pool = Pool(SchemasSettings(**settings))
    closing.callback(pool.close)
    door = doors(closing, (await opened(closing)).metadata, pool, checker=pool)
    return door, await register(door.metadata, schema, type_=SchemaType.JSON)


async def test_values_obey_their_schema_and_the_bad_ones_are_told_with_their_reasons(closing: AsyncExitStack) -> None:
    door, schema_id = await json_door(closing, ORDER)
    mixed = [GOOD[0], *BAD, None, GOOD[1]]

    assert await door.check(VALUE, *(head(schema_id) + value for value in GOOD), None) is None
    error = await door.check(VALUE, *(None if value is None else head(schema_id) + value for value in mixed))

    assert bad(error) == list(range(1, 1 + len(BAD)))
    assert isinstance(error, BadRecord)
    for reason, expected in zip(error.reasons, BAD.values(), strict=True):
        assert reason.startswith("value: ")
        assert expected in reason
        assert "boat" not in reason.lower()  # no contents
    assert door.at_once(VALUE, head(schema_id) + GOOD[0]) is False


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD])
async def test_compressed_batches_are_checked_alike(closing: AsyncExitStack, compression: Compression) -> None:
    door, schema_id = await json_door(closing, ORDER)
    values = [head(schema_id) + b'{"id": %d}' % (at % 50) for at in range(20_000)]

    error = await door.check(VALUE, *values, compression=compression)

    assert bad(error)[:3] == [0, 50, 100]
    assert len(bad(error)) == 100
    assert await door.check(VALUE, *(value for value in values if b" 0}" not in value), compression=compression) is None


async def test_values_of_a_stream_with_one_schema_have_no_head(closing: AsyncExitStack) -> None:
    door, schema_id = await json_door(closing, ORDER)

    assert bad(await door.check(rules_of_one(schema_id), *GOOD, *BAD, head(schema_id) + GOOD[0])) == list(
        range(len(GOOD), len(GOOD) + len(BAD) + 1)
    )


async def test_schemas_may_refer_to_others_and_a_schema_that_is_none_refuses_its_values(
    closing: AsyncExitStack,
) -> None:
    door, _ = await json_door(closing, ORDER)
    await register(door.metadata, {"type": "integer"}, "number", type_=SchemaType.JSON)
    refers = {"type": "object", "properties": {"x": {"$ref": "number.json"}}}
    schema_id = await register(door.metadata, refers, type_=SchemaType.JSON, refers={"number.json": "number"})
    broken = await register(door.metadata, {"$ref": "absent.json"}, type_=SchemaType.JSON)

    error = await door.check(VALUE, head(schema_id) + b'{"x": 1}', head(schema_id) + b'{"x": "1"}', head(broken) + b"1")

    assert bad(error) == [1, 2]
    assert isinstance(error, BadRecord)
    assert "its schema cannot be checked" in error.reasons[1]


def doubling(levels: int) -> dict[str, Any]:
    """A schema whose check takes 2^levels steps."""
    steps = {f"s{at}": {"allOf": [{"$ref": f"#/$defs/s{at + 1}"}] * 2} for at in range(levels)}
    return {"$defs": {**steps, f"s{levels}": {"type": "integer"}}, "$ref": "#/$defs/s0"}


async def test_a_schema_that_takes_for_ever_refuses_its_own_values_and_hinders_no_others(
    closing: AsyncExitStack,
) -> None:
    limits = {"value_time_ms_max": 200, "value_mebibyte_time_ms_max": 1, "request_time_ms_max": 400}
    door, good_id = await json_door(closing, ORDER, **limits)
    costly = await register(door.metadata, doubling(40), "costly-value", type_=SchemaType.JSON)
    other = rules(schema__validation="value", table__value__subjects="costly-value")
    values = [head(costly) + b"1"] * 50

    async def others() -> None:
        for _ in range(20):
            assert await door.check(VALUE, head(good_id) + GOOD[0]) is None

    error, _ = await asyncio.gather(door.check(other, *values), others())

    assert bad(error) == list(range(50))
    assert isinstance(error, BadRecord)
    assert "processor time" in error.reasons[0]
    assert error.reasons[1:] == ["value: was not checked, because an earlier value needs too much time or memory"] * 49


async def test_many_costly_schemas_do_not_keep_the_values_of_another_one_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = Pool(SchemasSettings(value_count_max=1, value_time_ms_max=50))
    lane, all_wait = pool._evaluating, threading.Event()  # noqa: SLF001
    owners: list[str] = []
    take, ask = lane._line.take, lane._ask  # noqa: SLF001

    def watched() -> tuple[str, Any] | None:
        if (found := take()) is not None:
            owners.append(found[0])
        return found

    def held(calls: Sequence[Call]) -> Answer:
        all_wait.wait(WAIT_S)
        return ask(calls)

    def check(schema: Compiled) -> asyncio.Task[CheckedValues]:
        return asyncio.create_task(pool.checked_values(schema, [b'{"id": 1}'], pool.budget()))

    try:
        good = await pool.compiled("JSON", json.dumps(ORDER), {})
        costly = [await pool.compiled("JSON", json.dumps(doubling(40) | {"title": f"{at}"}), {}) for at in range(6)]
        await asyncio.gather(*map(check, costly))
        for schema in costly:
            lane._line.charge(schema.digest, 1)  # noqa: SLF001 - a check that takes less than 1 ms counts as none
        monkeypatch.setattr(lane._line, "take", watched)  # noqa: SLF001
        monkeypatch.setattr(lane, "_ask", held)
        tasks = [*map(check, costly), check(good)]
        await until(lambda: lane.request_count == 7)
        all_wait.set()
        found = await asyncio.gather(*tasks)
    finally:
        all_wait.set()
        pool.close()

    assert [[*checked.unfit] for checked in found] == [[0]] * 6 + [[]]
    assert [owners.count(owner) for owner in owners] == [1] * 7
    assert good.digest in owners[:2]  # at most the request that ran already goes before it


async def test_batches_of_one_stream_take_turns_and_give_up_in_time(closing: AsyncExitStack) -> None:
    pool = Pool(SchemasSettings())
    closing.callback(pool.close)
    outside = Outside(pool, held_count_max=1, wait_ms_max=50)
    schemas, others = (rules(schema__validation="value", table__value__subjects=name).schemas for name in ("a", "b"))
    assert schemas is not None
    assert others is not None
    nothing = Examination(schemas, Views(key=None, value=None), 1, 1)

    async with outside.place(schemas):
        with pytest.raises(Unavailable):
            await outside.check(schemas, nothing)
        with pytest.raises(Unavailable):
            await take_place(outside, others)
        await outside.check(others, nothing)
    await outside.check(schemas, nothing)
    await take_place(outside, others)


async def take_place(outside: Outside, schemas: SchemaRules) -> None:
    """Take a place and give it back."""
    async with outside.place(schemas):
        pass


class Slow(ValueChecker):
    """Finds nothing wrong, and does not end with values of one schema before it is told to."""

    def __init__(self, slow: bytes) -> None:
        self._slow = slow
        self.begun, self.end = asyncio.Event(), asyncio.Event()

    @override
    def budget(self) -> Budget:
        return Budget(SchemasSettings())

    @override
    async def checked_values(self, schema: Compiled, values: Sequence[bytes], budget: Budget) -> CheckedValues:
        if self._slow in values:
            self.begun.set()
            await self.end.wait()
        return CheckedValues({}, len(values))


class Halving(Slow):
    """Checks half of several values, as if the answer for all were too large. A value is unfit if it is empty."""

    @override
    async def checked_values(self, schema: Compiled, values: Sequence[bytes], budget: Budget) -> CheckedValues:
        count = max(1, len(values) // 2)
        return CheckedValues({at: Invalid("is empty") for at in range(count) if not values[at]}, count)


@pytest.mark.parametrize("places", [[], [3], [0, 1, 2, 6, 7]], ids=["none", "end of a half", "several"])
async def test_values_after_an_answer_that_was_too_large_are_checked_too(
    closing: AsyncExitStack, places: list[int]
) -> None:
    door = doors(closing, (await opened(closing)).metadata, checker=Halving(b"none"))
    schema_id = await register(door.metadata, ORDER, type_=SchemaType.JSON)
    values = [head(schema_id) + (b"" if at in places else b"1") for at in range(8)]

    error = await door.check(VALUE, *values)

    assert (error is None) == (not places)
    if isinstance(error, BadRecord):
        assert bad(error) == places
        assert [*error.reasons] == ["value: is empty"] * len(places)


async def test_compressed_batches_that_wait_for_their_turn_leave_the_places_to_other_streams(
    closing: AsyncExitStack,
) -> None:
    slow = Slow(b"1")
    door = doors(closing, (await opened(closing)).metadata, checker=slow)
    ids = [await register(door.metadata, ORDER, subject, type_=SchemaType.JSON) for subject in ("a", "b")]
    a, b = (rules(schema__validation="value", table__value__subjects=subject) for subject in ("a", "b"))
    value, other = head(ids[0]) + b"1", head(ids[1]) + b"2"

    async with asyncio.TaskGroup() as group:
        checks = [group.create_task(door.check(a, value, compression=Compression.GZIP)) for _ in range(5)]
        await slow.begun.wait()
        found = await door.check(b, other, compression=Compression.GZIP)
        is_over = any(check.done() for check in checks)
        slow.end.set()

    assert found is None
    assert not is_over
    assert [check.result() for check in checks] == [None] * 5


async def test_records_of_rest_are_judged_one_by_one(closing: AsyncExitStack) -> None:
    door, schema_id = await json_door(closing, ORDER)
    assert VALUE.schemas is not None
    values = [None if value is None else head(schema_id) + value for value in (*GOOD, None, *BAD)]

    problems = await door.checks.problems(VALUE.schemas, [None] * len(values), values)

    assert list(problems) == list(range(len(GOOD) + 1, len(values)))


async def test_without_processes_values_of_json_are_refused_by_name(closing: AsyncExitStack) -> None:
    door = await opened(closing)
    schema_id = await register(door.metadata, ORDER, type_=SchemaType.JSON)

    error = await door.check(VALUE, head(schema_id) + GOOD[0])

    assert bad(error) == [0]
    assert "of type JSON" in str(error)


async def test_values_of_declared_columns_must_fit_them_and_need_no_registry(closing: AsyncExitStack) -> None:
    door = await opened(closing)
    good = [b"{}", b'{"id": 1, "price": "9999.99", "tags": ["a", null], "more": [1]}', b"null"]
    wrong = [b'{"id": "1"}', b'{"price": 10000}', b'{"tags": "a"}', b"1", b"", b"{"]

    assert await door.check(COLUMNS, *good, None) is None
    assert door.at_once(COLUMNS, *good) is True
    error = await door.check(COLUMNS, *good, *wrong)

    assert bad(error) == list(range(3, 9))
    assert isinstance(error, BadRecord)
    assert [reason.rpartition(": ")[2] for reason in error.reasons] == [
        "TYPE at id",
        "RANGE at price",
        "TYPE at tags",
        "TYPE",
        "TRUNCATED",
        "TRUNCATED",
    ]


async def test_wide_columns_are_not_checked_on_the_event_loop(closing: AsyncExitStack) -> None:
    door = await opened(closing)
    wide = rules(schema__validation="value", table__columns=", ".join(f"c{at} long" for at in range(900)))
    assert await door.check(wide, b"{}") is None

    assert door.at_once(wide, *[b"{}"] * 1_000) is False
    assert bad(await door.check(wide, *[b"{}"] * 5_000, b'{"c7": "x"}')) == [5_000]


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"table.columns": "id bigint"}, "expected one of the types"),
        ({"table.columns": "id long", "table.value.schema_id": "7"}, "unset table.value.schema_id"),
        ({"table.columns": "id long", "table.value.subjects": "a"}, "unset table.value.schema_id"),
        ({"table.columns": "id long", "schema.validation": "id"}, "expected value or none"),
    ],
)
def test_configs_that_contradict_declared_columns_are_refused(configs: dict[str, str], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        config_changes.check_consistent(configs)


def test_declared_columns_may_change_only_as_tables_can() -> None:
    before = {"table.columns": "id int, name string"}

    config_changes.check_change(before, {"table.columns": "id long, name string, more date"}, ())
    config_changes.check_change(before, {}, ("table.columns",))
    with pytest.raises(Invalid, match="column id cannot become string"):
        config_changes.check_change(before, {"table.columns": "id string"}, ())
    assert schema_rules("orders", before) is None
