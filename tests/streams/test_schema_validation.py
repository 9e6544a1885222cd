"""Validation of records by their schemas: what is good, what is looked up when, and what is bounded."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bearlake.errors import Invalid, Unavailable
from bearlake.metadata.faulty import FaultyMetadata, MetadataFaults
from bearlake.metadata.open import open_metadata
from bearlake.records.batch import Compression
from bearlake.records.codec import Record, encode
from bearlake.streams import config_changes, configs
from bearlake.streams.admission import Header, admit
from bearlake.streams.catalog import StreamView
from bearlake.streams.checking import BadRecord, Checked, Checks, CheckSettings
from bearlake.streams.configs import StreamRules
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.values.wire import head
from bearlake.streams.validation.settings import ValidationSettings
from bearlake.streams.value_rules import schema_rules
from bearlake.telemetry import metrics
from fixtures.avro_cases import number, record, text
from fixtures.registered import SilentRegistry, register, unregister
from fixtures.schema_door import ID, VALUE, Door, bad, doors, lookups, opened, rules, rules_of_one

ORDER = record("string", "long")
GOOD = text("x") + number(7)
BAD = text("x")


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgresql_url")
        return found
    return "memory:///" if request.param == "memory" else f"sqlite://{tmp_path}/metadata.db"


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def door(closing: AsyncExitStack) -> Door:
    return await opened(closing)


@pytest.mark.parametrize("compression", list(Compression))
async def test_each_bad_value_of_a_batch_is_named_with_its_reason(
    closing: AsyncExitStack, url: str, compression: Compression
) -> None:
    door = await opened(closing, url)
    schema_id = await register(door.metadata, ORDER)
    other_id = await register(door.metadata, record("int") | {"name": "Other"}, "refunds-value")
    good = head(schema_id) + GOOD

    values = [
        good,
        b"",
        b"\0\0\0",
        b"\1" + good[1:],
        head(other_id) + GOOD,
        head(999) + GOOD,
        None,
        head(schema_id) + BAD,
    ]
    by_id = await door.check(ID, *values, compression=compression)
    by_value = await door.check(VALUE, *values, compression=compression)

    assert await door.check(ID, good, None, compression=compression) is None
    assert await door.check(VALUE, good, None, compression=compression) is None
    assert bad(by_id) == [1, 2, 3, 4, 5]
    assert bad(by_value) == [1, 2, 3, 4, 5, 7]
    assert isinstance(by_value, BadRecord)
    assert by_value.reasons[0] == "value: expected a schema id in front (0 and four bytes)"
    assert by_value.reasons[3] == f"value: schema {other_id} is not registered under orders-value"
    assert by_value.reasons[-1].endswith("TRUNCATED at f1")
    assert "record 1: value: expected a schema id" in str(by_value)


async def test_keys_have_rules_and_subjects_of_their_own(door: Door) -> None:
    key_id = await register(door.metadata, "int", "orders-key")
    value_id = await register(door.metadata, ORDER)
    given = rules(schema__key__validation="value")
    both = rules(schema__key__validation="value", schema__validation="id")

    good, wrong = head(key_id) + number(1), head(value_id) + GOOD
    assert await door.check(given, b"anything", b"else", keys=[good, None]) is None
    assert bad(await door.check(given, b"", b"", keys=[wrong, head(key_id)])) == [0, 1]
    assert bad(await door.check(both, wrong, b"", keys=[good, good])) == [1]
    assert bad(await door.check(rules(schema__key__validation="id", schema__key__subjects="k"), b"", keys=[good])) == [
        0
    ]


async def test_a_batch_of_many_schemas_is_decoded_by_each(door: Door) -> None:
    ids = [await register(door.metadata, record("int") | {"name": f"R{at}"}) for at in range(3)]
    values = [head(ids[at % 3]) + (b"" if at in (100, 4099, 8000) else number(at)) for at in range(9_000)]

    assert bad(await door.check(VALUE, *values)) == [100, 4099, 8000]


async def test_all_values_may_have_one_schema_and_no_id(door: Door) -> None:
    schema_id = await register(door.metadata, ORDER, "anywhere")
    given = rules_of_one(schema_id)

    assert await door.check(given, GOOD, None) is None
    assert bad(await door.check(given, GOOD, BAD)) == [1]
    assert "no such schema" in str(await door.check(rules_of_one(999), GOOD))


@pytest.mark.parametrize("type_", [SchemaType.PROTOBUF, SchemaType.JSON])
async def test_values_of_a_type_that_cannot_be_decoded_here_are_refused_by_its_name(
    door: Door, type_: SchemaType
) -> None:
    schema_id = await register(door.metadata, "{}", type_=type_)

    error = await door.check(VALUE, head(schema_id) + GOOD)

    assert bad(error) == [0]
    assert f"it is of type {type_.value}" in str(error)
    assert await door.check(ID, head(schema_id) + GOOD) is None


async def test_a_schema_that_refers_to_others_is_checked_with_them(door: Door) -> None:
    await register(door.metadata, record("int") | {"name": "Inner"}, "inner")
    schema_id = await register(door.metadata, record("Inner", "Inner") | {"name": "Outer"}, refers={"Inner": "inner"})

    assert await door.check(VALUE, head(schema_id) + number(1) * 2) is None
    assert bad(await door.check(VALUE, head(schema_id) + number(1))) == [0]


# -- look-ups ------------------------------------------------------------------------------------------------------


async def test_a_known_schema_is_checked_at_once_without_a_look_up(door: Door) -> None:
    schema_id = await register(door.metadata, ORDER)
    assert door.at_once(VALUE, head(schema_id) + GOOD) is False
    assert await door.check(VALUE, head(schema_id) + GOOD) is None
    before = lookups()

    assert door.at_once(VALUE, head(schema_id) + GOOD) is True
    assert door.at_once(VALUE, head(schema_id) + BAD) is False  # a thread finds the reason
    assert bad(await door.check(VALUE, head(schema_id) + BAD)) == [0]
    assert lookups() == before


async def test_a_schema_that_was_registered_a_moment_ago_on_another_server_is_known(
    closing: AsyncExitStack, url: str
) -> None:
    door = await opened(closing, url)
    other = door.metadata if url == "memory:///" else (await opened(closing, url)).metadata
    first = await register(other, ORDER)
    assert await door.check(VALUE, head(first) + GOOD) is None
    assert bad(await door.check(VALUE, head(first + 1) + number(3))) == [0]  # unknown, and not remembered as such
    second = await register(other, record("int") | {"name": "Second"})

    assert second == first + 1
    assert await door.check(VALUE, head(second) + number(3), head(first) + GOOD) is None


async def test_batches_that_arrived_together_share_a_look_up(door: Door) -> None:
    await register(door.metadata, ORDER)
    before, since = lookups(), asyncio.get_running_loop().time()

    found = [await door.check(ID, head(900 + at), since=since) for at in range(50)]
    together = await asyncio.gather(*(door.check(ID, head(900 + at)) for at in range(50)))

    assert [bad(error) for error in [*found, *together]] == [[0]] * 100
    assert lookups() - before <= 4


async def test_ids_that_are_unknown_again_and_again_are_looked_up_with_a_pause(closing: AsyncExitStack) -> None:
    door = await opened(closing, pause_ms=50)
    loop = asyncio.get_running_loop()
    began = loop.time()

    for _ in range(4):
        assert bad(await door.check(ID, head(1))) == [0]

    assert loop.time() - began >= 0.15


async def test_a_deleted_version_is_refused_when_what_is_known_has_expired(closing: AsyncExitStack) -> None:
    door = await opened(closing, cached_ms=60_000)
    short = doors(closing, door.metadata, cached_ms=0)
    schema_id = await register(door.metadata, ORDER)
    good = head(schema_id) + GOOD
    assert await door.check(VALUE, good) is await short.check(VALUE, good) is None
    await unregister(door.metadata, "orders-value", 1)

    assert await door.check(VALUE, good) is None
    assert bad(await short.check(VALUE, good)) == [0]


@pytest.mark.parametrize("validation", [ID, VALUE])
async def test_a_registry_that_does_not_answer_is_a_retriable_error(
    closing: AsyncExitStack, validation: StreamRules
) -> None:
    door = await opened(closing)
    schema_id = await register(door.metadata, ORDER)
    silent = SilentRegistry(door.metadata.schemas)
    checks = Checks(CheckSettings(schemas=ValidationSettings(wait_ms_max=20)), silent)
    closing.callback(checks.close)
    stuck = Door(door.metadata, checks)

    error = await stuck.check(validation, head(schema_id) + GOOD)
    silent.speak()

    assert isinstance(error, Unavailable)
    assert "schema registry did not answer" in str(error)
    while (
        again := await stuck.check(validation, head(schema_id) + GOOD)
    ) is not None:  # a busy machine may need longer
        assert isinstance(again, Unavailable)


async def test_an_error_of_the_store_is_that_of_the_batch(closing: AsyncExitStack) -> None:
    inner = await opened(closing)
    faulty = FaultyMetadata(inner.metadata, MetadataFaults(error_rate=1.0), random.Random(1))
    door = doors(closing, faulty)
    schema_id = await register(inner.metadata, ORDER)

    error = await door.check(VALUE, head(schema_id) + GOOD)
    faulty.misbehave(MetadataFaults())

    assert isinstance(error, Unavailable)
    assert await door.check(VALUE, head(schema_id) + GOOD) is None


async def test_a_schema_of_keys_may_be_forgotten_while_those_of_values_are_looked_up(closing: AsyncExitStack) -> None:
    size = len(json.dumps(record("int") | {"name": "Key"}))
    door = await opened(closing, cache_bytes_max=size)
    key_id = await register(door.metadata, record("int") | {"name": "Key"}, "orders-key")
    value_id = await register(door.metadata, record("int") | {"name": "One"})
    both = rules(schema__key__validation="value", schema__validation="value")
    key, value = head(key_id) + number(1), head(value_id) + number(2)
    assert await door.check(both, None, keys=[key]) is None

    assert await door.check(both, value, keys=[key]) is None
    assert bad(await door.check(both, value, value[:-1], keys=[key, key])) == [1]


async def test_a_batch_whose_reported_problems_are_complete_needs_no_look_up(door: Door) -> None:
    before = lookups()

    assert bad(await door.check(ID, head(7), *[b"none"] * 100)) == list(range(1, 101))
    assert lookups() == before


# -- bounds --------------------------------------------------------------------------------------------------------


async def test_a_batch_may_name_a_bounded_number_of_schemas(closing: AsyncExitStack) -> None:
    door = await opened(closing, batch_schema_count_max=20)
    before = lookups()

    error = await door.check(ID, *(head(at) for at in range(5_000)))

    assert isinstance(error, BadRecord)
    assert "more than 20 schemas" in str(error)
    assert lookups() == before
    assert bad(await door.check(ID, *(head(at) for at in range(20)))) == list(range(20))


async def test_a_bounded_number_of_bad_records_is_named(door: Door) -> None:
    error = await door.check(ID, *[b"none"] * 5_000)

    assert bad(error) == list(range(100))
    assert str(error).startswith("100 or more records")


async def test_what_is_kept_is_bounded(closing: AsyncExitStack) -> None:
    size = len(json.dumps(record("int") | {"name": "R0"}))
    door = await opened(closing, cache_bytes_max=3 * size, id_count_max=5)
    for at in range(10):
        schema_id = await register(door.metadata, record("int") | {"name": f"R{at}"}, f"s{at}-value")
        given = rules(schema__validation="value", table__value__subjects=f"s{at}-value")
        assert await door.check(given, head(schema_id) + number(1)) is None

    assert metrics.APPEND_SCHEMAS.labels("ids").value <= 5
    assert metrics.APPEND_SCHEMAS.labels("bytes").value <= 3 * size


async def test_a_batch_of_large_schemas_or_many_of_them_is_no_work_for_the_event_loop(door: Door) -> None:
    ids = [await register(door.metadata, record("int") | {"name": f"R{at}"}) for at in range(9)]
    values = [head(schema_id) + number(1) for schema_id in ids]
    assert await door.check(VALUE, *values) is None

    assert door.at_once(VALUE, *values[:8]) is True
    assert door.at_once(VALUE, *values) is False
    assert await door.check(VALUE, *values) is None


# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"schema.validation": "all"}, "schema.validation"),
        ({"schema.key.subjects": ":.a:x,:.b:y"}, "schema.key.subjects: subjects of several contexts"),
        ({"schema.validation": "id", "table.value.schema_id": "4"}, "schema.validation=id"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(given: dict[str, str], message: str) -> None:
    def check() -> None:
        configs.check(given)
        config_changes.check_consistent(given)

    with pytest.raises(Invalid, match=message):
        check()


def test_a_stream_without_the_setting_keeps_the_fast_path() -> None:
    assert configs.rules({}, schema_rules("orders", {})).is_plain
    assert not ID.is_plain
    assert not rules(schema__key__validation="value").is_plain


def test_a_stream_whose_schemas_are_validated_has_its_records_checked() -> None:
    assert rules(schema__validation="id", record__validation="header").validates_records


def test_a_batch_that_was_not_validated_is_never_admitted(view_of_orders: StreamView) -> None:
    batch = encode([Record(value=b"v", timestamp=1)])
    header = Header(0, 1, 1, 1, -1, -1, -1)

    with pytest.raises(AssertionError, match="validated"):
        admit(view_of_orders, 0, batch, None, header, 1, Checked.RECORDS)


@pytest.fixture
async def view_of_orders(closing: AsyncExitStack) -> StreamView:
    from bearlake.metadata.model import StreamSpec

    metadata = await open_metadata("memory:///")
    closing.push_async_callback(metadata.close)
    spec = StreamSpec(name="orders", partition_count=1, configs={"schema.validation": "id"})
    return StreamView(await metadata.streams.create(spec))
