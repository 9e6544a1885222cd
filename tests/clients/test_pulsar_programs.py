"""Pulsar's Java client, Go client and command line tools, unmodified, against a server process.

`pulsar_java/PulsarSteps.java` and `pulsar_go/main.go` are programs around the libraries: they say a line for each step, a feature of
Pulsar as the client knows it. What is missing, or cannot be fetched, skips its tests and says so.
"""

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from clients.python_clients import ConfluentKafka
from conformance import packages, processes
from conformance.java_tools import SHORT_LIVED
from fixtures.server_process import ServerProcess, started

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SOURCES = Path(__file__).resolve().parent
STEPS_TIMEOUT_S = 400.0
TOOL_TIMEOUT_S = 90.0
WARNINGS = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
PERF_OPTIONS = ("-Xmx512m", "-Dorg.apache.logging.log4j.level=INFO")
"""pulsar-perf logs what it has to say, and keeps large histograms."""
CLIENT_TOOL = "org.apache.pulsar.client.cli.PulsarClientTool"
PERF_TOOL = "org.apache.pulsar.testclient.PulsarPerfTestTool"

JAVA_STEPS = (
    "exclusive", "shared", "key-shared", "key-shared-sticky", "failover", "seek", "reader", "schema", "chunks",
    "batch-index-acknowledgement", "dead-letters", "delayed", "exclusive-producer", "deduplication", "table-view", "pattern",
    "partitioned",
)  # fmt: skip

GO_STEPS = (
    "exclusive", "shared", "key-shared", "failover", "seek", "reader", "schema", "chunks", "dead-letters", "delayed",
    "exclusive-producer", "deduplication", "table-view", "pattern", "partitioned",
)  # fmt: skip

Run = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A `bearlake up`."""
    folder = tmp_path_factory.mktemp("pulsar")
    with started("up", "--data-dir", folder / "data", "--no-tour", ready_file=folder / "ready.json") as process:
        yield process


def java(jars: Path, *options: str) -> list[str | Path]:
    return ["java", *SHORT_LIVED, *options, "-cp", f"{jars}/*"]


def obtained(name: str, obtain: Callable[[], Path]) -> Path:
    try:
        return obtain()
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"PULSAR'S {name} NOT TESTED: {error}")


def outcomes(server: ServerProcess, program: Sequence[str | Path], folder: Path) -> dict[str, str]:
    """What a program of steps says of each of them. The topic `RUN-partitioned` is made before."""
    run = f"steps-{uuid.uuid4().hex[:8]}"
    ConfluentKafka(server.kafka).create_topic(f"{run}-partitioned", 3)
    log, errors = folder / "steps.log", folder / "steps.err"
    command = [*program, f"pulsar://{server.ready['pulsar']}", run]
    finished = processes.run(command, log=log, errors=errors, timeout_s=STEPS_TIMEOUT_S)
    assert finished.is_success, f"{finished.tail()} {errors.read_text(errors='replace')[-1000:]}"
    lines = [line.split(" ", 2) for line in finished.text().splitlines()]
    return {line[1]: " ".join([line[0], *line[2:]]) for line in lines}


@pytest.fixture(scope="module")
def java_outcomes(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    jars = obtained("JAVA CLIENT", partial(packages.obtain_jars, SOURCES / "pulsar_java" / "pom.xml", "pulsar-jars"))
    program = [*java(jars, WARNINGS), SOURCES / "pulsar_java" / "PulsarSteps.java"]
    found = outcomes(server, program, tmp_path_factory.mktemp("java"))
    assert tuple(found) == JAVA_STEPS
    return found


@pytest.mark.parametrize("step", JAVA_STEPS)
def test_the_java_client(java_outcomes: Mapping[str, str], step: str) -> None:
    assert java_outcomes[step] == "ok"


@pytest.fixture(scope="module")
def go_outcomes(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    program = obtained("GO CLIENT", partial(packages.obtain_go_program, SOURCES / "pulsar_go"))
    found = outcomes(server, [program], tmp_path_factory.mktemp("go"))
    assert tuple(found) == GO_STEPS
    return found


@pytest.mark.parametrize("step", GO_STEPS)
def test_the_go_client(go_outcomes: Mapping[str, str], step: str) -> None:
    assert go_outcomes[step] == "ok"


@pytest.fixture(scope="module")
def tool(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`tool(main, …)`: what one of Pulsar's tools prints; it must end with code 0."""
    jars = obtained("TOOLS", partial(packages.obtain_jars, SOURCES / "pulsar_tools" / "pom.xml", "pulsar-tools-jars"))
    folder = tmp_path_factory.mktemp("tools")
    config = folder / "client.conf"  # the tools insist on one
    config.write_text(f"brokerServiceUrl=pulsar://{server.ready['pulsar']}\n", encoding="utf-8")

    def run(main: str, *words: str) -> str:
        log = folder / "tool.log"
        options = PERF_OPTIONS if main == PERF_TOOL else [WARNINGS]
        finished = processes.run([*java(jars, *options), main, config, *words], log=log, timeout_s=TOOL_TIMEOUT_S)
        assert finished.is_success, finished.tail(20)
        return finished.text()

    return run


def test_pulsar_client_produces_and_consumes(tool: Run) -> None:
    tool(CLIENT_TOOL, "produce", "told", "-m", "hello,world", "-k", "key", "-p", "colour=blue")

    said = tool(CLIENT_TOOL, "consume", "told", "-s", "s", "-p", "Earliest", "-n", "2")

    for value in ("hello", "world"):
        assert f"key:[key], properties:[colour=blue], content:{value}" in said


def test_pulsar_perf_produces_and_consumes(server: ServerProcess, tool: Run) -> None:
    url = f"pulsar://{server.ready['pulsar']}"

    produced = tool(PERF_TOOL, "produce", "measured", "-u", url, "-s", "100", "-r", "2000", "-m", "4000")
    consumed = tool(PERF_TOOL, "consume", "measured", "-u", url, "-sp", "Earliest", "-m", "4000")

    sent = re.search(r"Aggregated throughput stats --- (\d+) records sent", produced)
    assert sent is not None, produced[-1000:]
    assert int(sent[1]) >= 4000
    assert "Aggregated throughput stats --- 4000 records received" in consumed
    assert "ack failed 0 msg" in consumed
