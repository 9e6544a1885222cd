"""A hostile schema posted to a real server: the server answers it, and keeps answering other clients."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from fixtures.server_process import ServerProcess, started

pytestmark = pytest.mark.integration

TYPE = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
TIMEOUT = aiohttp.ClientTimeout(total=60)
NESTED_OPTIONS = (
    'import "google/protobuf/descriptor.proto"; message O { optional O o = 1; } '
    f"extend google.protobuf.FileOptions {{ optional O x = 50000; }} option (x) = {'{o:' * 7_500}{{{'}' * 7_500}}};"
)
NESTED_GROUPS = "message M {" + "optional group G=1{" * 4_600 + "}" * 4_600 + "}"
BLANK = [" " * 40 + "message M {}", "// licence" + "\n" * 30 + "message M {}"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    stores = ["--metadata-url", f"sqlite:///{folder}/metadata.db", "--object-store-url", folder.as_uri()]
    with started("serve", "rest", *stores, "--registry-port", "0", ready_file=folder / "ready.json") as process:
        yield process
        assert process.stop() == 0


async def posted(session: aiohttp.ClientSession, url: str, text: str) -> tuple[int, Any]:
    body = json.dumps({"schemaType": "PROTOBUF", "schema": text})
    async with session.post(url, data=body, headers=TYPE, timeout=TIMEOUT) as answer:
        return answer.status, json.loads(await answer.read())


async def answers_until(session: aiohttp.ClientSession, url: str, asking: "asyncio.Task[Any]") -> int:
    """Number of other clients' requests answered during this request."""
    count = 0
    while not asking.done():
        async with session.get(url, timeout=TIMEOUT) as answer:
            assert answer.status == 200
        count += 1
    return count


@pytest.mark.parametrize("path", ["/subjects/s/versions", "/subjects/s", "/compatibility/subjects/s/versions"])
@pytest.mark.parametrize("text", [NESTED_OPTIONS, NESTED_GROUPS], ids=["options", "groups"])
async def test_a_schema_that_kills_its_compiler_is_refused_while_others_are_answered(
    server: ServerProcess, path: str, text: str
) -> None:
    registry = str(server.ready["registry"])
    async with aiohttp.ClientSession() as session:
        asking = asyncio.create_task(posted(session, registry + path, text))
        answered = await answers_until(session, f"{registry}/subjects", asking)
        status, body = await asking

    assert (status, body["error_code"]) == (422, 42209)
    assert answered > 0
    assert server.process.poll() is None


@pytest.mark.parametrize("text", BLANK, ids=["spaces", "blank lines"])
async def test_blank_space_is_a_schema_like_any_other(server: ServerProcess, text: str) -> None:
    registry = str(server.ready["registry"])
    async with aiohttp.ClientSession() as session:
        status, body = await posted(session, f"{registry}/subjects/blank/versions", text)
        async with session.get(f"{server.admin}/livez", timeout=TIMEOUT) as alive:
            assert alive.status == 200

    assert status == 200, body


async def test_produce_with_a_hostile_schema_is_refused(server: ServerProcess) -> None:
    rest = str(server.ready["rest"])
    body = {"value_schema": NESTED_OPTIONS, "records": [{"value": {}}]}
    headers = {"Content-Type": "application/vnd.kafka.protobuf.v2+json"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{rest}/topics/t", data=json.dumps(body), headers=headers, timeout=TIMEOUT) as answer,
    ):
        status, said = answer.status, await answer.text()

    assert status in (408, 422), said
    assert "nested too deeply" in said
    assert server.process.poll() is None
