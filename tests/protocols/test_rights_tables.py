"""The tables of rights in docs/security.md match the tables in the code."""

import subprocess
import sys
from pathlib import Path

from fixtures.waiting import WAIT_S

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_are_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "rights-tables"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)

    assert done.returncode == 0, done.stderr
