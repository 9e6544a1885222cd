"""Three servers over one SQLite file and one folder, for applications that must survive the death of a server."""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from conformance import processes
from fixtures.ports import free_port

SERVER_COUNT = 3
START_TIMEOUT_S = 120
POLL_S = 0.2


class Servers:
    """The servers. Data is in `folder`, output in `logs`; `running` ends all processes."""

    def __init__(self, folder: Path, logs: Path, running: ExitStack) -> None:
        self._folder, self._logs, self._running = folder, logs, running
        self._ports = [free_port() for _ in range(SERVER_COUNT)]
        self._processes: list[subprocess.Popen[bytes]] = []
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def start_all(self) -> None:
        """Start all servers, and return when they serve."""
        self._processes = [self._start(number) for number in range(SERVER_COUNT)]

    def restart(self, number: int) -> None:
        """Kill a server, and start it again."""
        processes.end_group(self._processes[number])
        self._processes[number] = self._start(number)

    def run(self, name: str, command: Sequence[str | Path]) -> "subprocess.Popen[bytes]":
        """Start a program with its output in a file of its name."""
        with (self._logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._running.callback(processes.end_group, process)
        return process

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill a program."""
        processes.end_group(process)

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        ready = self._folder / f"ready-{number}.json"
        ready.unlink(missing_ok=True)
        process = self.run(
            f"server-{number}",
            [
                *(Path(sys.executable).parent / "bearlake", "serve", "kafka", "--name", f"k{number}"),
                *("--kafka-port", str(self._ports[number]), "--admin-port", "0", "--ready-file", ready),
                *("--metadata-url", f"sqlite:///{self._folder}/metadata.db"),
                *("--object-store-url", f"file://{self._folder}/objects"),
            ],
        )
        for _ in range(int(START_TIMEOUT_S / POLL_S)):
            if ready.exists():
                return process
            time.sleep(POLL_S)
        raise TimeoutError(f"server {number} does not serve after {START_TIMEOUT_S} s, see {self._logs}")
