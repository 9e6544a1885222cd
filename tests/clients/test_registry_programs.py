"""Registry clients and serializers of other languages, unmodified, in Go and JavaScript.

Each is a small program that runs its steps against a registry and prints `ok`. If a program is missing and cannot be fetched,
its test is skipped with a message.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import packages, processes
from fixtures.schema_registry import RegistryNode

SOURCES = Path(__file__).resolve().parent
TIMEOUT_S = 120.0

pytestmark = [pytest.mark.integration, pytest.mark.long]


def franz_go() -> list[str | Path]:
    """franz-go's client, from the Go module proxy."""
    return [packages.obtain_go_program(SOURCES / "franz_go_registry")]


def javascript() -> list[str | Path]:
    """Confluent's client and serializers, and kafkajs's, from npm."""
    return ["node", packages.obtain_npm_program(SOURCES / "javascript_registry") / "client.js"]


@pytest.mark.parametrize("program", [franz_go, javascript], ids=lambda program: program.__name__)
async def test_the_client_works_with_the_registry(
    program: Callable[[], list[str | Path]], registry: RegistryNode, tmp_path: Path
) -> None:
    try:
        command = await asyncio.to_thread(program)
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"{program.__name__} registry client NOT TESTED ({program.__doc__}): {error}")
    finished = await asyncio.to_thread(
        processes.run, [*command, registry.url], log=tmp_path / "program.log", timeout_s=TIMEOUT_S
    )

    assert finished.is_success, finished.tail()
    assert finished.text().strip().endswith("ok")
