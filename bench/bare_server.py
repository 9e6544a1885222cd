"""The bare server in C as a server under measurement (`loader/bare_server.c`): the floor of a server with Bearlake's promise.

It starts in a few milliseconds and knows no topics, so each run gets its own, with an empty folder.
"""

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.bearlake_server import Counters
from bench.errors import BenchError

from bench import loading, processes

SECONDS_MAX = 600
"""A server that is forgotten ends itself."""
_COUNTS = struct.Struct("=3Q")


class BareServer:
    """A bare server with its data below `directory`; `options` are words of its command line."""

    def __init__(self, directory: Path, options: Sequence[str] = (), *, name: str = "floor") -> None:
        self.name = name
        self.directory = directory
        self.address = ""
        self._options = list(options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; the server must have been started."""
        if self._process is None:
            raise BenchError("the bare server was not started")
        return self._process.pid

    def start(self) -> None:
        """Start; returns once the server accepts connections."""
        program = loading.build_loader("bare_server")
        self.directory.mkdir(parents=True)
        words = [str(program), f"--folder={self.directory}", f"--seconds-max={SECONDS_MAX}", *self._options]
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().decode().strip()
        if not port:
            self.stop()
            raise BenchError("the bare server ended at its start")
        self.address = f"127.0.0.1:{port}"

    def stop(self) -> None:
        """Stop the server and wipe its data; no-op if the server does not run."""
        if self._process is not None:
            processes.stop(self._process)
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def prepare_next_run(self) -> None:
        """Begin anew with an empty folder."""
        self.stop()
        self.start()

    def counters(self) -> Counters:
        """Objects and commits so far."""
        with (self.directory / "counts").open("rb") as file:
            objects, object_bytes, commits = _COUNTS.unpack(file.read(_COUNTS.size))
        return Counters(objects=objects, object_bytes=object_bytes, commits=commits)
