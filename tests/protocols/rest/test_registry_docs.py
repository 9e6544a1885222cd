"""The examples of docs/schema-registry.md work as described, against a registry and a Kafka server of the test."""

import asyncio
import contextlib
import io
import json
import re
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest

from fixtures.kafka_server import Node
from fixtures.schema_registry import RegistryNode
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "schema-registry.md"
REGISTRY, KAFKA = "http://127.0.0.1:8081", "127.0.0.1:9092"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed: the page's commands are NOT TESTED")
async def test_commands_of_the_page_give_the_documented_answers(registry: RegistryNode) -> None:
    (block,) = blocks("sh")
    lines = block.strip().splitlines()
    for command, answer in zip(lines[::2], lines[1::2], strict=True):
        said = await asyncio.to_thread(run, command.replace(REGISTRY, registry.url))
        expected = json.loads(answer.removeprefix("#= "))

        assert {key: said.get(key) for key in expected} == expected


async def test_python_of_the_page_produces_and_consumes(registry: RegistryNode, kafka: Node) -> None:
    (block,) = blocks("python")
    code = block.replace(REGISTRY, registry.url).replace(KAFKA, kafka.address)
    await kafka.create("orders")

    assert await asyncio.to_thread(execute, code) == "{'id': 7}\n"


def run(command: str) -> dict[str, object]:
    finished = subprocess.run(["sh", "-c", command], capture_output=True, timeout=WAIT_S, check=True)
    found: dict[str, object] = json.loads(finished.stdout)
    return found


def execute(code: str) -> str:
    said = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(said):
        warnings.simplefilter("ignore")
        names: dict[str, Any] = {}
        exec(compile(code, str(PAGE), "exec"), names)
        names["registry"].__exit__(None, None, None)  # a program's end closes it too, later than this test's
    return said.getvalue()
