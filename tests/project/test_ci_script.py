"""`.ci/run` with programs that only say what they are asked for: what runs, what is printed, and when the whole has failed."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from fixtures.waiting import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
TOLD = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
echo "output of $(basename "$0") $*"
for pair in $CODES; do
    case "$*" in *"${pair%:*}") exit "${pair##*:}";; esac
done
"""


class Ended(NamedTuple):
    """What the script did: its exit code, what it printed, and what it called."""

    code: int
    output: str
    calls: list[str]


def run(folder: Path, codes: str = "") -> Ended:
    """Run the script in a folder of its own; `codes`: how a call ends (`check:1`: its last word, its exit code)."""
    programs, calls = folder / "programs", folder / "calls"
    for place in (programs, folder / ".ci", folder / ".venv" / "bin"):
        place.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    fakes = [*(programs / name for name in ("make", "python3", "apt-get")), folder / ".venv" / "bin" / "python"]
    for fake in fakes:
        fake.write_text(TOLD)
        fake.chmod(0o755)
    not_root = programs / "id"
    not_root.write_text("#!/bin/sh\necho 1000\n")
    not_root.chmod(0o755)
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "CALLS": str(calls), "CODES": codes}
    done = subprocess.run(
        ["bash", folder / ".ci" / "run"],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, calls.read_text().splitlines())


def test_everything_runs_and_its_output_is_shown(tmp_path: Path) -> None:
    ended = run(tmp_path)

    assert ended.code == 0
    assert ended.output.endswith("ci: passed\n")
    assert {"make venv", "make check", "make docs", "make test", "make fuzz-kernel"} <= set(ended.calls)
    order = [call for call in ended.calls if call in ("make venv", "make check", "make test")]
    assert order == ["make venv", "make check", "make test"]
    for call in ended.calls:
        is_shown = f"output of {call}" in ended.output
        assert is_shown or " -c " in call, call
    assert "python3 tests/kube/cluster/cluster.py up" in ended.calls
    assert not [call for call in ended.calls if call.startswith("apt-get")]


@pytest.mark.parametrize("codes", ["check:1", "docs:1", "--quick:1", "test:1", "test_kube_install.py:1", "down:1"])
def test_a_part_that_fails_fails_the_whole_and_stops_no_other(tmp_path: Path, codes: str) -> None:
    ended = run(tmp_path, codes)

    assert ended.code == 1
    assert ended.output.endswith("ci: FAILED\n")
    assert {"make check", "make docs", "make test"} <= set(ended.calls)


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ("--quick:2", "conformance suites could not be obtained"),
        ("fuzz-kernel:1", "the sanitized kernel was not built"),
        ("WORKERS=0:1", "not all tests could be imported"),
        ("build:1", "no programs for a Kubernetes cluster"),
    ],
)
def test_what_cannot_be_had_is_said_and_is_no_failure(tmp_path: Path, codes: str, said: str) -> None:
    ended = run(tmp_path, codes)

    assert ended.code == 0
    assert said in ended.output
    assert "make test" in ended.calls
