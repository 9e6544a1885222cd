"""Confluent's own Java client, and a Java serializer and deserializer, against the registry and REST.

Skipped with a message without Java or Maven.
"""

import asyncio
import base64
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from conformance import packages
from conformance.packages import ToolMissing
from fixtures import schema_registry
from fixtures.rest_server import RestNode
from fixtures.schema_registry import RegistryNode

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SOURCES = Path(__file__).resolve().parent / "java"
RUN_TIMEOUT_S = 120


class Java:
    """Runs the program against a registry."""

    def __init__(self, jars: Path, url: str) -> None:
        self._command = ["java", "-cp", f"{jars}/*", str(SOURCES / "RegistryClient.java"), url]

    async def run(self, *arguments: str) -> dict[str, str]:
        """Return the values that the program prints, by name."""
        done = await asyncio.to_thread(
            subprocess.run, [*self._command, *arguments], capture_output=True, timeout=RUN_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        return dict(line.split("=", 1) for line in done.stdout.decode().splitlines())


@pytest.fixture
async def registry(rest: RestNode) -> AsyncIterator[RegistryNode]:
    async with AsyncExitStack() as closing:
        yield await schema_registry.started(closing, metadata=rest.metadata)


@pytest.fixture
def java(registry: RegistryNode) -> Java:
    try:
        return Java(packages.obtain_jars(SOURCES / "pom.xml", "registry-jars"), registry.url)
    except ToolMissing as missing:
        pytest.skip(f"the registry was NOT TESTED with Java: {missing}")


async def test_every_call_of_the_java_client_works(java: Java) -> None:
    said = await java.run("calls")

    assert said == {
        "same id": "true",
        "version": "1",
        "by id": "true",
        "latest": "1/AVRO/true",
        "subjects": "true",
        "subjects of id": "[java-value]",
        "versions of id": "1",
        "versions": "[1]",
        "compatible": "false",
        "reasons": "true",
        "level": "NONE",
        "level now": "NONE",
        "mode": "READONLY",
        "refused": "422/42205",
        "mode now": "READWRITE",
        "deleted version": "2",
        "deleted": "[1]",
        "deleted for good": "[1, 2]",
        "ids grow": "true",
    }


async def test_java_and_rest_read_each_others_avro(java: Java, rest: RestNode) -> None:
    await rest.create("orders")
    written = (await java.run("write", "7"))["value"]
    record = {"id": 8, "note": {"string": "aus REST"}}
    await rest.post("/topics/orders", {"records": [{"value": written}]}, kind="binary")
    made = await rest.post("/topics/orders", {"value_schema_id": 1, "records": [{"value": record}]}, kind="avro")
    assert made.status == 200, made.body

    found = {kind: await values(rest, kind) for kind in ("avro", "binary")}

    assert found["avro"] == [{"id": 7, "note": {"string": "aus Java"}}, record]
    assert found["binary"][0] == written
    assert base64.b64decode(found["binary"][1])[:5] == base64.b64decode(written)[:5]
    assert (await java.run("read", found["binary"][1]))["record"] == '{"id": 8, "note": "aus REST"}'


async def values(rest: RestNode, kind: str) -> list[object]:
    """The values of the topic, read by a REST consumer of this format."""
    made = await rest.post(f"/consumers/{kind}", {"format": kind, "auto.offset.reset": "earliest"})
    base = made.body["base_uri"]
    await rest.post(f"{base}/assignments", {"partitions": [{"topic": "orders", "partition": 0}]})
    accept = {"Accept": f"application/vnd.kafka.{kind}.v2+json"}
    answer = await rest.get(f"{base}/records?timeout=5000", headers=accept)
    assert answer.status == 200, answer.body
    return [record["value"] for record in answer.body]
