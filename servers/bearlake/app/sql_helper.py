"""`python -m bearlake.app.sql_helper`: imports the engine once and forks a process for each statement (`sql.py`, decision 307).

The helper never runs a statement and never has the settings, so that a process starts with nothing of earlier statements. Its standard
input is a socket. Each packet is the folder of a statement, with two sockets: `talk`, where the process reads its request and writes its
answer, and `control`. When the process has ended, the helper writes its exit code to `control` (`EXIT`). When the server closes its end of
`control`, the helper kills the process. In both cases it kills all that the process has started. When the server closes the helper's
standard input, as it also does when it crashes, the helper kills all processes and ends.
"""

import ctypes
import gc
import os
import selectors
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from bearlake.app.sql_exits import EXIT, FOLDER_BYTES_MAX

_STATEMENT_MODULE = "bearlake.app.sql_child"
_PR_SET_PDEATHSIG = 1
_NEEDED_LATER = (
    "bearlake.metadata.postgresql.store",
    "bearlake.objects.cloud",
    "pyiceberg.io.pyarrow",
)
"""Modules that a statement imports when it needs them; each that is installed is imported here instead, once for all."""


def main() -> None:
    """Serve until the server closes standard input."""
    child = import_module(_STATEMENT_MODULE)
    for name in _NEEDED_LATER:
        with suppress(ImportError):  # of an extra that is not installed
            import_module(name)
    Helper(socket.socket(fileno=0), child.main).serve()


class Helper:
    """Forks processes for the packets of `channel`. `run` serves the request on standard input in a new process, and ends the process."""

    def __init__(self, channel: socket.socket, run: Callable[[], object]) -> None:
        self._channel = channel
        self._run = run
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, socket.socket] = {}
        """By process, its `control`."""
        self._ended, wakes = socket.socketpair()
        for end in (self._ended, wakes):
            end.setblocking(False)
        self._wakes = wakes
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that the number of the signal is written to the socket
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until the channel ends."""
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._ended, selectors.EVENT_READ)
        is_open = True
        while is_open:
            for key, _ in self._selector.select():
                if key.fileobj is self._channel:
                    is_open = self._start()
                elif key.fileobj is self._ended:
                    self._ended.recv(4_096)
                elif key.data in self._running:
                    _kill(key.data)  # the server has closed `control`; it writes nothing to it
                    self._selector.unregister(key.fileobj)
            self._reap()
        for pid in self._running:
            _kill(pid)

    def _start(self) -> bool:
        """Start a process for the next packet; return False if there will be none."""
        packet, descriptors, _, _ = socket.recv_fds(self._channel, FOLDER_BYTES_MAX, 2)
        if not packet:
            return False
        if len(descriptors) < 2:  # this process has no room for more: the server finds both ends closed
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        talk, control = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        gc.freeze()  # keeps the process's garbage collector from touching, and so copying, shared pages
        helper = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # the system has no room for another process: the others go on
            talk.close()
            control.close()
            return True
        if pid == 0:
            try:
                self._become(os.fsdecode(packet), talk, control)
                # The helper may have ended before the kernel knew that this process ends with it.
                if os.getppid() == helper:
                    self._run()
            finally:
                os._exit(1)
        talk.close()
        self._running[pid] = control
        self._selector.register(control, selectors.EVENT_READ, pid)
        return True

    def _become(self, folder: str, talk: socket.socket, control: socket.socket) -> None:
        """Make the new process one that knows only its own statement."""
        os.setsid()  # the session is the group to end
        _end_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for other in (self._ended, self._wakes, control, *self._running.values()):
            other.close()
        os.dup2(talk.fileno(), 0)  # closes the channel here
        os.dup2(talk.fileno(), 1)
        talk.close()
        os.environ["TMPDIR"] = folder
        tempfile.tempdir = None

    def _reap(self) -> None:
        for pid, control in list(self._running.items()):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            _kill(pid)  # what it has started; its number is not free yet
            _, status = os.waitpid(pid, 0)
            del self._running[pid]
            with suppress(KeyError):
                self._selector.unregister(control)
            with suppress(OSError):  # the server has gone
                control.sendall(EXIT.pack(os.waitstatus_to_exitcode(status)))
            control.close()


def _end_with_parent() -> None:
    """Let the kernel kill this process when the helper ends, also if it is killed (Linux; elsewhere the process has only its timer)."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _kill(pid: int) -> None:
    """Kill a process that was not waited for, and all that it has started."""
    with suppress(ProcessLookupError, PermissionError):  # it has not made its session yet, and so has started nothing
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
