"""Bearlake with a settings file, on stores of the benchmark's choice: one server, or a cluster on shared stores."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from bench.bearlake_server import COMMAND, BearlakeServer, Counters
from bench.errors import BenchError
from bench.stores import Postgresql, S3Gateway

from bench import processes

STORED_BYTES_MAX = 4 << 30
STARTS_AT_ONCE = 4


def settings_of_place(directory: Path) -> dict[str, object]:
    """Settings of a server whose data is in `directory` (dotted names)."""
    return {
        "object_store.url": f"file://{directory}/objects",
        "metadata.url": f"sqlite://{directory}/metadata.db",
        **PORTS,
    }


PORTS: Mapping[str, object] = {"listeners.kafka.port": 0, "admin.port": 0}
"""Settings for free ports."""


class ConfiguredServer(BearlakeServer):
    """`bearlake serve kafka` with a settings file; `settings` (dotted names) override those of a server alone."""

    program = "kafka"

    def __init__(
        self,
        directory: Path,
        *,
        command: Path = COMMAND,
        settings: Mapping[str, object],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, command=command)
        self._settings = settings
        self.environment = environment or {}

    def words(self, ready: Path) -> Sequence[str | Path]:
        """Writes the settings file, then names it on the command line."""
        config = self.directory / "bearlake.yaml"
        config.write_text(yaml.safe_dump(nested({**settings_of_place(self.directory / "data"), **self._settings})))
        return [self._command, "serve", self.program, "--config", config, "--ready-file", ready]


class CompactionWorker(ConfiguredServer):
    """`bearlake serve compactor` with a settings file."""

    listener = "admin"
    program = "compactor"


class BearlakeCluster:
    """Servers on one metadata store and one object store, as one server under measurement.

    `postgresql` None: the metadata are in one SQLite file. The caller starts and stops PostgreSQL. `s3` None: the objects are in a folder.
    """

    def __init__(
        self,
        directory: Path,
        postgresql: Postgresql | None,
        *,
        s3: S3Gateway | None,
        server_count: int,
        settings: Mapping[str, object],
        command: Path = COMMAND,
        name: str = "bearlake",
        stored_bytes_max: int = STORED_BYTES_MAX,
    ) -> None:
        """`stored_bytes_max`: bytes of objects above which the stores are emptied between two runs."""
        self.name = name
        self._stored_bytes_max = stored_bytes_max
        self._directory = directory
        self._postgresql = postgresql
        self._s3 = s3
        self._server_count = server_count
        self._settings = settings
        self._command = command
        self.servers: list[ConfiguredServer] = []

    @property
    def pid(self) -> int:
        """Process id of the first server."""
        return self._first.pid

    @property
    def address(self) -> str:
        """Address of the first server, for administration."""
        return self._first.address

    @property
    def ports(self) -> list[int]:
        """Kafka ports of all servers."""
        return [int(server.address.rsplit(":", 1)[1]) for server in self.servers]

    @property
    def parts(self) -> dict[str, list[int]]:
        """Roots of the process trees of the servers and of each store."""
        stores = {"PostgreSQL": self._postgresql, "S3": self._s3}
        return {
            "servers": [server.pid for server in self.servers],
            **{name: store.pids if store else [] for name, store in stores.items()},
        }

    @property
    def settings(self) -> Mapping[str, object]:
        """Settings of every process of the cluster (dotted names); the stores must have been started."""
        shared = (
            {"metadata.url": self._postgresql.url(), "tables.catalog_url": self._postgresql.url()}
            if self._postgresql
            else {}
        )
        return {
            "object_store.url": self._s3.url if self._s3 else f"file://{self._objects}",
            "metadata.url": f"sqlite://{self._directory}/metadata.db",
            **shared,
            **PORTS,
            **self._settings,
        }

    def start(self) -> None:
        """Start all servers."""
        if self._s3:
            self._s3.start()
        self.add(self._server_count)

    def add(self, count: int) -> None:
        """Start `count` more servers. Raises BenchError if a server does not start; the others stay for `stop`."""
        fresh = [
            ConfiguredServer(
                self._directory / f"server-{len(self.servers) + number}", command=self._command,
                settings=self.settings, environment=self._s3.environment if self._s3 else {},
            )
            for number in range(count)
        ]  # fmt: skip
        first = fresh[:1] if not self.servers else []  # makes the tables
        self._start(first)
        self._start(fresh[len(first) :])

    def stop(self) -> None:
        """Stop all servers and the object store, and delete their files."""
        while self.servers:
            self.servers.pop().stop()
        if self._s3:
            self._s3.stop()
        shutil.rmtree(self._objects, ignore_errors=True)
        for file in self._directory.glob("metadata.db*"):
            file.unlink()

    def prepare_next_run(self) -> None:
        """Empty the stores if they hold much, because deleted streams are swept only by compaction workers."""
        stored_bytes = self._s3.stored_bytes if self._s3 else processes.directory_bytes(self._objects)
        if stored_bytes < self._stored_bytes_max:
            return
        self.stop()
        if self._postgresql:
            self._postgresql.stop()
            self._postgresql.start()
        self.start()

    def counters(self) -> Counters:
        """Puts and commits of all servers."""
        pages = [counters for server in self.servers if (counters := server.counters())]
        return Counters(
            objects=_sum(page.objects for page in pages),
            object_bytes=_sum(page.object_bytes for page in pages),
            commits=_sum(page.commits for page in pages),
        )

    @property
    def _objects(self) -> Path:
        return self._directory / "objects"

    @property
    def _first(self) -> ConfiguredServer:
        if not self.servers:
            raise BenchError("no Bearlake server was started")
        return self.servers[0]

    def _start(self, fresh: Sequence[ConfiguredServer]) -> None:
        self.servers += fresh
        with ThreadPoolExecutor(STARTS_AT_ONCE) as pool:
            list(pool.map(ConfiguredServer.start, fresh))


def nested(dotted: Mapping[str, object]) -> dict[str, object]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    tree: dict[str, object] = {}
    for name, value in dotted.items():
        *sections, key = name.split(".")
        here = tree
        for section in sections:
            inner = here.setdefault(section, {})
            assert isinstance(inner, dict), f"{name}: {section} is a setting and a section"
            here = inner
        here[key] = value
    return tree


def _sum(values: Iterable[float | None]) -> float:
    return sum(value or 0.0 for value in values)
