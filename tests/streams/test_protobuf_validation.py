"""Validation of Protobuf values by their schemas: messages and their paths, and schemas that are compiled once."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from typing_extensions import override

from bearlake.errors import Unavailable
from bearlake.streams.checking import BadRecord
from bearlake.streams.schemas.compiled import Compiled, SchemaCompiler
from bearlake.streams.schemas.formats import protobuf as protobuf_format
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.values.wire import head
from fixtures.registered import register
from fixtures.schema_door import VALUE, Door, bad, doors, opened, rules_of_one
from fixtures.waiting import until

LINE = 'syntax = "proto3"; package shop; message Line { string sku = 1; }'
CART = """syntax = "proto3"; import "line.proto"; message Cart { repeated shop.Line lines = 1; message Note { string text = 1; } }
    message Empty {}"""


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


class InProcess(SchemaCompiler):
    """Compiles in this process, when it is allowed."""

    def __init__(self) -> None:
        self.count = 0
        self.is_allowed = asyncio.Event()
        self.is_allowed.set()

    @override
    async def compiled(self, type_name: str, text: str, references: Mapping[str, str]) -> Compiled:
        self.count += 1
        await self.is_allowed.wait()
        files = tuple(file.SerializeToString() for file in protobuf_format.parsed(text, references).files)
        return Compiled(type=type_name, text=text, canonical=text, normalized=text, files=files)


async def cart_door(closing: AsyncExitStack, **settings: Any) -> tuple[Door, InProcess, int]:
    """A door that compiles, and the id of the schema of carts."""
    compiler = InProcess()
    door = doors(closing, (await opened(closing)).metadata, compiler, **settings)
    await register(door.metadata, LINE, "line", type_=SchemaType.PROTOBUF)
    return door, compiler, await register(door.metadata, CART, type_=SchemaType.PROTOBUF, refers={"line.proto": "line"})


async def test_values_of_protobuf_are_checked_as_messages_of_their_path(closing: AsyncExitStack) -> None:
    door, compiler, schema_id = await cart_door(closing)
    line, bad_line = b"\x0a\3\x0a\1x", b"\x0a\3\x0a\1\xff"
    paths = [b"\0" + line, b"\2\0" + line, b"\4\0\0\x0a\1x", b"\2\2", b"\2\2" + bad_line]

    assert await door.check(VALUE, *(head(schema_id) + value for value in paths), None) is None
    error = await door.check(
        VALUE, *(head(schema_id) + value for value in (b"\0" + bad_line, b"", b"\2\4", *paths, line))
    )

    assert bad(error) == [0, 1, 2, 8]
    assert isinstance(error, BadRecord)
    assert [reason.rpartition(": ")[2] for reason in error.reasons] == [
        "TEXT in the message shop.Line",
        "no message indexes follow the schema's id",
        "the schema has no message at [2]",
        "no message indexes follow the schema's id",
    ]
    assert compiler.count == 1
    assert door.at_once(VALUE, head(schema_id) + b"\0" + line) is True


async def test_values_without_a_head_are_of_the_first_message(closing: AsyncExitStack) -> None:
    door, _, schema_id = await cart_door(closing)

    assert bad(await door.check(rules_of_one(schema_id), b"", b"\x0a\0", b"\x0a\1")) == [2]


async def test_a_protobuf_schema_that_does_not_compile_is_compiled_once(closing: AsyncExitStack) -> None:
    door, compiler, _ = await cart_door(closing)
    broken = await register(door.metadata, 'syntax = "proto3"; message A { Missing m = 1; }', type_=SchemaType.PROTOBUF)

    errors = [await door.check(VALUE, head(broken) + b"\0") for _ in range(3)]

    assert [bad(error) for error in errors] == [[0]] * 3
    assert f"schema {broken} cannot be checked" in str(errors[0])
    assert "Missing" in str(errors[2])
    assert compiler.count == 1


async def test_a_compilation_goes_on_when_the_batch_that_needs_it_gives_up(closing: AsyncExitStack) -> None:
    door, compiler, schema_id = await cart_door(closing, wait_ms_max=20)
    patient = doors(closing, door.metadata, compiler)
    compiler.is_allowed.clear()

    errors = []
    while not compiler.count:  # a busy machine may not even find the schema in time
        errors.append(await door.check(VALUE, head(schema_id) + b"\0"))
    errors.append(await door.check(VALUE, head(schema_id) + b"\0"))
    waiting = [asyncio.create_task(patient.check(VALUE, head(schema_id) + b"\0")) for _ in range(3)]
    await until(lambda: compiler.count == 2)
    compiler.is_allowed.set()

    assert all(isinstance(error, Unavailable) for error in errors)
    assert await asyncio.gather(*waiting) == [None] * 3
    await until(lambda: door.at_once(VALUE, head(schema_id) + b"\0") is True)
    assert compiler.count == 2  # one for each server
