# ruff: noqa: SLF001 - counts the work of the store and of the children
"""Client-supplied schemas and their values cost a bounded amount of work, and only in child processes."""

import asyncio
import gc
import json
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bearlake.errors import Invalid, Overloaded
from bearlake.metadata.open import open_metadata
from bearlake.metadata.schemas import Deletion, SchemaRow, SubjectKey, VersionKey
from bearlake.streams.principal import ANONYMOUS
from bearlake.streams.schemas import rules
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.confined import work
from bearlake.streams.schemas.confined.frames import packed, unpacked
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.model import Draft, Reference, SchemaType
from bearlake.streams.schemas.payloads import Choice, Payloads
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values import wire
from bearlake.streams.schemas.values.model import Unfit

HONEST = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})


@asynccontextmanager
async def registry(store: Any = None, **settings: Any) -> AsyncIterator[tuple[Schemas, Payloads]]:
    metadata = await open_metadata("memory:///")
    schemas = Schemas(metadata.schemas if store is None else store(metadata.schemas), SchemasSettings(**settings))
    try:
        yield schemas, Payloads(schemas)
    finally:
        schemas.close()
        await metadata.close()


async def written(
    payloads: Payloads, type_: SchemaType, text: str, *values: Any, topic: str = "t"
) -> list[bytes | Unfit | None]:
    budget = payloads.budget()
    writer = await payloads.writer(ANONYMOUS, Choice(type=type_, text=text), topic, "value", budget)
    return await payloads.write_all(writer, [json.dumps(value).encode() for value in values], budget)


# -- where client-supplied schemas run ---------------------------------------------------------------------------


def test_the_server_process_has_no_code_to_evaluate_schemas() -> None:
    """The modules of the server's side are loaded in a new process: none of them loads a compiler or a validator."""
    names = ["avro", "jsonschema", "jsonschema_rs", "referencing", "grpc_tools", "bearlake.streams.schemas.parsing"]
    program = (
        "import sys, bearlake.streams.schemas.service, bearlake.streams.schemas.payloads, bearlake.protocols.rest.server\n"
        f"print([one for one in {names} if one in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"


# -- values that cost more than their size (records, references, patterns, messages) --------------------------------


def doubling_records(level_count: int) -> str:
    """Each record has its predecessor twice: a value of no bytes has 2^n records."""
    inner: dict[str, Any] = {"type": "record", "name": "R0", "fields": []}
    for at in range(1, level_count + 1):
        fields = [{"name": "a", "type": inner, "default": {}}, {"name": "b", "type": f"R{at - 1}", "default": {}}]
        inner = {"type": "record", "name": f"R{at}", "fields": fields}
    return json.dumps(inner)


def doubling_references(level_count: int) -> str:
    """A schema that looks at its value twice as often for each level. `$id`, which draft 4 does not know, stands next to its `id`."""
    levels = {f"d{at}": {"anyOf": [{"$ref": f"#/definitions/d{at + 1}"}] * 2} for at in range(level_count)}
    own = {"definitions": {**levels, f"d{level_count}": {"type": "null"}}, "allOf": [{"$ref": "#/definitions/d0"}]}
    return json.dumps(
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "definitions": {"d0": {"type": "null"}},
            "items": {"$id": 5, "id": "http://a.example/inner", **own},
        }
    )


PATTERN = json.dumps({"type": "array", "items": {"not": {"pattern": r"^(?=a)((a|a?)+)+\1$"}}})
"""Two more characters make it four times as slow. With 13 characters, each value takes over a ms and stays below the limit of one match."""


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (SchemaType.AVRO, doubling_records(24), {}),
        (SchemaType.JSON, doubling_references(30), [0]),
        (SchemaType.JSON, PATTERN, ["a" * 12 + "!"] * 4_000),
    ],
    ids=["avro records", "a JSON Schema whose $id is a number", "a catastrophic pattern"],
)
async def test_values_that_take_too_long_are_ended_with_their_child(type_: SchemaType, text: str, value: Any) -> None:
    async with registry(value_time_ms_max=100) as (_, payloads):
        with pytest.raises(SchemaTooLarge, match=r"needs more than 0\.\d+ s of processor time"):
            await written(payloads, type_, text, value)

        assert await written(payloads, SchemaType.AVRO, HONEST, {"id": 1}, topic="u") == [wire.head(2) + b"\2"]


async def test_bytes_that_take_too_long_to_read_are_ended_and_those_before_are_read() -> None:
    async with registry(value_time_ms_max=100) as (schemas, payloads):
        text = json.dumps({"type": "record", "name": "T", "fields": [
            {"name": "some", "type": ["null", json.loads(doubling_records(24))]}
        ]})  # fmt: skip
        found = await schemas.register(ANONYMOUS, "t-value", Draft(text=text))
        head = wire.head(found.schema.id)
        values = [head + b"\0", None, head + b"\0", head + b"\2", head + b"\0"]
        texts, error = await payloads.read_all(ANONYMOUS, values, SchemaType.AVRO, payloads.budget())

    assert texts == [b'{"some":null}', None, b'{"some":null}']
    assert isinstance(error, Unfit)
    assert "processor time" in str(error)


async def test_messages_whose_json_is_far_larger_than_their_bytes_end_the_answer() -> None:
    """Each submessage is two bytes, and prints its 60 default values."""
    fields = " ".join(f"int32 a_field_with_a_long_name_{at} = {at};" for at in range(2, 62))
    text = f'syntax = "proto3"; message M {{ repeated M inner = 1; {fields} }}'
    async with registry(value_bytes_max=100_000, value_growth_max=2, value_time_ms_max=10_000) as (schemas, payloads):
        found = await schemas.register(ANONYMOUS, "t-value", Draft(type=SchemaType.PROTOBUF, text=text))
        head = wire.head(found.schema.id) + b"\0"
        few, many = head + b"\x0a\0" * 10, head + b"\x0a\0" * 1_000
        before = await payloads.read_all(ANONYMOUS, [few, many, few], SchemaType.PROTOBUF, payloads.budget())
        alone = await payloads.read_all(ANONYMOUS, [many, few], SchemaType.PROTOBUF, payloads.budget())

    assert len(before.texts) == 1
    assert before.error is None  # the next request begins with the large record
    assert alone.texts == []
    assert "become larger than" in str(alone.error)


async def test_defaults_do_not_multiply_a_request() -> None:
    text = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string", "default": "x" * 50_000}]}
    )
    async with registry(value_bytes_max=100_000) as (_, payloads):
        assert len((await written(payloads, SchemaType.AVRO, text, {}))[0] or b"") > 50_000  # type: ignore[arg-type]
        with pytest.raises(SchemaTooLarge, match="become larger than"):
            await written(payloads, SchemaType.AVRO, text, *[{}] * 1_000)


async def test_a_value_is_nested_up_to_the_limit() -> None:
    def nested(depth: int) -> Any:
        value: Any = 0
        for _ in range(depth):
            value = [value]
        return value

    async with registry(value_depth_max=20) as (_, payloads):
        found = await written(payloads, SchemaType.JSON, "true", nested(20), nested(21))

    assert isinstance(found[0], bytes)
    assert isinstance(found[1], Unfit)
    assert "nested more than 20 levels" in str(found[1])


async def test_values_that_fill_the_memory_of_their_child_do_not_harm_the_next() -> None:
    """The child had earlier requests, so the values are read again in a new child before they are refused."""
    octets = b"[" + b"[]," * 500_000 + b"[]]"
    async with registry(compile_memory_bytes_max=24 * 1024 * 1024) as (schemas, payloads):
        found = await schemas.register(ANONYMOUS, "t-value", Draft(type=SchemaType.JSON, text="true"))
        head = wire.head(found.schema.id)
        before = await payloads.read_all(ANONYMOUS, [head + b"1"], SchemaType.JSON, payloads.budget())
        answer = await payloads.read_all(ANONYMOUS, [head + octets], SchemaType.JSON, payloads.budget())
        after = await payloads.read_all(ANONYMOUS, [head + b"2"], SchemaType.JSON, payloads.budget())

    assert (before.texts, after.texts) == ([b"1"], [b"2"])
    assert answer.texts == []
    assert "24 MiB of memory" in str(answer.error)


# -- budgets -------------------------------------------------------------------------------------------------------


def test_the_children_of_one_request_share_its_time() -> None:
    budget = Budget(SchemasSettings(request_time_ms_max=1_000, compile_time_ms_max=800))
    first = budget.compiling(1).processor_ms
    budget.spend(700)
    second = budget.compiling(1).processor_ms
    budget.spend(300)

    assert (first, second) == (800, 300)
    with pytest.raises(SchemaTooLarge, match="The request needs more than 1 s"):
        budget.compiling(1)


def test_time_and_output_grow_with_the_request_up_to_a_limit() -> None:
    budget = Budget(SchemasSettings(request_time_ms_max=10_000))
    small, large = budget.evaluating(1_000), budget.evaluating(1024 * 1024)

    assert small.processor_ms <= 1_010
    assert small.answer_bytes == 1024 * 1024 + 16_000
    assert large.processor_ms == 3_000
    assert budget.evaluating(1 << 40).answer_bytes == 32 * 1024 * 1024


# -- the queue -----------------------------------------------------------------------------------------------------


async def test_the_queue_is_bounded_by_bytes_and_a_small_request_still_fits() -> None:
    pool = Pool(SchemasSettings(compile_count_max=1, compile_queue_bytes_max=10_000))
    large = json.dumps({"type": "string", "doc": "x" * 9_000})
    try:
        found = await asyncio.gather(
            *(pool.compiled("AVRO", text, {}) for text in (large, large, '"string"')), return_exceptions=True
        )
    finally:
        pool.close()

    assert [type(result).__name__ for result in found] == ["Compiled", "Overloaded", "Compiled"]


# -- references, lists, configs ------------------------------------------------------------------------------------


class Counting:
    """A store that counts the schemas that it returns."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.loaded: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def schemas(self, context: str, ids: Collection[int]) -> Sequence[SchemaRow]:
        self.loaded += ids
        found: Sequence[SchemaRow] = await self._store.schemas(context, ids)
        return found


def text_of(at: int, size_bytes: int) -> str:
    return json.dumps({"type": "record", "name": f"R{at}", "fields": [], "doc": "x" * size_bytes})


async def test_references_are_loaded_up_to_the_limit_of_their_size() -> None:
    async with registry() as (schemas, _):
        counting = Counting(schemas._store)
        limited = Schemas(counting, SchemasSettings(schema_bytes_max=10_000))
        try:
            references = []
            for at in range(20):
                await schemas.register(ANONYMOUS, f"s{at}", Draft(text=text_of(at, 4_000)))
                references.append(Reference(name=f"R{at}", version=VersionKey(SubjectKey(".", f"s{at}"), 1)))
            with pytest.raises(SchemaTooLarge, match="the limit is 10000"):
                await limited.register(ANONYMOUS, "t", Draft(text='"R0"', references=tuple(references)))
        finally:
            limited.close()

    assert len(counting.loaded) == 3


async def test_a_list_of_schemas_has_bounded_size_and_continues_by_offset() -> None:
    async with registry() as (schemas, _):
        for at in range(40):
            await schemas.register(ANONYMOUS, f"s{at:02}", Draft(text=text_of(at, 4_000)))
        counting = Counting(schemas._store)
        limited = Schemas(counting, SchemasSettings(schema_list_bytes_max=20_000))
        narrow = Schemas(counting, SchemasSettings(schema_list_bytes_max=1))
        try:
            found = await limited.all_versions(ANONYMOUS, "", Deletion.LIVE)
            loaded = len(counting.loaded)
            rest = await limited.all_versions(ANONYMOUS, "", Deletion.LIVE, offset=len(found))
            smallest = await narrow.all_versions(ANONYMOUS, "", Deletion.LIVE)
        finally:
            limited.close()
            narrow.close()

    assert len(found) == 4
    assert loaded <= 16
    assert rest[0].subject.name == "s04"
    assert len(smallest) == 1


@pytest.mark.parametrize("part", ["metadata", "rule_set"])
async def test_metadata_and_rules_count_as_the_schema(part: str) -> None:
    large = {"properties": {"a": "x" * 2_000}}
    async with registry(schema_bytes_max=1_000) as (schemas, _):
        with pytest.raises(SchemaTooLarge, match="with its metadata and rules"):
            await schemas.register(ANONYMOUS, "t", Draft(text=HONEST, **{part: large}))  # type: ignore[arg-type]


async def test_a_config_has_bounded_size_however_many_requests_set_it() -> None:
    async with registry(config_bytes_max=1_000) as (schemas, _):
        await schemas.set_config(ANONYMOUS, "t", {"defaultMetadata": {"properties": {"a": "x" * 600}}})
        with pytest.raises(SchemaTooLarge, match="the config has"):
            await schemas.set_config(ANONYMOUS, "t", {"overrideMetadata": {"properties": {"a": "x" * 600}}})
        with pytest.raises(SchemaTooLarge, match="the config has"):
            await schemas.set_config(ANONYMOUS, "u", {"alias": "x" * 1_001})


async def test_metadata_nested_without_end_is_refused() -> None:
    nested: Any = {}
    for _ in range(3_000):
        nested = {"a": nested}
    async with registry() as (schemas, _):
        with pytest.raises(Invalid, match="nested more than 64 levels"):
            await schemas.register(ANONYMOUS, "t", Draft(text=HONEST, metadata={"more": nested}))
        with pytest.raises(Invalid, match="nested more than 64 levels"):
            await schemas.set_config(ANONYMOUS, "t", {"defaultMetadata": {"more": nested}})


class Text(str):
    """A text that counts its comparisons."""

    __slots__ = ()
    count = 0

    def __eq__(self, other: object) -> bool:
        Text.count += 1
        return str.__eq__(self, str(other))

    __hash__ = str.__hash__


def test_rules_are_merged_in_time_proportional_to_their_number() -> None:
    first, second = ([{"name": Text(f"{part}{at}")} for at in range(2_000)] for part in "ab")
    Text.count = 0
    _, merged = rules.with_defaults({"defaultRuleSet": {"domainRules": first}}, None, {"domainRules": second})

    assert len(merged["domainRules"]) == 4_000
    assert Text.count < 8_000


# -- other schemas go on -------------------------------------------------------------------------------------------

SLOW = "".join(f"message M{at} {{}}" for at in range(60_000))


async def test_a_slow_schema_does_not_delay_others_of_its_subject() -> None:
    """The slow schema gets no processor time at all before the other one is registered."""
    async with registry() as (schemas, _):
        await schemas.register(ANONYMOUS, "t", Draft(text=HONEST))
        release, asked = asyncio.Event(), asyncio.Event()
        pool = schemas._library._pool
        compile_now = pool.compiled

        async def compiled(type_name: str, *rest: Any) -> Any:
            if type_name == "PROTOBUF":
                asked.set()
                await release.wait()
            return await compile_now(type_name, *rest)

        pool.compiled = compiled  # type: ignore[method-assign]
        slow = asyncio.create_task(
            schemas.register(ANONYMOUS, "t", Draft(type=SchemaType.PROTOBUF, text="message M {}"))
        )
        await asked.wait()
        async with asyncio.timeout(60):
            again = await schemas.register(ANONYMOUS, "t", Draft(text=HONEST))
            await schemas.set_config(ANONYMOUS, "t", {"compatibilityLevel": "NONE"})
        release.set()
        late = await slow

    assert again.number == 1
    assert late.number == 2  # decided by the config at that time


async def test_a_slow_comparison_does_not_delay_others_of_its_subject() -> None:
    wider = json.dumps({"type": "record", "name": "R", "fields": []})
    async with registry() as (schemas, _):
        await schemas.register(ANONYMOUS, "t", Draft(text=HONEST))
        release, asked = asyncio.Event(), asyncio.Event()
        library = schemas._library
        compare_now = library.incompatibilities

        async def incompatibilities(*pair: Any) -> list[str]:
            asked.set()
            await release.wait()
            return await compare_now(*pair)

        library.incompatibilities = incompatibilities  # type: ignore[method-assign]
        slow = asyncio.create_task(schemas.register(ANONYMOUS, "t", Draft(text=wider)))
        await asked.wait()
        async with asyncio.timeout(60):
            assert await schemas.delete_version(ANONYMOUS, "t", 1) == 1
        release.set()
        late = await slow

    assert late.number == 2


async def test_a_schema_that_is_killed_leaves_its_subject_free() -> None:
    async with registry(compile_time_ms_max=300) as (schemas, _):
        with pytest.raises(SchemaTooLarge, match="processor time"):
            await schemas.register(ANONYMOUS, "t", Draft(type=SchemaType.PROTOBUF, text=SLOW))
        found = await schemas.register(ANONYMOUS, "t", Draft(text=HONEST))

    assert found.number == 1


# -- errors of compilers -------------------------------------------------------------------------------------------


def test_an_unexpected_error_of_a_compiler_is_a_fault_of_its_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(work.parsing, "compiled", broken)
    head, _ = unpacked(work.answer(packed({"work": "compile", "type": "AVRO", "references": []}, [b"{}"])))

    assert head == {"error": "IndexError: list index out of range"}


async def test_a_fault_of_a_compiler_is_an_invalid_schema() -> None:
    class Faulty(Pool):
        async def fault(self) -> Any:
            return await self._compile(
                lambda: packed({"work": "compile", "type": "NONE", "references": []}, [b""]), 1, None
            )

    pool = Faulty(SchemasSettings())
    try:
        with pytest.raises(InvalidSchema, match="its compiler failed on it"):
            await pool.fault()
    finally:
        pool.close()


async def test_waiting_values_are_refused_beyond_the_queue() -> None:
    async with registry(value_count_max=1, value_queue_count_max=0) as (_, payloads):
        budget = payloads.budget()
        writer = await payloads.writer(ANONYMOUS, Choice(type=SchemaType.AVRO, text=HONEST), "t", "value", budget)
        found = await asyncio.gather(
            *(payloads.write_all(writer, [b'{"id": 1}'], budget) for _ in range(2)), return_exceptions=True
        )

    assert isinstance(found[0], list)
    assert isinstance(found[1], Overloaded)


async def test_the_values_of_one_request_have_a_common_limit_however_many_schemas_they_have() -> None:
    """Each value of two bytes is a list of 1,000 records of no bytes, whose field has a name of 500 letters."""
    async with registry(value_answer_bytes_max=1_000_000) as (schemas, payloads):
        values = []
        for at in range(6):
            item = {"type": "record", "name": "Item", "fields": [{"name": "n" * 500, "type": "null"}]}
            text = json.dumps({"type": "array", "items": item, "doc": str(at)})
            found = await schemas.register(ANONYMOUS, f"s{at}", Draft(type=SchemaType.AVRO, text=text))
            values.append(wire.head(found.schema.id) + b"\xd0\x0f\x00")
        read = await payloads.read_all(ANONYMOUS, values, SchemaType.AVRO, payloads.budget())

        assert len({wire.split(value)[0] for value in values}) == 6
        assert [len(text or b"") for text in read.texts] == [510_001] * 2
        assert read.error is None


async def test_a_request_that_was_given_up_keeps_no_values_in_the_queue() -> None:
    class Values(list[bytes]):
        """A list with weak references."""

    async with registry(value_count_max=1) as (schemas, payloads):
        found = await schemas.register(ANONYMOUS, "s", Draft(type=SchemaType.AVRO, text=doubling_records(24)))
        budget = payloads.budget()
        slow = asyncio.create_task(schemas.written(found.schema, [b"{}"], budget))
        await asyncio.sleep(0.2)
        values = Values([b"{}"])
        kept = weakref.ref(values)
        given_up = asyncio.create_task(schemas.written(found.schema, values, payloads.budget()))
        del values
        await asyncio.sleep(0.05)
        given_up.cancel()
        await asyncio.wait([given_up])
        del given_up
        await asyncio.sleep(0.05)
        gc.collect()

        assert not slow.done()
        assert kept() is None
        with pytest.raises(SchemaTooLarge):
            await slow


async def test_the_reasons_of_many_values_are_bounded() -> None:
    """Each reason names the schema's fields and an unknown one."""
    fields = [{"name": f"a_field_with_a_long_name_{at}", "type": "int", "default": 0} for at in range(40)]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})
    async with registry() as (_, payloads):
        found = await written(payloads, SchemaType.AVRO, text, *({"x" * 100: 0} for _ in range(1_000)))

        assert all(isinstance(result, Unfit) for result in found)
        assert str(found[0]).startswith("the schema has no field")
        assert sum(len(str(result)) for result in found) < 100_000
