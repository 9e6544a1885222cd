"""CREATE TABLE and ALTER TABLE through the catalog declare streams and their columns: PyIceberg as the engine."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException, ForbiddenError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    TimeType,
)

from bearlake.streams.access.rights import Right
from bearlake.streams.principal import Operation, Resource
from fixtures.catalog_server import CatalogNode, catalog_server
from fixtures.rights import all_but

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "price", DecimalType(10, 2)),
    NestedField(3, "tags", ListType(4, StringType())),
    NestedField(5, "place", StructType(NestedField(6, "x", IntegerType()), NestedField(7, "at", TimestamptzType()))),
    NestedField(8, "notes", MapType(9, StringType(), 10, BinaryType())),
)
TEXT = "id long, price decimal(10,2), tags list<string>, place struct<x int, at timestamptz>, notes map<string, binary>"
STREAM = {"bearlake.stream": "true"}
KEYS_OF_NO_SCHEMA = {"bearlake.config.table.key.mode": "keep", "bearlake.config.table.key.schema_id": "7"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[CatalogNode]:
    async with catalog_server(tmp_path) as found:
        yield found


async def created(server: CatalogNode, **options: Any) -> Any:
    """Create the table `streams.orders` of a stream."""
    given = {"schema": SCHEMA, "properties": STREAM} | options
    return await server.client(lambda catalog: catalog.create_table("streams.orders", **given))


def config(server: CatalogNode, name: str, stream: str = "orders") -> str | None:
    view = server.streams.peek(stream)
    return None if view is None else view.stream.configs.get(name)


async def test_a_table_of_a_stream_is_there_with_its_columns_before_the_first_record(server: CatalogNode) -> None:
    properties = {
        **STREAM,
        "bearlake.stream.name": "web.orders",
        "bearlake.stream.partitions": "3",
        "bearlake.config.retention.ms": "1000",
        "bearlake.config.schema.validation": "value",
    }
    table = await created(server, properties=properties)

    view = server.streams.peek("web.orders")
    assert view is not None
    assert view.partition_count == 3
    assert dict(view.stream.configs) == {
        "table.columns": TEXT,
        "table.namespace": "streams",
        "table.name": "orders",
        "retention.ms": "1000",
        "schema.validation": "value",
    }
    own = {field.name: str(field.field_type) for field in table.schema().fields if not field.name.startswith("_")}
    assert list(own) == ["id", "price", "tags", "place", "notes"]
    assert own["price"] == "decimal(10, 2)"
    loaded = await server.client(lambda catalog: catalog.load_table("streams.orders"))
    assert loaded.schema() == table.schema()
    assert not any(field.required for field in loaded.schema().fields if not field.name.startswith("_"))
    live = await server.client(lambda catalog: catalog.load_table("streams.orders"), warehouse="live")
    assert live.schema().find_field("price").field_type == DecimalType(10, 2)


async def test_columns_that_an_engine_adds_or_widens_are_declared(server: CatalogNode) -> None:
    await created(
        server,
        schema=Schema(
            NestedField(1, "id", IntegerType()), NestedField(2, "o", StructType(NestedField(3, "x", IntegerType())))
        ),
    )

    def alter(catalog: Any) -> Any:
        table = catalog.load_table("streams.orders")
        with table.update_schema() as update:
            update.add_column("name", StringType())
            update.add_column(("o", "y"), DecimalType(4, 1))
        with table.update_schema() as update:
            update.update_column("id", LongType())
        return table

    table = await server.client(alter)

    assert config(server, "table.columns") == "id long, o struct<x int, y decimal(4,1)>, name string"
    assert table.schema().find_field("id").field_type == LongType()
    assert table.schema().find_field("o.y").field_type == DecimalType(4, 1)
    book = await server.columns.get(1)
    assert '"name"' in book.text

    def rename(catalog: Any) -> Any:
        table = catalog.load_table("streams.orders")
        with table.update_schema() as update:
            update.rename_column("name", "title")
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("id")
        return table

    table = await server.client(rename)

    def rename_below(catalog: Any) -> Any:
        table = catalog.load_table("streams.orders")
        with table.update_schema() as update:
            update.rename_column(("o", "x"), "ex")
        with table.update_schema() as update:
            update.add_column(("o", "z"), LongType())
        return table

    assert [field.name for field in table.schema().fields if not field.name.startswith("_")] == ["o", "title"]
    assert config(server, "table.columns") == "id long, o struct<x int, y decimal(4,1)>, name string"
    table = await server.client(rename_below)
    assert [field.name for field in table.schema().find_field("o").field_type.fields] == ["ex", "y", "z"]
    assert config(server, "table.columns") == "id long, o struct<x int, y decimal(4,1), z long>, name string"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda update: update.add_column("at", TimeType()), "a stream has"),
        (lambda update: update.add_column("_pos", StringType()), "reserved"),
        (lambda update: update.add_column("ID", StringType()), "taken in another case"),
        (lambda update: update.add_column("m", MapType(1, LongType(), 2, LongType())), "keys of the map"),
        (lambda update: update.add_column("x", StringType()).rename_column("id", "key"), "does nothing else"),
        (lambda update: update.add_column("x", StringType()).delete_column("id"), "does nothing else"),
    ],
)
async def test_columns_that_a_stream_cannot_have_are_refused(server: CatalogNode, change: Any, reason: str) -> None:
    await created(server, schema=Schema(NestedField(1, "id", LongType())))

    def alter(catalog: Any) -> Any:
        update = catalog.load_table("streams.orders").update_schema(allow_incompatible_changes=True)
        change(update)
        update.commit()

    with pytest.raises((BadRequestError, ForbiddenError), match=reason):
        await server.client(alter)
    assert config(server, "table.columns") == "id long"


async def test_a_column_that_was_dropped_stays_dropped(server: CatalogNode) -> None:
    await created(server)

    def drop_and_add(catalog: Any) -> None:
        table = catalog.load_table("streams.orders")
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("price")
        with table.update_schema() as update:
            update.add_column("price", DecimalType(10, 2))

    with pytest.raises(BadRequestError, match="price was dropped or renamed"):
        await server.client(drop_and_add)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"schema": Schema(NestedField(1, "id", LongType(), required=True))}, "must be optional"),
        ({"schema": Schema(NestedField(1, "at", TimeType()))}, "a stream has"),
        ({"schema": Schema(NestedField(1, "_offset", LongType()))}, "_offset is reserved"),
        ({"schema": Schema(NestedField(1, "a", LongType()), NestedField(2, "A", LongType()))}, "there twice"),
        ({"schema": Schema()}, "expected columns"),
        ({"partition_spec": PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))}, "no partitions"),
        ({"sort_order": SortOrder(SortField(1, IdentityTransform()))}, "no sort order"),
        ({"location": "file:///tmp/elsewhere"}, "without a location"),
        ({"properties": STREAM | {"bearlake.stream.partitions": "none"}}, "expected a number"),
        ({"properties": STREAM | {"bearlake.config.no.such": "1"}}, "Unknown topic config"),
        ({"properties": STREAM | {"bearlake.config.table.name": "x"}}, "the statement itself says it"),
        ({"properties": STREAM | {"bearlake.config.schema.validation": "id"}}, "expected value or none"),
        ({"properties": STREAM | {"write.format.default": "orc"}}, "not one of a stream's table"),
        ({"properties": STREAM | {"bearlake.stream.name": "a/b"}}, "a/b"),
        ({"properties": STREAM | {"bearlake.config.table.enable": "False"}}, "has none to create"),
        (
            {"properties": STREAM | KEYS_OF_NO_SCHEMA},
            "table.key.schema_id = 7: the registry has no schema with this id",
        ),
        ({"properties": STREAM | KEYS_OF_NO_SCHEMA | {"bearlake.config.retention.ms": "x"}}, "retention.ms"),
    ],
)
async def test_tables_that_no_stream_can_have_are_refused_and_leave_nothing(
    server: CatalogNode, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadRequestError, match=reason):
        await created(server, **options)

    assert list(server.streams.names()) == []


async def test_a_table_has_as_many_columns_as_may_be_declared(server: CatalogNode) -> None:
    columns = [NestedField(at + 1, f"c{at}", LongType()) for at in range(1_000)]

    table = await created(server, schema=Schema(*columns))
    one_more = Schema(*columns, NestedField(1_001, "more", LongType()))
    with pytest.raises(BadRequestError, match="more than 1000 columns"):
        await server.client(lambda catalog: catalog.create_table("streams.more", one_more, properties=STREAM))

    assert table.schema().find_field("c999").field_type == LongType()
    assert list(server.streams.names()) == ["orders"]


async def test_columns_for_which_the_table_has_no_room_are_not_declared(server: CatalogNode) -> None:
    await created(server, schema=Schema(*(NestedField(at + 1, f"c{at}", LongType()) for at in range(600))))
    view = server.streams.peek("orders")
    assert view is not None
    await server.streams.change(view.stream, lambda _: ({"table.columns": "c0 long"}, ()))

    def alter(catalog: Any) -> None:
        with catalog.load_table("streams.orders").update_schema() as update:
            for at in range(600, 1_001):
                update.add_column(f"c{at}", LongType())

    with pytest.raises(BadRequestError, match="the table would have 1001 columns"):
        await server.client(alter)
    assert config(server, "table.columns") == "c0 long"


async def test_names_are_taken_once(server: CatalogNode) -> None:
    await created(server)
    await server.stream("other")

    with pytest.raises(TableAlreadyExistsError):
        await created(server)
    with pytest.raises(TableAlreadyExistsError):
        await server.client(lambda catalog: catalog.create_table("streams.other", SCHEMA, properties=STREAM))
    await server.streams.create("third", 1, {})
    with pytest.raises(TableAlreadyExistsError, match="Stream already exists"):
        await server.client(lambda catalog: catalog.create_table("streams.third", SCHEMA, properties=STREAM))


async def test_the_same_statement_completes_what_a_server_left_half_done(server: CatalogNode) -> None:
    configs = {"table.columns": TEXT, "table.namespace": "streams", "table.name": "orders"}
    await server.streams.create("orders", 1, configs)  # the server stopped here

    table = await created(server)

    assert table.schema().find_field("price").field_type == DecimalType(10, 2)


async def test_two_engines_that_add_columns_at_once_both_get_theirs(server: CatalogNode) -> None:
    await created(server, schema=Schema(NestedField(1, "id", LongType())))

    def add_twice(catalog: Any) -> None:
        first, second = (catalog.load_table("streams.orders") for _ in range(2))
        with first.update_schema() as update:
            update.add_column("a", StringType())
        with second.update_schema() as update:  # PyIceberg loads the table again after 409
            update.add_column("b", StringType())

    with pytest.raises(CommitFailedException):
        await server.client(add_twice)
    assert config(server, "table.columns") == "id long, a string"


async def test_who_may_not_create_or_alter_the_stream_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with catalog_server(tmp_path / "a", all_but(Right(Operation.CREATE, Resource.STREAM))) as server:
        with pytest.raises(ForbiddenError):
            await created(server)
        assert list(server.streams.names()) == []
    async with catalog_server(tmp_path / "b", all_but(Right(Operation.ALTER, Resource.STREAM))) as server:
        await created(server)

        def alter(catalog: Any) -> None:
            with catalog.load_table("streams.orders").update_schema() as update:
                update.add_column("more", StringType())

        with pytest.raises(ForbiddenError):
            await server.client(alter)
        assert config(server, "table.columns") == TEXT
