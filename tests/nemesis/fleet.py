"""The clients of a run: one process each. A client that ends is restarted. Each client writes its history to `NAME.jsonl`."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fixtures.server_process import clean_environment
from nemesis.script import HUNG
from nemesis.stores import signal_all, tree_of

if TYPE_CHECKING:
    from nemesis.cluster import Cluster

PROGRAM = Path(__file__).parent / "client.py"
STOP_S = 40.0
STACKS_S = 1.0
"""Time in which a client that does not end writes the stacks of its threads."""
AGAIN_S = 1.0


@dataclass
class Client:
    """One client and its process while it runs."""

    name: str
    kind: str
    process: subprocess.Popen[bytes] | None = None
    start_count: int = 0
    ended_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    hang_count: int = 0
    """How often its library did not return from a call."""

    @property
    def is_producer(self) -> bool:
        """Whether the client writes."""
        return self.kind.startswith(("produce", "churn"))


class Fleet:
    """All clients of a cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        counts: dict[str, int] = {}
        self.clients: list[Client] = []
        for kind in cluster.size.clients:
            counts[kind] = counts.get(kind, 0) + 1
            self.clients.append(Client(f"{kind}-{counts[kind]}", kind))
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._is_stopping = threading.Event()
        self._lock = threading.Lock()
        self._stopped: set[str] = set()

    def start(self) -> None:
        """Start all clients and keep them running."""
        for client in self.clients:
            self._spawn(client)
        self._keeper.start()

    def kill(self, client: Client) -> int:
        """Kill a client and all its child processes with SIGKILL; return its process id. The client is restarted."""
        with self._lock:
            assert client.process is not None
            pid = client.process.pid
            signal_all(tree_of(pid), signal.SIGKILL)
        return pid

    def wake(self, kind: str) -> None:
        """Wake the clients of this kind that are in `Script.sleep`."""
        with self._lock:
            pids = [
                client.process.pid
                for client in self.clients
                if client.kind == kind and client.process and client.process.poll() is None
            ]
            signal_all(pids, signal.SIGUSR1)

    def stop(self, *, producers: bool) -> None:
        """Send SIGTERM to producers (or to all other clients), so that they finish pending work.

        A client that does not end in time writes the stacks of its threads to `NAME.err`, and is killed.
        """
        chosen = [client for client in self.clients if client.is_producer == producers]
        with self._lock:
            self._stopped |= {client.name for client in chosen}
            for client in chosen:
                if client.process is not None:
                    client.process.terminate()
        end_s = time.monotonic() + STOP_S
        for client in chosen:
            self._await(client, end_s)

    def end(self) -> None:
        """Kill all clients."""
        self._is_stopping.set()
        with self._lock:
            for client in self.clients:
                if client.process is not None:
                    signal_all(tree_of(client.process.pid), signal.SIGKILL)
                    client.process.wait(STOP_S)
                    client.process = None

    def histories(self) -> list[Path]:
        """Return the clients' history files."""
        return sorted(self._cluster.folder.glob("*.jsonl"))

    def start_counts(self) -> dict[str, int]:
        """Return how often each client was started."""
        return {client.name: client.start_count for client in self.clients}

    def _await(self, client: Client, end_s: float) -> None:
        if client.process is None:
            return
        try:
            client.process.wait(max(0.1, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            client.failures.append("did not end after SIGTERM")
            client.process.send_signal(signal.SIGUSR2)
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.process.wait(STACKS_S)
            signal_all(tree_of(client.process.pid), signal.SIGKILL)
            client.process.wait(STOP_S)
        client.process = None

    def _keep(self) -> None:
        """Restart clients that have ended, after `AGAIN_S`."""
        while not self._is_stopping.wait(0.2):
            with self._lock:
                for client in self.clients:
                    if client.process is None or client.process.poll() is None or client.name in self._stopped:
                        continue
                    if client.ended_s == 0.0:
                        client.ended_s = time.monotonic()
                        if client.process.returncode == HUNG:
                            client.hang_count += 1
                        elif client.process.returncode not in (0, -signal.SIGKILL):
                            client.failures.append(f"ended with {client.process.returncode}")
                    elif time.monotonic() - client.ended_s > AGAIN_S:
                        self._spawn(client)

    def _spawn(self, client: Client) -> None:
        cluster, client.ended_s = self._cluster, 0.0
        client.start_count += 1
        plan = {
            "name": client.name,
            "start": client.start_count,
            "seed": random.Random(f"{cluster.seed}/{client.name}/{client.start_count}").getrandbits(32),
            "folder": str(cluster.folder),
            "addresses": {protocol: list(found.values()) for protocol, found in cluster.addresses.items()},
            "partition_count": cluster.size.partition_count,
            "per_second": cluster.size.per_second,
            "sql_config": next((str(cluster.servers[name].config) for name in cluster.size.workers), ""),
        }
        with (cluster.folder / f"{client.name}.err").open("ab") as errors:
            client.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), client.kind, json.dumps(plan)],
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True,
                env=clean_environment({**cluster.client_environment(), "PYTHONPATH": ":".join(sys.path)}),
            )  # fmt: skip
