"""Transactions of third-party clients: librdkafka (KIP-98), the Java client (KIP-890), franz-go; and what their consumers see."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance import packages
from conformance.java_tools import SHORT_LIVED

pytestmark = [pytest.mark.integration]

SOURCES = Path(__file__).resolve().parent
PROGRAM_S = 120.0


def librdkafka() -> list[str | Path]:
    return [sys.executable, SOURCES / "librdkafka_transactions.py"]


def java() -> list[str | Path]:
    jars = packages.obtain_kafka_jars()
    log = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
    return ["java", *SHORT_LIVED, log, "-cp", f"{jars}/*", SOURCES / "java_transactions" / "Transactions.java"]


def franz_go() -> list[str | Path]:
    return [packages.obtain_go_program(SOURCES / "franz_go")]


async def lines_of(command: list[str | Path], *arguments: str) -> dict[str, list[str]]:
    """Run a program; return its lines by step."""
    process = await asyncio.create_subprocess_exec(*command, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), PROGRAM_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    found = (line.partition(": ") for line in output.decode().splitlines())
    return {step: [value for value in values.split(", ") if value] for step, _, values in found}


async def test_librdkafka_commits_aborts_copies_and_is_fenced(kafka: Any) -> None:
    await kafka.create("t", 2)
    found = await lines_of(librdkafka(), kafka.address, "t", "g")

    assert found == {
        "open": [],
        "committed": ["a0", "a1"],
        "everything": ["a0", "a1", "b0", "b1"],
        "copied": ["a0", "a1"],
        "offsets": ["0", "1"],
        "fenced": ["True"],
        "at the end": ["a0", "a1", "copy of a0", "copy of a1", "d0"],
    }


async def test_the_java_client_commits_aborts_copies_and_administers(kafka: Any) -> None:
    command = program_or_skip(java)
    await kafka.create("t", 2)
    found = await lines_of(command, kafka.address, "t", "g")

    assert found == {
        "open": [],
        "committed": ["a0", "a1"],
        "aborted": ["a0", "a1"],
        "everything": ["a0", "a1", "b0", "b1"],
        "copied": ["a0", "a1"],
        "offsets": ["0 some", "1 some"],
        "described": ["Ongoing", "[t-0]"],
        "listed": ["copier Ongoing"],
        "ended by an administrator": ["CompleteAbort"],
        "then": ["ProducerFencedException"],
        "fenced": ["ProducerFencedException"],
        "at the end": ["a0", "a1", "copy of a0", "copy of a1", "e0"],
    }


async def test_franz_go_commits_aborts_copies_and_is_fenced(kafka: Any) -> None:
    command = program_or_skip(franz_go)
    await kafka.create("t", 2)
    found = await lines_of(command, kafka.address, "transactions", "t", "g")

    assert found == {
        "open": [],
        "committed": ["a0", "a1"],
        "everything": ["a0", "a1", "b0", "b1"],
        "copied": ["a0", "a1"],
        "fenced": ["true"],
        "at the end": ["a0", "a1", "copy of a0", "copy of a1", "d0"],
    }


def program_or_skip(program: Callable[[], list[str | Path]]) -> list[str | Path]:
    """The command of a program that may be missing here."""
    try:
        return program()
    except (packages.ToolMissing, packages.ObtainFailed) as absent:
        pytest.skip(str(absent))
