"""Idempotent producers of three families, whose batches cannot be stored, or whose state has expired (I9).

Every record that they report as delivered is in the log once, in the order of sending; no error is fatal for them.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bearlake.errors import Unavailable
from bearlake.objects import Buffer
from bearlake.objects.memory import MemoryObjectStore
from bearlake.streams.service import StreamsSettings
from bearlake.streams.writer_settings import WriterSettings
from conformance import packages
from conformance.java_tools import SHORT_LIVED
from fixtures.idle_producers import forget_all
from fixtures.kafka_server import batch_of, values_of

pytestmark = [pytest.mark.integration]

SOURCES = Path(__file__).resolve().parent
SLOW_S = 0.5
"""Duration of a put that fails at the end: the next batches are sent in the meantime."""
ANSWER_S = 60.0


class FailingStore(MemoryObjectStore):
    """Fails the next `fail_count` puts, slowly."""

    fail_count = 0

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self.fail_count > 0:
            self.fail_count -= 1
            await asyncio.sleep(SLOW_S)
            raise Unavailable("the test store fails this put")
        await super().put(key, parts)


def java() -> list[str | Path]:
    jars = packages.obtain_kafka_jars()
    log = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
    return ["java", *SHORT_LIVED, log, "-cp", f"{jars}/*", SOURCES / "java_producer" / "StepsOfProducer.java"]


def librdkafka() -> list[str | Path]:
    return [sys.executable, SOURCES / "librdkafka_steps.py"]


def franz_go() -> list[str | Path]:
    return [packages.obtain_go_program(SOURCES / "franz_go")]


class Program:
    """A client's program; `send` gives it a burst of values and returns the result of each, in order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.fatal: list[str] = []

    async def read_line(self) -> str:
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), ANSWER_S)).decode().strip()

    async def send(self, *values: str) -> list[str]:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(values).encode() + b"\n")
        said: list[str] = []
        while len(said) < len(values):
            line = await self.read_line()
            assert line, "the program has ended"
            (self.fatal if line.startswith("fatal") else said).append(line)
        return said


class Scene:
    def __init__(self, node: Any, metadata: Any, store: FailingStore, program: Program) -> None:
        self.node = node
        self.metadata = metadata
        self.store = store
        self.program = program

    async def log(self) -> list[str]:
        """All values of the partition."""
        fetched = await (await self.node.client()).fetch("t", 0, wait_ms=0)
        return [value.decode() for _, value in values_of(fetched.records) if value is not None]

    async def expire(self) -> None:
        """Expire the producers, as after a week of idleness."""
        await forget_all(self.metadata)
        partition = (await self.metadata.streams.get("t")).partition(0)
        assert await self.metadata.log.producers(partition) == []


@pytest.fixture(params=[librdkafka, java, franz_go], ids=lambda make: make.__name__)
async def scene(
    request: pytest.FixtureRequest, kafka_cluster: Callable[..., Awaitable[Any]], tmp_path: Path
) -> AsyncIterator[Scene]:
    """A partition that has a record, and a new idempotent producer that has sent nothing."""
    try:
        command = request.param()
    except (packages.ToolMissing, packages.ObtainFailed) as absent:
        pytest.skip(str(absent))
    store = FailingStore()
    streams = StreamsSettings(writer=WriterSettings(linger_ms=5, gather_ms=0.0))
    cluster = await kafka_cluster(1, store=store, streams=streams)
    node = cluster[0]
    await node.create("t")
    await (await node.client()).produce("t", batch_of(b"old"))
    words = [node.address, "steps", "t"] if request.param is franz_go else [node.address, "t"]
    async with running([*command, *words], tmp_path / "errors") as program:
        yield Scene(node, cluster.metadata, store, program)


@asynccontextmanager
async def running(command: Sequence[str | Path], errors: Path) -> AsyncIterator[Program]:
    with errors.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *map(str, command), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=stderr
        )
    program = Program(process)
    try:
        assert await program.read_line() == "ready", errors
        yield program
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def delivered(said: Sequence[str]) -> list[str]:
    """The values that a client reports as delivered, all with a known outcome."""
    assert not [line for line in said if "error" in line]
    return [line.split()[0] for line in said]


async def test_a_new_producer_whose_first_batch_fails_loses_nothing(scene: Scene) -> None:
    scene.store.fail_count = 1
    values = [f"m{number}" for number in range(5)]
    said = await scene.program.send(*values)

    assert sorted(delivered(said)) == values
    assert await scene.log() == ["old", *values]
    assert scene.program.fatal == []


async def test_a_producer_whose_state_expired_continues(scene: Scene) -> None:
    before, after = ["a0", "a1", "a2"], ["b0", "b1", "b2"]
    said = await scene.program.send(*before)
    await scene.expire()
    said += await scene.program.send(*after)

    assert sorted(delivered(said)) == before + after
    assert await scene.log() == ["old", *before, *after]
    assert scene.program.fatal == []


@pytest.mark.parametrize("count", [1, 5])
async def test_a_producer_whose_state_expired_and_whose_first_batch_fails_continues(scene: Scene, count: int) -> None:
    before, after = ["a0", "a1", "a2"], [f"b{number}" for number in range(count)]
    said = await scene.program.send(*before)
    await scene.expire()
    scene.store.fail_count = 1
    said += await scene.program.send(*after)

    assert sorted(delivered(said)) == before + after
    assert await scene.log() == ["old", *before, *after]
    assert scene.program.fatal == []
