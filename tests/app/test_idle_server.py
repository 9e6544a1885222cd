"""What a server keeps in memory before the first client comes: code and libraries of what few clients ask for are not part of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.waiting import WAIT_S

PROGRAM = """
import json, os, signal, sys, threading
from bearlake.cli.main import run

def describe(ready, described):
    while not os.path.exists(ready):
        threading.Event().wait(0.02)
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    with open(described, "w") as file:
        json.dump({"modules": list(sys.modules), "kilobytes": int(status["VmRSS"].split()[0])}, file)
    os.kill(os.getpid(), signal.SIGTERM)

folder, *arguments = sys.argv[1:]
threading.Thread(target=describe, args=(folder + "/ready", folder + "/described"), daemon=True).start()
sys.exit(run([*arguments, "--ready-file", folder + "/ready"]))
"""

LIBRARIES_OF_OTHERS = {
    "asyncpg", "avro", "botocore", "confluent_kafka", "cramjam", "cryptography", "duckdb", "google.protobuf", "grpc", "jsonschema",
    "jsonschema_rs", "jwt", "obstore", "pg8000", "prometheus_client", "pyarrow", "pyiceberg", "pyspark", "re2", "scramp",
    "sqlalchemy", "yaml", "zstandard",
}  # fmt: skip
"""Libraries for other protocols and stores, and for what a Kafka client may never ask for."""

OTHER_WORK = {
    "bearlake.cli.produce", "bearlake.compaction.planner", "bearlake.importing.copying", "bearlake.live.views",
    "bearlake.metadata.postgresql.store", "bearlake.protocols.grpc.server", "bearlake.protocols.kafka.handlers.acls",
    "bearlake.protocols.kafka.handlers.group_membership", "bearlake.protocols.kafka.handlers.share_fetch",
    "bearlake.protocols.kafka.handlers.transactions", "bearlake.protocols.pulsar.server", "bearlake.protocols.rest.server",
    "bearlake.streams.groups.coordinator", "bearlake.streams.subscriptions.service", "bearlake.streams.validation.known",
}  # fmt: skip
"""One module of each part that is loaded when it is needed first."""

OWN_MODULE_COUNT_MAX = 460
"""Each takes about 40 KB and 1 ms of the start."""
MEGABYTES_MAX = 64
"""It takes 57 MB on Python 3.11 (decision 362). The rest is room for other versions of Python and of the libraries."""


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A Kafka server on stores of this machine that has just become ready."""
    folder = tmp_path_factory.mktemp("idle")
    stores = ["--metadata-url", f"sqlite://{folder}/metadata.db", "--object-store-url", f"file://{folder}/objects"]
    arguments = ["serve", "kafka", *stores, "--kafka-port", "0", "--admin-port", "0"]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("BEARLAKE_")},
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    found: dict[str, object] = json.loads((folder / "described").read_text())
    return found


def modules_of(idle: dict[str, object]) -> set[str]:
    """The names of the loaded modules."""
    modules = idle["modules"]
    assert isinstance(modules, list)
    return set(modules)


def test_a_kafka_server_has_not_loaded_what_other_work_needs(idle: dict[str, object]) -> None:
    loaded = modules_of(idle)

    assert "bearlake.protocols.kafka.handlers.produce" in loaded
    assert loaded & LIBRARIES_OF_OTHERS == set()
    assert loaded & OTHER_WORK == set()


def test_the_modules_that_are_named_here_exist() -> None:
    """Else the test above would find nothing after a module is renamed."""
    folder = Path(__file__).parents[2] / "servers"

    missing = [name for name in OTHER_WORK if not (folder / f"{name.replace('.', '/')}.py").exists()]

    assert missing == []


def test_a_kafka_server_has_loaded_a_bounded_number_of_our_modules(idle: dict[str, object]) -> None:
    assert len([name for name in modules_of(idle) if name.startswith("bearlake")]) <= OWN_MODULE_COUNT_MAX


def test_an_idle_kafka_server_takes_little_memory(idle: dict[str, object]) -> None:
    kilobytes = idle["kilobytes"]
    assert isinstance(kilobytes, int)

    assert kilobytes < MEGABYTES_MAX * 1024
