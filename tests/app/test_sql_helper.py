"""The helper forks a process for each packet: what the process has, and what ends it and all that it has started."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bearlake.app import sql_processes
from bearlake.app.sql_exits import EXIT
from bearlake.app.sql_processes import HELPER, StatementProcesses
from fixtures.waiting import WAIT_S

PROGRAM = """
import os, signal, socket, subprocess, sys, time
from bearlake.app.sql_helper import Helper

def run():
    word = sys.stdin.read()
    if word == "look":
        held = [name for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)]
        print(os.environ["TMPDIR"], os.getsid(0) == os.getpid(), len(held), flush=True)
        os._exit(7)
    if word == "start":
        subprocess.Popen(["sleep", "1000"], stdout=1)
        os.kill(os.getpid(), signal.SIGKILL)
    subprocess.Popen(["sleep", "1000"], stdout=1)
    print("runs", flush=True)
    time.sleep(1000)

Helper(socket.socket(fileno=0), run).serve()
"""


BEFORE_ITS_SESSION = """
import os, signal
from bearlake.app import sql_helper

pid = os.fork()
if pid == 0:
    signal.pause()
sql_helper._kill(pid)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
"""Kills a process that has not made its session yet."""

WITHOUT_PROCESSES = """
import os

count, fork = 0, os.fork

def refusing():
    global count
    count += 1
    if count == 2:
        raise BlockingIOError("no process")
    return fork()

os.fork = refusing
"""
"""The system refuses the second process."""


class Statement:
    """Our ends of a process."""

    def __init__(self, channel: socket.socket, word: str, folder: str = "/a/folder") -> None:
        self.talk, talk = socket.socketpair()
        self.control, control = socket.socketpair()
        with talk, control:
            socket.send_fds(channel, [folder.encode()], [talk.fileno(), control.fileno()])
        for end in (self.talk, self.control):
            end.settimeout(WAIT_S)
        self.talk.sendall(word.encode())
        self.talk.shutdown(socket.SHUT_WR)

    def line(self) -> bytes:
        """What the process has printed up to the end of a line, which may come in pieces."""
        found = b""
        while not found.endswith(b"\n") and (piece := self.talk.recv(1)):
            found += piece
        return found

    def rest(self) -> bytes:
        """Return all that the process writes until nothing of it lives any more."""
        octets = b""
        while piece := self.talk.recv(1024):
            octets += piece
        return octets

    def code(self) -> int:
        return int(EXIT.unpack(self.control.recv(EXIT.size))[0])


class Running:
    """A helper that runs."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, closing: ExitStack) -> None:
        self.process, self.channel = process, channel
        self._closing = closing

    def start(self, word: str, folder: str = "/a/folder") -> Statement:
        found = Statement(self.channel, word, folder)
        self._closing.enter_context(found.talk)
        self._closing.enter_context(found.control)
        return found


@pytest.fixture
def helper() -> Iterator[Running]:
    with running(PROGRAM) as found:
        yield found


@contextmanager
def running(program: str) -> Iterator[Running]:
    """Run a helper."""
    channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen([sys.executable, "-P", "-c", program], stdin=its.fileno(), env=environment)
    with ExitStack() as closing, channel, process:
        try:
            yield Running(process, channel, closing)
        finally:
            process.kill()


def test_a_process_has_only_its_own_statement(helper: Running) -> None:
    other = helper.start("stay")
    assert other.line() == b"runs\n"
    found = helper.start("look", "/of/its/own")

    assert found.rest() == b"/of/its/own True 3\n"  # standard input, output and error
    assert found.code() == 7


def test_all_that_a_process_has_started_ends_with_it(helper: Running) -> None:
    found = helper.start("start")

    assert found.code() == -signal.SIGKILL
    assert found.rest() == b""


def test_a_server_that_closes_its_end_ends_the_process_and_all_that_it_has_started(helper: Running) -> None:
    found, other = helper.start("stay"), helper.start("stay")
    assert found.line() == b"runs\n"
    assert other.line() == b"runs\n"
    found.control.shutdown(socket.SHUT_WR)

    assert (found.code(), found.rest()) == (-signal.SIGKILL, b"")
    other.control.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.control.recv(1)


def test_the_helper_and_its_processes_end_with_the_server(helper: Running) -> None:
    found = helper.start("stay")
    assert found.line() == b"runs\n"
    helper.channel.close()

    assert found.rest() == b""
    assert helper.process.wait(WAIT_S) == 0


def test_a_process_is_killed_before_it_has_made_its_session() -> None:
    """Its client may be gone so early; nobody would end it before its own deadline."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-c", BEFORE_ITS_SESSION]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=WAIT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    assert output == b"%d\n" % -signal.SIGKILL


def test_a_process_that_the_system_refuses_harms_no_other() -> None:
    with running(WITHOUT_PROCESSES + PROGRAM) as helper:
        first, refused = helper.start("stay"), helper.start("look")
        assert first.line() == b"runs\n"

        assert refused.control.recv(EXIT.size) == b""
        last = helper.start("look")
        assert last.line().startswith(b"/a/folder True")


async def test_a_helper_that_hangs_is_killed_and_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    processes = StatementProcesses()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(sql_processes, "WAIT_S", 0.01)
            async with processes.started(str(tmp_path)):
                (hung,) = helpers()
                os.kill(hung, signal.SIGSTOP)
        async with processes.started(str(tmp_path)) as process:
            process.writer.write_eof()

            assert await process.exit_code() == 1  # there was no request
        assert hung not in helpers()
    finally:
        await processes.close()


async def test_a_killed_helper_is_asked_for_nothing_while_it_lasts(tmp_path: Path) -> None:
    processes = StatementProcesses()
    try:
        async with processes.started(str(tmp_path)):
            helper = processes._helper  # noqa: SLF001 - nothing else reaches it at this moment
            assert helper is not None
            helper.kill()

            assert not helper.send(str(tmp_path), ())
    finally:
        await processes.close()


async def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    processes = StatementProcesses()

    async def run() -> None:
        async with processes.started(str(tmp_path)):
            await asyncio.sleep(WAIT_S)

    try:
        async with processes.started(str(tmp_path)):
            (helper,) = helpers()
        for steps in range(8):
            running = asyncio.create_task(run())
            for _ in range(steps):
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.wait([running])

            assert children(helper) == [], steps
    finally:
        await processes.close()


def children(helper: int) -> list[str]:
    """The processes of a helper, which has one thread."""
    return Path(f"/proc/{helper}/task/{helper}/children").read_text().split()


def helpers() -> list[int]:
    """The helpers that this process has started and that live."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended; its children are another one's
            found += [int(child) for child in (task / "children").read_text().split() if is_helper(child)]
    return found


def is_helper(pid: str) -> bool:
    with suppress(OSError):  # it has ended
        return HELPER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
