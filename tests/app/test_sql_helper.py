"""The helper forks a process for each packet: what the process has, and what ends it and all that it has started."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bearlake.app.sql_exits import EXIT
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
    channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen([sys.executable, "-P", "-c", PROGRAM], stdin=its.fileno(), env=environment)
    with ExitStack() as closing, channel, process:
        yield Running(process, channel, closing)
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
