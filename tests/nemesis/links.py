"""The network as the run sees it: links by name, opened, ruled and counted through the process of `proxy.py`."""

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
"""Where links listen: all of 127.0.0.0/8 is loopback, so a server and the link to it can have the same port, and a server's advertised
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
        return self._process.pid

    def open(self, name: str, target: str, *, listen: str = f"{HOST}:0", kind: str = "tcp") -> str:
        """A new link; its address."""
        answer = self._ask(do="open", link=name, target=target, listen=listen, kind=kind)
        self.names.append(name)
        return f"{listen.rpartition(':')[0]}:{answer['port']}"

    def reserve(self, name: str, tried: Iterable[int]) -> int:
        """A new link at the first of the ports `tried` that is free, and its port: a server can then listen there on 127.0.0.1.

        The link holds its port from now on, so two runs never choose the same one. Raises `ports.NoPort`.
        """
        remaining = iter(tried)
        while True:
            port = ports.choose(remaining, (HOST, SERVER_HOST))
            with contextlib.suppress(AddressInUse):  # another program took the port in the meantime
                self.open(name, f"{SERVER_HOST}:{port}", listen=f"{HOST}:{port}")
                return port

    def set_target(self, name: str, target: str) -> None:
        """New connections go there from now on; open ones are reset."""
        self._ask(do="target", link=name, target=target)

    def set_rule(self, name: str, rule: dict[str, Any] | None) -> dict[str, int]:
        """See `proxy.py`; the link's counts before."""
        return self._ask(do="rule", link=name, rule=rule)

    def counts(self) -> dict[str, dict[str, int]]:
        """Counts by link since the beginning."""
        return self._ask(do="counts")

    def matching(self, *words: str) -> list[str]:
        """Names of links (`from>to`) that contain all the words."""
        return [name for name in self.names if all(word in name for word in words)]

    def end(self) -> None:
        """Stop the proxy's process."""
        self._process.kill()
        self._process.wait(ANSWER_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _ask(self, **wish: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(wish) + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], ANSWER_S)[0]:
                raise RuntimeError(f"proxy: no answer within {ANSWER_S:g} s to {wish}")
            answer = json.loads(self._process.stdout.readline() or '{"error": "the proxy has ended"}')
        if "error" in answer:
            kind = AddressInUse if answer.get("is_address_in_use") else RuntimeError
            raise kind(f"proxy: {wish}: {answer['error']}")
        return answer
