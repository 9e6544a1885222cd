"""Run a third-party program with a time limit and its output in a file; leave no process behind.

A program gets its own process group. At the time limit, the whole group is ended: tools such as test runners, `mvn` and `go`
start children, and none of them may stay.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a program ended: `code` is its exit code (negative: signal), `None` when its time was over; times in seconds."""

    code: int | None
    seconds: float
    log: Path

    @property
    def is_success(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.code == 0

    def text(self) -> str:
        """The program's output; bytes that are not UTF-8 are replaced."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self, line_count: int = 3) -> str:
        """The last `line_count` lines that are not blank, joined by ` | `, at most 400 characters."""
        lines = [line.strip() for line in self.text().splitlines() if line.strip()]
        return " | ".join(lines[-line_count:])[-400:]


def run(
    command: Sequence[str | Path],
    *,
    log: Path,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    errors: Path | None = None,
) -> Finished:
    """Run `command` to its end, for at most `timeout_s` seconds, with its output in `log`.

    `env` is added to the environment of this process. Without `stdin`, the input is empty. With `errors`, standard error
    goes to that file, so that `log` has only the output.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with log.open("wb") as out, (errors or Path(os.devnull)).open("wb") as err:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err if errors else subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        try:
            process.communicate(input=stdin or b"", timeout=timeout_s)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
    return Finished(code=code, seconds=time.monotonic() - begin, log=log)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End `process` and everything that it started in its own group; returns when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    if process.stdin:
        process.stdin.close()
