"""Bearlake servers as a cluster runs them: one `bearlake serve kafka --config FILE` process per server, on shared stores.

    with running(Cluster(folder, Stores(metadata_url, object_store_url)), "a", "b") as cluster:
        cluster["a"].kill()
        cluster["a"].start()

Servers are started, signalled and awaited by their process id only, every wait has a bound, and nothing is left behind. A server keeps its
ports when it is started again, as a pod with a stable address does: they are ports that no outgoing connection takes meanwhile. What
servers log is kept, and shown when the block fails.
"""

import contextlib
import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from faults.waiting import until
from fixtures.ports import free_port
from fixtures.server_process import PROGRAM, clean_environment

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
HTTP_TIMEOUT_S = 5.0
SHOWN_LOG_LINES = 60
PROTOCOLS = ("kafka", "pulsar", "pulsar_http", "rest", "registry", "catalog", "grpc")
LISTENERS = {
    "kafka": ("kafka",),
    "pulsar": ("pulsar", "pulsar_http"),
    "rest": ("rest", "registry"),
    "catalog": ("catalog",),
    "grpc": ("grpc",),
    "compactor": (),
}
"""Listeners by role, besides the admin API."""


@dataclass(frozen=True, kw_only=True)
class Stores:
    """Settings that the servers of a cluster share; `environment` has the object store's credentials."""

    metadata_url: str
    object_store_url: str
    environment: Mapping[str, str] = field(default_factory=dict)


class Server:
    """One server of a cluster: its settings file, its log, and its process while it runs."""

    def __init__(
        self,
        folder: Path,
        name: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        words: Sequence[str] = ("serve", "kafka"),
    ) -> None:
        """`settings` by dotted path, `{"server.zone": "one"}`; `words` are the command's."""
        self.name = name
        self.log = folder / f"{name}.log"
        self.config = folder / f"{name}.yaml"
        self._ready_file = folder / f"{name}.ready.json"
        ports = {f"listeners.{protocol}.port": free_port() for protocol in LISTENERS.get(words[1], PROTOCOLS)}
        self._settings = {"server.name": name, **ports, "admin.port": free_port(), **settings}
        self._environment = environment or {}
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._addresses: Mapping[str, str] = {}

    # -- life-cycle ----------------------------------------------------------------------------------------------

    def rename(self, name: str) -> None:
        """From its next start on, run as another server with a new node id at the same address, like a new pod with a stable name."""
        self._settings["server.name"] = name

    def start(self) -> None:
        """Start, and return when every listener accepts."""
        self.spawn()
        self.wait_until_ready()

    def restart_with(self, environment: Mapping[str, str]) -> None:
        """Start without waiting, with these variables in addition to earlier ones from now on; empty variables are removed."""
        self._environment = {key: value for key, value in {**self._environment, **environment}.items() if value}
        self.spawn()

    def spawn(self) -> None:
        """Start, and return at once."""
        assert self._process is None, f"server {self.name} runs already"
        self.write_config()
        self._ready_file.unlink(missing_ok=True)
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [*PROGRAM, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=clean_environment(self._environment),
                start_new_session=True,
            )

    def write_config(self) -> None:
        """Write the settings file, which commands of the same deployment can use too."""
        self.config.write_text(yaml.safe_dump(_nested(self._settings)))

    def command(self) -> list[str]:
        """The command line arguments of `bearlake`."""
        return [*self._words, "--config", str(self.config), "--ready-file", str(self._ready_file)]

    def wait_until_ready(self) -> None:
        """Return when every listener of the started process accepts; remember its ports."""

        def is_ready() -> bool:
            assert self.is_running, f"server {self.name} ended at start:\n{self.said()}"
            return self._ready_file.exists()

        until(is_ready, START_TIMEOUT_S, f"server {self.name} is ready")
        self._addresses = json.loads(self._ready_file.read_text())
        for name, address in self._addresses.items():
            section = name if name in ("admin", "console") else f"listeners.{name}"
            self._settings[f"{section}.port"] = int(address.rpartition(":")[2])  # an advertised host has the same port

    def kill(self) -> None:
        """kill -9, as a crash of the process does it."""
        self._running.kill()
        self._await_end()

    def terminate(self) -> float:
        """Send SIGTERM; return the seconds until the process ended. Its exit code must be 0."""
        start = time.monotonic()
        self._running.send_signal(signal.SIGTERM)
        code = self._await_end()
        assert code == 0, f"server {self.name} ended with {code} after SIGTERM"
        return time.monotonic() - start

    def wait(self) -> int:
        """Wait until the process ends by itself; return its exit code."""
        return self._await_end()

    def stop_running(self) -> None:
        """SIGSTOP: the process is paused, its connections stay open."""
        self._running.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._running.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill the process if it runs, even if it is paused."""
        if self._process is not None:
            self._process.kill()
            self._await_end()

    def _await_end(self) -> int:
        code = self._running.wait(STOP_TIMEOUT_S)
        self._process = None
        return code

    # -- to look at ----------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.poll() is None

    def exit_code(self) -> int | None:
        """Exit code of a process that ended by itself; None while it runs, or if this object ended it."""
        return None if self._process is None else self._process.poll()

    def is_ready(self) -> bool:
        """Whether the process runs, and every listener accepts."""
        return self.is_running and self._ready_file.exists()

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        return self._running.pid

    @property
    def kafka(self) -> str:
        """`host:port`, also while it does not run."""
        return self._addresses["kafka"]

    def address(self, name: str) -> str:
        """URL (`rest`, `registry`) or `host:port` (`grpc`) of another listener, also while it does not run."""
        return self._addresses[name]

    @property
    def admin(self) -> str:
        """URL of the admin API, also while it does not run."""
        return self._addresses["admin"]

    def listening(self) -> Mapping[str, str]:
        """Addresses of all listeners by name, as it advertises them."""
        return self._addresses

    def resident_bytes(self) -> int:
        """Resident memory of its process now."""
        return _status_bytes(self.pid, "VmRSS")

    def resident_bytes_peak(self) -> int:
        """The most resident memory that its process has had."""
        return _status_bytes(self.pid, "VmHWM")

    def metric(self, name: str, **labels: str) -> float:
        """A metric's samples that have these labels, added up; 0 when it has none."""
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=HTTP_TIMEOUT_S) as page:
            lines = page.read().decode().splitlines()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = (line for line in lines if re.match(rf"{name}[ {{]", line))
        return sum(float(line.rsplit(" ", 1)[1]) for line in found if all(label in line for label in wanted))

    def said(self, line_count: int = SHOWN_LOG_LINES) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-line_count:])

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"server {self.name} does not run"
        return self._process


class Cluster:
    """Servers by name on the same stores. `settings` (dotted) hold for all of them."""

    def __init__(self, folder: Path, stores: Stores, settings: Mapping[str, Any] | None = None) -> None:
        self.folder = folder
        self._stores = stores
        self._settings = {
            "metadata.url": stores.metadata_url,
            "object_store.url": stores.object_store_url,
            "logs.format": "text",
            **(settings or {}),
        }
        self.servers: dict[str, Server] = {}

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    def add(self, name: str, *, role: str = "kafka", **settings: Any) -> Server:
        """One more server, in a zone of its own name, so that a client id can ask for it (`zone_id=NAME`); not started."""
        mine = {**self._settings, "server.zone": name, **settings}
        self.servers[name] = Server(self.folder, name, mine, self._stores.environment, ("serve", role))
        return self.servers[name]

    @property
    def bootstrap(self) -> str:
        """Addresses of all servers."""
        return ",".join(server.kafka for server in self.servers.values())

    def by_address(self, address: str) -> Server:
        """The server that listens at `host:port`."""
        return next(server for server in self.servers.values() if server.kafka == address)


@contextlib.contextmanager
def running(cluster: Cluster, *names: str) -> Iterator[Cluster]:
    """Start servers of these names, with the block inside; afterwards end all, and show their logs when it failed."""
    try:
        for name in names:
            cluster.add(name).spawn()
        for server in cluster.servers.values():
            server.wait_until_ready()
        yield cluster
    except BaseException:
        for server in cluster.servers.values():
            print(f"--- the end of {server.log} ---\n{server.said()}")
        raise
    finally:
        for server in cluster.servers.values():
            server.end()


def _nested(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    tree: dict[str, Any] = {}
    for path, value in dotted.items():
        *sections, name = path.split(".")
        here = tree
        for section in sections:
            here = here.setdefault(section, {})
        here[name] = value
    return tree


def _status_bytes(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024
