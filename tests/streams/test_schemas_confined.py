"""A schema that crashes its compiler affects only the process that compiles it."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bearlake.errors import Overloaded, Unavailable
from bearlake.metadata.open import open_metadata
from bearlake.streams.schemas.budget import Budget
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined import frames
from bearlake.streams.schemas.confined.pool import Pool
from bearlake.streams.schemas.formats import protobuf
from bearlake.streams.schemas.model import SchemaType
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge
from bearlake.streams.schemas.service import Schemas
from bearlake.streams.schemas.settings import SchemasSettings

HONEST = 'syntax = "proto3"; message Order { int64 id = 1; }'
GROUP_COUNT = 4_600
GROUPS = "message M {" + "optional group G=1{" * GROUP_COUNT + "}" * GROUP_COUNT + "}"
OPTION_COUNT = 7_500
OPTIONS = (
    'import "google/protobuf/descriptor.proto"; message O { optional O o = 1; }'
    f" extend google.protobuf.FileOptions {{ optional O x = 50000; }} option (x) = {'{o:' * OPTION_COUNT}{{{'}' * OPTION_COUNT}}};"
)
LONG_NAMES = f"message {'A' * 400} {{ message B {{}} {''.join(f'optional B b{at} = {at};' for at in range(1, 1001))} }}"
UNION = ["null", *({"type": "record", "name": f"R{at}", "fields": []} for at in range(600))]
UNIONS = {"type": "record", "name": "R", "fields": [{"name": "a", "type": UNION}]}


@asynccontextmanager
async def pool(answer_bytes_max: int = 1 << 25, **settings: Any) -> AsyncIterator[Pool]:
    made = Pool(SchemasSettings(**settings), answer_bytes_max=answer_bytes_max)
    try:
        yield made
    finally:
        made.close()


def helpers() -> list[int]:
    """Processes that this one has started to compile schemas."""
    return [
        int(path.parts[2])
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if (content := _read(path)) is not None
        and b"schemas.confined.helper" in content
        and f"\nPPid:\t{os.getpid()}\n" in (_read(path.with_name("status")) or b"").decode()
    ]


def inherited(pid: int) -> tuple[set[str], set[str]]:
    """Names of the environment variables and numbers of the open files of a process."""
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return {variable.partition("=")[0] for variable in variables if variable}, {
        descriptor.name for descriptor in Path(f"/proc/{pid}/fd").iterdir()
    }


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # it ended
        return None


async def test_a_system_without_threads_is_unavailable_and_leaves_no_request_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with pool(compile_queue_count_max=1) as made:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            for _ in range(10):
                with pytest.raises(Unavailable, match="no thread"):
                    await made.compiled("PROTOBUF", HONEST, {})

        assert await made.compiled("PROTOBUF", HONEST, {})


@pytest.mark.parametrize("text", [" " * 40 + "message M {}", "// terms\n" + "\n" * 30 + "message M {}"])
async def test_blank_space_before_a_message_costs_nothing(text: str) -> None:
    async with pool() as compilers:
        found = await compilers.compiled("PROTOBUF", text, {})

    assert found.canonical == 'syntax = "proto2";\n\nmessage M {\n}\n'


@pytest.mark.parametrize("blank", [" ", "\n", "//\n", "/**/", " /* */\n", "/*", "/", "/*/", "\ufeff"])
def test_a_megabyte_of_blank_space_is_looked_at_once(blank: str) -> None:
    assert protobuf.says_syntax(blank * (1_000_000 // len(blank)) + "message M {}") is False


# The language's blank space: without the possessive quantifiers the same expression takes time that doubles with each space.
REFERENCE = re.compile(
    r"\ufeff?(?:\s++|//[^\n]*+\n|/\*(?:[^*]++|\*(?!/))*+\*/)*+(?:syntax|edition)\b",
)


@given(
    st.lists(st.sampled_from(["\ufeff", " ", "\n", "\t", "//", "/*", "*/", "*", "/", "x", "syntax", "edition", "="]))
)
def test_the_syntax_scan_agrees_with_the_grammar(parts: list[str]) -> None:
    text = "".join(parts)

    assert protobuf.says_syntax(text) is (REFERENCE.match(text) is not None)


@pytest.mark.parametrize("text", [OPTIONS, GROUPS], ids=["nested option values", "nested groups"])
async def test_a_schema_that_kills_its_compiler_is_invalid_and_the_next_is_compiled(text: str) -> None:
    async with pool() as compilers:
        with pytest.raises(SchemaTooLarge, match=r"needs more than 256 MiB of memory, or is nested too deep"):
            await compilers.compiled("PROTOBUF", text, {})

        assert (await compilers.compiled("PROTOBUF", HONEST, {})).text == HONEST


async def test_a_schema_that_needs_more_time_than_the_limit_is_invalid() -> None:
    async with pool(compile_time_ms_max=300) as compilers:
        compiled = await compilers.compiled("AVRO", json.dumps("string"), {})
        with pytest.raises(SchemaTooLarge, match=r"needs more than 0\.3 s of processor time"):
            await compilers.compiled("PROTOBUF", "".join(f"message M{at} {{}}" for at in range(60_000)), {})

        assert await compilers.incompatibilities(compiled, compiled) == []


async def test_a_comparison_that_needs_more_time_than_the_limit_is_refused() -> None:
    async with pool() as patient:
        compiled = await patient.compiled("AVRO", json.dumps(UNIONS), {})

    async with pool(compile_time_ms_max=200) as compilers:
        with pytest.raises(SchemaTooLarge, match="processor time"):
            await compilers.incompatibilities(compiled, compiled)


@pytest.mark.parametrize("text", [LONG_NAMES, "message M {}"], ids=["the descriptor", "the answer"])
async def test_a_schema_that_becomes_too_large_when_compiled_is_invalid(text: str) -> None:
    async with pool(answer_bytes_max=200) as compilers:
        with pytest.raises(SchemaTooLarge, match="becomes larger than"):
            await compilers.compiled("PROTOBUF", text, {})


async def test_a_file_of_the_server_cannot_be_imported() -> None:
    async with pool() as compilers:
        await compilers.compiled("PROTOBUF", 'syntax = "proto3"; import "google/protobuf/any.proto";', {})
        for name in ("grpc_tools/_proto/google/protobuf/any.proto", "dev/fd/0", "/dev/fd/0"):
            with pytest.raises(InvalidSchema, match="not found"):
                await compilers.compiled("PROTOBUF", f'syntax = "proto3"; import "{name}";', {})


async def test_a_problem_in_a_reference_names_the_reference() -> None:
    async with pool() as compilers:
        with pytest.raises(
            InvalidSchema, match=r"^Invalid schema of type PROTOBUF: z/r\.proto: .* \(line 2, column 1\)"
        ):
            await compilers.compiled("PROTOBUF", 'import "z/r.proto";', {"z/r.proto": "message M {}\noops"})


async def test_a_helper_inherits_neither_secrets_nor_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEARLAKE_TEST_SECRET", "secret")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.set_inheritable(True)
        async with pool() as compilers:
            await compilers.compiled("PROTOBUF", HONEST, {})
            (helper,) = helpers()
            environment, descriptors = inherited(helper)

    assert environment == {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    assert descriptors == {"0", "1", "2"}


async def test_a_helper_that_was_killed_is_replaced() -> None:
    async with pool() as compilers:
        await compilers.compiled("PROTOBUF", HONEST, {})
        (first,) = helpers()
        os.kill(first, signal.SIGKILL)
        await compilers.compiled("PROTOBUF", HONEST, {})
        (second,) = helpers()

    assert first != second
    assert helpers() == []


async def test_without_a_helper_the_registry_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pool() as compilers:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(Unavailable, match="cannot be started: No such file"):
            await compilers.compiled("PROTOBUF", HONEST, {})
        monkeypatch.undo()

        assert (await compilers.compiled("PROTOBUF", HONEST, {})).text == HONEST


async def test_requests_beyond_the_queue_are_refused_and_waiting_ones_are_served() -> None:
    async with pool(compile_count_max=1, compile_queue_count_max=2) as compilers:
        found = await asyncio.gather(
            *(compilers.compiled("PROTOBUF", HONEST, {}) for _ in range(4)), return_exceptions=True
        )

        assert [type(result).__name__ for result in found] == ["Compiled", "Compiled", "Compiled", "Overloaded"]
        assert len(helpers()) == 1
        assert (await compilers.compiled("PROTOBUF", HONEST, {})).text == HONEST


async def test_a_schema_that_waits_too_long_counts_no_failure() -> None:
    async with pool(compile_wait_ms_max=1) as compilers:
        with pytest.raises(Overloaded):
            await compilers.compiled("PROTOBUF", HONEST, {})


async def test_closing_ends_running_compilations_and_leaves_no_process() -> None:
    async with pool() as compilers:
        await compilers.compiled("PROTOBUF", HONEST, {})
        asking = asyncio.create_task(compilers.compiled("PROTOBUF", GROUPS, {}))
        await asyncio.sleep(0)
        compilers.close()
        with pytest.raises(Unavailable):
            await asking
        with pytest.raises(Unavailable):
            await compilers.compiled("PROTOBUF", HONEST, {})

    assert helpers() == []


async def test_closing_tells_the_requests_that_wait() -> None:
    async with pool(compile_count_max=1) as made:
        calls = [asyncio.create_task(made.compiled("PROTOBUF", GROUPS, {})) for _ in range(3)]
        await asyncio.sleep(0)  # the calls wait in the line, or for a helper
        made.close()
        results = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(result) for result in results] == [Unavailable] * 3


def test_a_pipe_without_an_answer_ends_at_its_deadline() -> None:
    read, write = os.pipe()
    try:
        with pytest.raises(TimeoutError):
            frames.Pipe(read, deadline=0).read(1)
    finally:
        os.close(read)
        os.close(write)


async def compiled(schemas: Schemas) -> Compiled:
    return await schemas.compiled_text(SchemaType.PROTOBUF, HONEST, Budget(schemas.settings))


async def test_two_callers_of_one_schema_share_one_compilation() -> None:
    metadata = await open_metadata("memory:///")
    schemas = Schemas(metadata.schemas, SchemasSettings(compile_count_max=1, compile_queue_count_max=0))
    try:
        found = await asyncio.gather(*(compiled(schemas) for _ in range(5)))
    finally:
        schemas.close()
        await metadata.close()

    assert {result.record_name for result in found} == {"Order"}
