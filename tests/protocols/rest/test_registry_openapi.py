"""The registry's OpenAPI document and page, CORS, and generated requests for every operation: no 500, no undocumented status."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from bearlake.protocols.rest.registry import operations
from bearlake.protocols.rest.registry.settings import RegistrySettings
from fixtures import schema_registry
from fixtures.schema_registry import RegistryNode

EXAMPLE_COUNT = 6
RUN_S = 480


async def test_the_document_has_every_route_and_nothing_else(registry: RegistryNode) -> None:
    document = (await registry.get("/openapi.json")).body
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    all_of_them = [operation for path in document["paths"].values() for operation in path.values()]

    assert described == set(operations.OPERATIONS)
    assert all(operation["summary"] for operation in all_of_them)
    assert len({operation["operationId"] for operation in all_of_them}) == len(all_of_them)


async def test_the_document_is_valid(registry: RegistryNode) -> None:
    document = (await registry.get("/openapi.json")).body

    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


async def test_the_page_shows_every_path(registry: RegistryNode) -> None:
    page = await registry.text("/docs")

    for _, path in operations.OPERATIONS:
        assert path in page


async def test_pages_of_allowed_origins_may_call() -> None:
    async with AsyncExitStack() as closing:
        settings = RegistrySettings(cors_origins=("https://a.example",))
        registry = await schema_registry.started(closing, settings=settings)
        asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}
        preflight = await registry.ask("OPTIONS", "/subjects/s/versions", headers=asked)
        allowed = await registry.get("/subjects", headers={"Origin": "https://a.example"})
        refused = await registry.get("/subjects", headers={"Origin": "https://b.example"})

    assert (preflight.status, preflight.headers["Access-Control-Allow-Methods"]) == (204, "PUT")
    assert preflight.headers["Access-Control-Allow-Origin"] == "https://a.example"
    assert allowed.headers["Access-Control-Allow-Origin"] == "https://a.example"
    assert "Access-Control-Allow-Origin" not in refused.headers
    assert refused.headers["X-Content-Type-Options"] == "nosniff"


async def test_there_are_no_exporters(registry: RegistryNode) -> None:
    assert (await registry.get("/exporters")).body == []
    made = await registry.post("/exporters", {"name": "e"})
    assert (made.status, made.headers["Allow"]) == (405, "GET,HEAD")


@pytest.mark.integration
@pytest.mark.timeout(RUN_S + 30)
async def test_generated_requests_find_no_500_and_no_undocumented_status(
    registry: RegistryNode, tmp_path: Path
) -> None:
    pytest.importorskip(
        "schemathesis", reason="schemathesis is missing: the registry's document was NOT tested with it"
    )
    for version in ('"int"', '"long"'):
        await registry.register("known", version)
    guid = (await registry.get("/schemas/ids/1")).body["guid"]
    known = {"subject": "'known'", "id": 1, "guid": f"'{guid}'", "version": 1, "context": "'.'"}
    config = tmp_path / "schemathesis.toml"
    config.write_text("[parameters]\n" + "".join(f'"path.{name}" = {value}\n' for name, value in known.items()))
    for words in (["--config-file", str(config)], []):
        process = await asyncio.create_subprocess_exec(
            *(str(Path(sys.executable).with_name("schemathesis")), *words, "run", f"{registry.url}/openapi.json"),
            *("--checks", "not_a_server_error,status_code_conformance,content_type_conformance"),
            *("--phases", "fuzzing", "--no-color", "--exclude-path-regex", "^/docs$"),
            *("--max-examples", str(EXAMPLE_COUNT), "--seed", "1", "--suppress-health-check", "all"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), RUN_S / 2)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

        assert process.returncode == 0, output.decode()[-6000:]
