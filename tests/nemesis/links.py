"""The run's side of the network: opens links by name, sets their rules and reads their counts, through the process of `proxy.py`."""

import contextlib
import json
import select
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fixtures import ports

PROGRAM = Path(__file__).parent / "proxy.py"
ANSWER_S = 20.0
SERVER_HOST = "127.0.0.1"
HOST = "127.0.0.2"
"""The host where links listen. All of 127.0.0.0/8 is loopback, so a server and its link can use the same port, and a server's advertised
address leads through its link."""


class AddressInUse(RuntimeError):
    """A link cannot listen at its address."""


class Network:
    """Links between processes; a context whose end stops the proxy's process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self.names: list[str] = []

    @property
    def pid(self) -> int:
        """Process id of the proxy."""
        return self._process.pid

    def open(self, name: str, target: str, *, listen: str = f"{HOST}:0", kind: str = "tcp") -> str:
        """Open a link; return its address."""
        answer = self._ask(do="open", link=name, target=target, listen=listen, kind=kind)
        self.names.append(name)
        return f"{listen.rpartition(':')[0]}:{answer['port']}"

    def reserve(self, name: str, tried: Iterable[int]) -> int:
        """Open a link at the first free port of `tried`; return the port, at which a server can then listen on 127.0.0.1.

        The link keeps its port, so two runs never choose the same port. Raises `ports.NoPort`.
        """
        remaining = iter(tried)
        while True:
            port = ports.choose(remaining, (HOST, SERVER_HOST))
            with contextlib.suppress(AddressInUse):  # another program took the port in the meantime
                self.open(name, f"{SERVER_HOST}:{port}", listen=f"{HOST}:{port}")
                return port

    def set_target(self, name: str, target: str) -> None:
        """Send new connections to this target, and reset open connections."""
        self._ask(do="target", link=name, target=target)

    def set_rule(self, name: str, rule: dict[str, Any] | None) -> dict[str, int]:
        """Set the link's rule (see `proxy.py`); return the link's counts before the change."""
        return self._ask(do="rule", link=name, rule=rule)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the counts of each link since the start."""
        return self._ask(do="counts")

    def matching(self, *words: str) -> list[str]:
        """Return the names of links (`from>to`) that contain all these words."""
        return [name for name in self.names if all(word in name for word in words)]

    def end(self) -> None:
        """Stop the proxy's process."""
        self._process.kill()
        self._process.wait(ANSWER_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _ask(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], ANSWER_S)[0]:
                raise RuntimeError(f"proxy: no answer within {ANSWER_S:g} s to {command}")
            answer = json.loads(self._process.stdout.readline() or '{"error": "the proxy has ended"}')
        if "error" in answer:
            kind = AddressInUse if answer.get("is_address_in_use") else RuntimeError
            raise kind(f"proxy: {command}: {answer['error']}")
        return answer
