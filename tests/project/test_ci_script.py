"""`.ci/run` with programs that only say what they are asked for: what runs, what is printed, and when the whole has failed."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from faults.waiting import until
from fixtures.waiting import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
TOLD = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
echo "output of $(basename "$0") $*"
for pair in $CODES; do
    case "$*" in *"${pair%:*}") exit "${pair##*:}";; esac
done
"""


HANGS = """#!/bin/sh
case "$*" in
    test | *--quick) ;;
    *) exit 0 ;;
esac
sleep 1000 &
echo $! >> "$CALLS"
timeout 1000 sh -c 'echo $$ >> "$CALLS"; exec sleep 1000' &
setsid sh -c "$STUBBORN"'; echo $$ >> "$CALLS"; exec sleep 1000' &
echo $$ >> "$CALLS"
wait
"""
"""`make test` and the conformance suites do not end, and have started others, in groups and sessions of their own."""
HANGING = 2 * 4


class Ended(NamedTuple):
    """What the script did: its exit code, what it printed, and what it called."""

    code: int
    output: str
    calls: list[str]


def prepared(folder: Path, program: str = TOLD, **environ: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of the script in a folder of its own, where this program stands for those that it starts."""
    programs = folder / "programs"
    for place in (programs, folder / ".ci", folder / ".venv" / "bin"):
        place.mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    fakes = [*(programs / name for name in ("make", "python3", "apt-get")), folder / ".venv" / "bin" / "python"]
    for fake in fakes:
        fake.write_text(program)
        fake.chmod(0o755)
    not_root = programs / "id"
    not_root.write_text("#!/bin/sh\necho 1000\n")
    not_root.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    logs = folder / "logs"
    logs.mkdir()
    common = {"PATH": path, "CALLS": str(folder / "calls"), "TMPDIR": str(logs)}
    return ["bash", str(folder / ".ci" / "run")], common | environ


def run(folder: Path, codes: str = "") -> Ended:
    """Run the script; `codes`: how a call ends (`check:1`: its last word, its exit code)."""
    command, environ = prepared(folder, CODES=codes)
    done = subprocess.run(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, Path(environ["CALLS"]).read_text().splitlines())


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
        ("compiled_programs:1", "not all programs in Go could be had"),
        ("spark.archive:1", "no archive of Spark's classes"),
        ("build:1", "no programs for a Kubernetes cluster"),
    ],
)
def test_what_cannot_be_had_is_said_and_is_no_failure(tmp_path: Path, codes: str, said: str) -> None:
    ended = run(tmp_path, codes)

    assert ended.code == 0
    assert said in ended.output
    assert "make test" in ended.calls


@pytest.mark.parametrize(
    ("number", "does"), [(signal.SIGTERM, 'trap "" TERM'), (signal.SIGINT, ":"), (signal.SIGHUP, ":")]
)
def test_a_signal_ends_all_that_was_begun(tmp_path: Path, number: signal.Signals, does: str) -> None:
    command, environ = prepared(tmp_path, HANGS, STUBBORN=does)
    calls = Path(environ["CALLS"])
    # Bash cannot trap what was ignored before it, such as HUP after `nohup`.
    command = ["env", "--default-signal", *command]
    with (tmp_path / "output").open("w") as output:
        script = subprocess.Popen(command, env=environ, stdout=output, stderr=output, start_new_session=True)
    until(lambda: calls.exists() and calls.read_text().count("\n") == HANGING, WAIT_S, "all have started")
    begun = [psutil.Process(int(pid)) for pid in calls.read_text().split()]
    try:
        script.send_signal(number)  # to the script only

        assert script.wait(WAIT_S) == 128 + number, (tmp_path / "output").read_text()
        until(lambda: not any(is_running(process) for process in begun), WAIT_S, "all have ended")
        assert list((tmp_path / "logs").iterdir()) == []
    finally:
        script.kill()
        script.wait()
        for process in filter(is_running, begun):
            process.kill()


def is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
