"""The server under test: one Bearlake that runs here, or any Kafka server that already listens somewhere.

`running(bootstrap=None)` starts `bearlake up` on free ports in a fresh directory and ends it with SIGTERM.
BEARLAKE_TEST_BOOTSTRAP=host:port (or `--bootstrap`) points a run at a server that is up already; it must create topics
on demand with 4 partitions and advertise an IPv4 address, because librdkafka's tests count on both.

Our own server has two Kafka listeners. Nobody logs in to the first one: its clients are the super user User:ANONYMOUS.
Clients of the second one log in by SASL without TLS. Resources without access rules are open to everybody.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conformance import processes

BOOTSTRAP_VARIABLE = "BEARLAKE_TEST_BOOTSTRAP"
START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 30
POLL_INTERVAL_S = 0.05

SETTINGS = {"BEARLAKE_KAFKA__DEFAULT_PARTITION_COUNT": "4"}
"""Environment of the server: what the suites need and the defaults do not give."""

SASL_LISTENER = "SASL"
SASL_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
DOCUMENT = {
    "listeners": {
        "kafka": {"anonymous": True},
        "kafka_more": [{"name": SASL_LISTENER, "mechanisms": SASL_MECHANISMS}],
        "catalog": {"anonymous": True},
    },
    "access": {"super_users": ["User:ANONYMOUS"], "allow_if_no_rule": True},
    "authentication": {"failures": {"per_address_max": 1_000_000, "per_user_max": 1_000_000}},
}
"""The settings file of the server, in JSON, which is YAML. Suites fail many logins on purpose, from one address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where a server listens; `name` names it in reports, `log` is its output when it was started here.

    `sasl_bootstrap` is the listener of clients that log in, or empty. `catalog` is the URL of the Iceberg REST catalog, or empty.
    """

    bootstrap: str
    sasl_bootstrap: str
    name: str
    log: Path | None
    catalog: str = ""


class ServerFailed(RuntimeError):
    """The server did not start, or did not end cleanly; the text names its log."""


def address(bootstrap: str | None) -> str | None:
    """The server that is up already: the one at `bootstrap`, else the variable's; None if there is none."""
    return bootstrap or os.environ.get(BOOTSTRAP_VARIABLE)


@contextmanager
def running(
    bootstrap: str | None = None, *, sasl_bootstrap: str = "", log: Path, settings: Mapping[str, str] = SETTINGS
) -> Iterator[Server]:
    """A server for the length of the block: the one at `bootstrap`, else the variable's, else a Bearlake of our own.

    `sasl_bootstrap` is the other server's listener for logins; `settings` are environment variables for our own.

    Raises:
        ServerFailed: it does not serve within 30 s, or it does not end with code 0 within 30 s after SIGTERM.
    """
    bootstrap = address(bootstrap)
    if bootstrap:
        name = f"the server at {bootstrap}"
        yield Server(bootstrap=bootstrap, sasl_bootstrap=sasl_bootstrap, name=name, log=None)
        return
    directory = Path(tempfile.mkdtemp(prefix="bearlake-conformance-"))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = _start(directory, out.fileno(), settings)
        try:
            ready = _wait_until_ready(process, directory / "ready.json", log)
            sasl_bootstrap = ready[f"kafka:{SASL_LISTENER}"]
            yield Server(
                bootstrap=ready["kafka"],
                sasl_bootstrap=sasl_bootstrap,
                name="Bearlake",
                log=log,
                catalog=ready["catalog"],
            )
            _stop(process, log)
        finally:
            processes.end_group(process)
            shutil.rmtree(directory, ignore_errors=True)


PORTS = (
    "--kafka-port",
    "--admin-port",
    "--pulsar-port",
    "--pulsar-http-port",
    "--rest-port",
    "--registry-port",
    "--catalog-port",
    "--grpc-port",
    "--console-port",
)


def _start(directory: Path, out: int, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    program = Path(sys.executable).parent / "bearlake"
    config = directory / "settings.yaml"
    config.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    command = [
        program,
        "up",
        "--no-compaction",
        "--config",
        config,
        "--data-dir",
        directory / "data",
        "--ready-file",
        directory / "ready.json",
        "--no-tour",
    ]
    return subprocess.Popen(
        [*(str(word) for word in command), *(word for name in PORTS for word in (name, "0"))],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        env={**os.environ, **settings},
        start_new_session=True,
    )


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Path, log: Path) -> Mapping[str, str]:
    """The addresses in the ready file, which appears once every listener accepts."""
    for _ in range(int(START_TIMEOUT_S / POLL_INTERVAL_S)):
        if ready.exists():
            addresses: dict[str, str] = json.loads(ready.read_text(encoding="utf-8"))
            return addresses
        try:
            code = process.wait(timeout=POLL_INTERVAL_S)
        except subprocess.TimeoutExpired:
            continue
        raise ServerFailed(f"bearlake up ended with {code} before it served, see {log}")
    raise ServerFailed(f"bearlake up does not serve after {START_TIMEOUT_S} s, see {log}")


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is not None:
        raise ServerFailed(f"bearlake up ended with {process.returncode} during the run, see {log}")
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(timeout=STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ServerFailed(f"bearlake up did not end {STOP_TIMEOUT_S} s after SIGTERM, see {log}") from None
    if code != 0:
        raise ServerFailed(f"bearlake up ended with {code} after SIGTERM, see {log}")
