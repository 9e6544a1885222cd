"""The examples of docs/rest.md work as described, against a server of the test."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.rest_server import RestNode
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "rest.md"
ADDRESS = "http://127.0.0.1:8082"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed: the page's commands are NOT TESTED")
async def test_commands_of_the_page_give_the_documented_answers(rest: RestNode) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        lines = block.strip().splitlines()
        for command, answer in zip(lines[::2], lines[1::2], strict=True):
            said = await asyncio.to_thread(run, command.replace(ADDRESS, rest.url))
            expected = answer.removeprefix("#=").strip()

            assert said == (json.loads(expected.replace(ADDRESS, rest.url)) if expected else None), command

    assert len(blocks) == 5


def run(command: str) -> object:
    finished = subprocess.run(["sh", "-c", command], capture_output=True, timeout=WAIT_S, check=True)
    found: object = json.loads(finished.stdout) if finished.stdout else None
    return found
