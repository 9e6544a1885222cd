"""`bearlake serve pulsar` under measurement, on embedded stores below one directory, which several servers may share."""

from collections.abc import Sequence
from pathlib import Path

from bench.bearlake_server import COMMAND, BearlakeServer


class BearlakePulsar(BearlakeServer):
    """A Pulsar server whose data is below `directory`, or with `stores` on the stores of another server."""

    listener = "pulsar"

    def __init__(self, directory: Path, *, command: Path = COMMAND, stores: Path | None = None) -> None:
        super().__init__(directory, command=command)
        self._stores = stores or directory / "data"

    def words(self, ready: Path) -> Sequence[str | Path]:
        """See `BearlakeServer`."""
        self._stores.mkdir(parents=True, exist_ok=True)
        stores = ["--metadata-url", f"sqlite:///{self._stores}/metadata.db"]
        stores += ["--object-store-url", f"file:///{str(self._stores).lstrip('/')}/objects"]
        ports = ["--pulsar-port", "0", "--pulsar-http-port", "0", "--admin-port", "0"]
        name = ["--name", self.directory.name]
        return [self._command, "serve", "pulsar", *stores, *ports, *name, "--ready-file", ready]

    @property
    def http(self) -> str:
        """Base URL of Pulsar's HTTP API."""
        return self.listeners["pulsar_http"]
