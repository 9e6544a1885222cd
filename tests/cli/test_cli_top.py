"""`bearlake top` against a real server: for scripts, and on a terminal that changes its size."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.server_process import PROGRAM, ServerProcess, clean_environment, finished, started
from fixtures.waiting import WAIT_S

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("top")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        environ = environment(process)
        assert finished("stream", "create", "orders", environ=environ).returncode == 0
        assert finished("produce", "orders", stdin=b"x\n" * 100, environ=environ).returncode == 0
        read = finished("consume", "orders", "-g", "readers", "--from-beginning", "-c", 40, environ=environ)
        assert read.returncode == 0
        yield process


def environment(server: ServerProcess) -> dict[str, str]:
    return {"BEARLAKE_ADMIN": server.admin, "BEARLAKE_BOOTSTRAP": server.kafka}


def test_once_prints_json_for_scripts(server: ServerProcess) -> None:
    result = finished("top", "--once", "--interval-ms", 200, "--json", environ=environment(server))

    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert found["totals"]["server_count"] == 1
    assert found["servers"][0]["state"] == "live"
    assert found["servers"][0]["memory_bytes"] > 1_000_000
    (stream,) = (row for row in found["streams"] if row["stream"] == "orders")
    assert (stream["record_count"], stream["table_lag_records"]) == (100, 100)
    (group,) = (row for row in found["groups"] if row["group"] == "readers")
    assert (group["lag"], group["streams"]) == (60, [{"stream": "orders", "lag": 60}])
    assert found["problems"] == []


def test_without_a_terminal_frames_have_no_colours(server: ServerProcess) -> None:
    result = finished("top", "--count", 2, "--interval-ms", 150, environ=environment(server))

    shown = result.stdout.decode()
    assert result.returncode == 0, result.stderr
    assert shown.count("bearlake top ") == 2
    assert "\x1b" not in shown
    assert all(word in shown for word in ("SERVER", "STREAM", "GROUP", "orders", "readers", "a day"))


def test_no_answer_ends_with_exit_code_3() -> None:
    result = finished("top", "--once", environ={"BEARLAKE_ADMIN": "http://127.0.0.1:1"})

    assert result.returncode == 3
    assert b"127.0.0.1:1" in result.stderr


class Terminal:
    """A pseudo terminal with a program on it."""

    def __init__(self, words: list[str], environ: dict[str, str], rows: int, columns: int) -> None:
        self._ours, theirs = pty.openpty()
        self._resize(theirs, rows, columns)
        self.process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=clean_environment({**environ, "TERM": "xterm"}),
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    @staticmethod
    def _resize(descriptor: int, rows: int, columns: int) -> None:
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows: int, columns: int) -> None:
        self._resize(self._ours, rows, columns)
        self.process.send_signal(signal.SIGWINCH)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def read_until(self, pattern: str) -> str:
        """Return what the program wrote up to the pattern; later calls continue behind it."""
        deadline = time.monotonic() + WAIT_S
        while (match := re.search(pattern, self.text)) is None:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{pattern!r} did not appear in {self.text[-2_000:]!r}"
            self.text += self._read()
        found, self.text = self.text[: match.end()], self.text[match.end() :]
        return found

    def _read(self) -> str:
        data = os.read(self._ours, 65_536)
        assert data, "the program closed its terminal"
        return data.decode(errors="replace")

    def rest(self) -> str:
        """Return everything up to the program's end."""
        with contextlib.suppress(OSError):  # Linux: the other end is closed
            while data := os.read(self._ours, 65_536):
                self.text += data.decode(errors="replace")
        return self.text

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT_S)
        os.close(self._ours)


@pytest.fixture
def terminal(server: ServerProcess) -> Iterator[Terminal]:
    found = Terminal(["top", "--interval-ms", "100"], environment(server), 30, 100)
    yield found
    found.close()


def lines_of_frame(text: str) -> list[str]:
    """The lines of the last whole frame, without the sequences that draw it."""
    frame = text.split("\x1b[H")[-1].split("\x1b[J")[0]
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in frame.split("\r\n")]


def test_the_display_follows_the_size_of_the_terminal_and_ends_with_q(terminal: Terminal) -> None:
    terminal.read_until(r"\x1b\[\?1049h")
    wide = lines_of_frame(terminal.read_until(r"STREAM(?s:.)*orders(?s:.)*?\x1b\[J"))
    assert max(map(len, wide)) <= 100

    terminal.resize(20, 60)
    terminal.read_until(r"\x1b\[H")
    narrow = lines_of_frame("\x1b[H" + terminal.read_until(r"STREAM(?s:.)*orders(?s:.)*?\x1b\[J"))
    while max(map(len, narrow)) > 60:  # a frame of the former size was on its way
        terminal.read_until(r"\x1b\[H")
        narrow = lines_of_frame("\x1b[H" + terminal.read_until(r"STREAM(?s:.)*orders(?s:.)*?\x1b\[J"))
    assert len(narrow) <= 20

    terminal.type(b"q")

    assert terminal.rest().rstrip().endswith("\x1b[?1049l")
    assert terminal.process.wait(WAIT_S) == 0


def test_ctrl_c_restores_the_terminal(terminal: Terminal) -> None:
    terminal.read_until("STREAM")

    terminal.process.send_signal(signal.SIGINT)

    assert "\x1b[?1049l" in terminal.rest()
    assert terminal.process.wait(WAIT_S) == 130


def test_the_display_goes_on_while_the_server_is_away(tmp_path: Path) -> None:
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        found = Terminal(["top", "--interval-ms", "100"], environment(server), 30, 120)
        try:
            found.read_until("SERVER")
            assert server.stop() == 0

            found.read_until("no answer from")

            found.type(b"q")
            assert "\x1b[?1049l" in found.rest()
            assert found.process.wait(WAIT_S) == 0
        finally:
            found.close()
