"""The pages of docs/reference/ match the code."""

import os
import subprocess
import sys

from fixtures.documentation import ROOT
from fixtures.waiting import WAIT_S


def test_the_reference_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "reference"), "--check"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "servers")}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=WAIT_S, check=False)

    assert done.returncode == 0, done.stderr
