"""`bearlake sql` leaves no files of the log behind when it is asked to end."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, os, signal, sys, tempfile
from importlib import import_module
from bearlake.app import lake
from bearlake.cli.main import run

async def query(*_, **__):
    with tempfile.TemporaryDirectory():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

lake.query = query
import_module("bearlake.cli.sql").chosen = lambda given: None
sys.exit(run(["sql", "select 1"]))
"""


def test_a_query_that_is_asked_to_end_deletes_its_files(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 130, ended.stderr
    assert list(tmp_path.iterdir()) == []
