"""Generated requests for every operation of the OpenAPI document: no 500, and no status that the document does not name."""

import asyncio
import sys
from pathlib import Path

import pytest

from fixtures.rest_server import MakeServers

pytest.importorskip("schemathesis", reason="schemathesis is missing: the OpenAPI document was NOT tested with it")

pytestmark = [pytest.mark.integration, pytest.mark.long]

EXAMPLE_COUNT = 8
RUN_S = 480


@pytest.mark.timeout(RUN_S + 30)
async def test_generated_requests_find_no_500_and_no_undocumented_status(
    rest_servers: MakeServers, tmp_path: Path
) -> None:
    (rest,) = await rest_servers(1, live_wait_ms=20, sse_ms=20, request_timeout_ms=2_000, consumer_wait_ms=20)
    await rest.create("known", 2)
    await rest.put("/v1/stream/closed", b"x", headers={"Content-Type": "text/plain", "Stream-Closed": "true"})
    assert (await rest.post("/consumers/group", {"name": "one"})).status == 200
    known: dict[str, str | int] = {
        "topic": "known",
        "cluster_id": rest.member.cluster_id,
        "group": "group",
        "instance": "one",
    }
    known |= {"name": "known", "partition": 0, "config": "retention.ms", "broker": rest.member.node_id}
    lines = [f'"path.{name}" = {value if isinstance(value, int) else repr(value)}' for name, value in known.items()]
    config = tmp_path / "schemathesis.toml"
    config.write_text("[parameters]\n" + "\n".join(lines) + "\n")
    for words in (["--config-file", str(config)], []):
        process = await asyncio.create_subprocess_exec(
            *(str(Path(sys.executable).with_name("schemathesis")), *words, "run", f"{rest.url}/openapi.json"),
            *("--checks", "not_a_server_error,status_code_conformance", "--phases", "fuzzing", "--no-color"),
            *("--max-examples", str(EXAMPLE_COUNT), "--seed", "1", "--suppress-health-check", "all"),
            *("--exclude-path-regex", "^/docs$"),
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
