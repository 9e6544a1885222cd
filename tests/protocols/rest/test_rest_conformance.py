"""The Durable Streams protocol's own conformance suite (npm) against this server. Skipped with a message if npm cannot install it."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from fixtures.rest_server import MakeServers

pytestmark = [pytest.mark.integration, pytest.mark.long]

SUITE = "@durable-streams/server-conformance-tests@0.3.6"
RUNNER = "vitest@4.1.12"
INSTALL_S = 240
RUN_S = 400

SKIPPED = {"Reserved subscription APIs": "optional: off unless a server says that it has them"}
"""The tests that the suite skips, by a word of their name, and the reason. No test may fail."""
PASSED_COUNT = 332


async def _run(*words: str, cwd: Path, timeout_s: float) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *words, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        return -1, f"{words[0]} took more than {timeout_s} s"
    return process.returncode or 0, output.decode(errors="replace")


@pytest.mark.timeout(INSTALL_S + RUN_S + 60)
async def test_the_conformance_suite_passes(rest_servers: MakeServers, tmp_path: Path) -> None:
    if shutil.which("npm") is None or shutil.which("npx") is None:
        pytest.skip("npm is missing: the Durable Streams conformance suite was NOT run")
    code, output = await _run(
        "npm", "install", "--no-audit", "--no-fund", SUITE, RUNNER, cwd=tmp_path, timeout_s=INSTALL_S
    )
    if code:
        pytest.skip(
            f"npm could not install {SUITE}: the Durable Streams conformance suite was NOT run\n{output[-2000:]}"
        )
    (rest,) = await rest_servers(1, cors_origins=("*",), live_wait_ms=2_000)
    (tmp_path / "suite.test.mjs").write_text(
        f'import {{ runConformanceTests }} from "@durable-streams/server-conformance-tests"\n'
        f"runConformanceTests({{ baseUrl: {json.dumps(rest.url)}, longPollTimeoutMs: 2000 }})\n"
    )
    report = tmp_path / "report.json"
    words = (
        "npx",
        "vitest",
        "run",
        "suite.test.mjs",
        "--reporter=json",
        f"--outputFile={report}",
        "--testTimeout=30000",
    )
    _, output = await _run(*words, cwd=tmp_path, timeout_s=RUN_S)
    assert report.exists(), output[-2000:]
    results = json.loads(report.read_text())["testResults"][0]["assertionResults"]
    names = {
        status: [result["fullName"] for result in results if result["status"] == status]
        for status in ("failed", "skipped")
    }
    unexplained = [name for name in names["skipped"] if not any(word in name for word in SKIPPED)]

    assert not names["failed"], "\n".join(names["failed"])
    assert not unexplained, "\n".join(unexplained)
    assert sum(result["status"] == "passed" for result in results) == PASSED_COUNT
