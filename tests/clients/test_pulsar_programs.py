"""Pulsar's Java client, Go client and command line tools, unmodified, against a server process.

`pulsar_java/PulsarSteps.java` and `pulsar_go/main.go` are programs that use the libraries and print a line per step, a feature of
Pulsar (`pulsar_features.py`). If a program is missing and cannot be fetched, its tests are skipped with a message.
"""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from clients.pulsar_features import FEATURES
from clients.python_clients import ConfluentKafka
from conformance import packages, processes
from conformance.java_tools import SHORT_LIVED
from fixtures.server_process import ServerProcess, started

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

SOURCES = Path(__file__).resolve().parent
STEPS_TIMEOUT_S = 400.0
TOOL_TIMEOUT_S = 90.0
WARNINGS = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
PERF_OPTIONS = ("-Xmx512m", "-Dorg.apache.logging.log4j.level=INFO", "-Dlog4j.shutdownHookEnabled=false")
"""pulsar-perf logs its results, some of them in a shutdown hook, and keeps large histograms."""
CLIENT_TOOL = "org.apache.pulsar.client.cli.PulsarClientTool"
PERF_TOOL = "org.apache.pulsar.testclient.PulsarPerfTestTool"

JAVA_STEPS = tuple(dict.fromkeys(step for row in FEATURES for step in row.java))
GO_STEPS = tuple(dict.fromkeys(step for row in FEATURES for step in row.go))
RESTART_STEPS = ("delayed-before", "delayed-after")
"""Steps that run separately, because the server is restarted in between."""
TOPICS = ("partitioned", "failover-partitions")
"""Suffixes of the topics that the programs expect to have three partitions."""

Run = Callable[..., str]


def java(jars: Path, *options: str) -> list[str | Path]:
    return ["java", *SHORT_LIVED, *options, "-cp", f"{jars}/*"]


def obtained(name: str, obtain: Callable[[], Path]) -> Path:
    try:
        return obtain()
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"PULSAR'S {name} NOT TESTED: {error}")


def outcomes(
    server: ServerProcess, program: Sequence[str | Path], folder: Path, *steps: str, run: str = ""
) -> dict[str, str]:
    """Return the output of a program for these `steps`, or for all steps that do not run separately. Topics are named after `run`."""
    run = run or f"steps-{uuid.uuid4().hex[:8]}"
    if not steps:
        for name in TOPICS:
            ConfluentKafka(server.kafka).create_topic(f"{run}-{name}", 3)
    log, errors = folder / "steps.log", folder / "steps.err"
    command = [*program, f"pulsar://{server.ready['pulsar']}", run, *steps]
    finished = processes.run(command, log=log, errors=errors, timeout_s=STEPS_TIMEOUT_S)
    assert finished.is_success, f"{finished.tail()} {errors.read_text(errors='replace')[-1000:]}"
    lines = [line.split(" ", 2) for line in finished.text().splitlines()]
    return {line[1]: " ".join([line[0], *line[2:]]) for line in lines}


@pytest.fixture(scope="module")
def java_program() -> list[str | Path]:
    sources = SOURCES / "pulsar_java"
    jars = obtained("JAVA CLIENT", partial(packages.obtain_jars, sources / "pom.xml", "pulsar-jars"))
    classes = obtained("JAVA CLIENT", partial(packages.obtain_java_program, sources, jars))
    return ["java", *SHORT_LIVED, WARNINGS, "-cp", f"{classes}:{jars}/*", "PulsarSteps"]


@pytest.fixture(scope="module")
def java_outcomes(
    pulsar_server: ServerProcess, java_program: Sequence[str | Path], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    return outcomes(pulsar_server, java_program, tmp_path_factory.mktemp("java"))


@pytest.mark.parametrize("step", [step for step in JAVA_STEPS if step not in RESTART_STEPS])
def test_the_java_client(java_outcomes: Mapping[str, str], step: str) -> None:
    assert java_outcomes[step] == "ok"


def test_delayed_messages_wait_over_a_restart(java_program: Sequence[str | Path], tmp_path: Path) -> None:
    for step in RESTART_STEPS:
        words = ("up", "--data-dir", tmp_path / "data", "--no-tour")
        with started(*words, ready_file=tmp_path / f"{step}.json") as server:
            assert outcomes(server, java_program, tmp_path, step, run="restarted") == {step: "ok"}
            assert server.stop() == 0


@pytest.fixture(scope="module")
def go_outcomes(pulsar_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    program = obtained("GO CLIENT", partial(packages.obtain_go_program, SOURCES / "pulsar_go"))
    return outcomes(pulsar_server, [program], tmp_path_factory.mktemp("go"))


@pytest.mark.parametrize("step", GO_STEPS)
def test_the_go_client(go_outcomes: Mapping[str, str], step: str) -> None:
    assert go_outcomes[step] == "ok"


def test_every_step_belongs_to_a_feature(java_outcomes: Mapping[str, str], go_outcomes: Mapping[str, str]) -> None:
    assert sorted(java_outcomes) == sorted(set(JAVA_STEPS) - set(RESTART_STEPS))
    assert sorted(go_outcomes) == sorted(GO_STEPS)


@pytest.fixture(scope="module")
def tool(pulsar_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`tool(main, …)`: the output of one of Pulsar's tools; it must end with code 0."""
    jars = obtained("TOOLS", partial(packages.obtain_jars, SOURCES / "pulsar_tools" / "pom.xml", "pulsar-tools-jars"))
    folder = tmp_path_factory.mktemp("tools")
    config = folder / "client.conf"  # the tools require one
    config.write_text(f"brokerServiceUrl=pulsar://{pulsar_server.ready['pulsar']}\n", encoding="utf-8")

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


def test_pulsar_perf_produces_and_consumes(pulsar_server: ServerProcess, tool: Run) -> None:
    url = f"pulsar://{pulsar_server.ready['pulsar']}"

    produced = tool(PERF_TOOL, "produce", "measured", "-u", url, "-s", "100", "-r", "2000", "-m", "4000")
    consumed = tool(PERF_TOOL, "consume", "measured", "-u", url, "-sp", "Earliest", "-m", "4000")

    sent = re.search(r"Aggregated throughput stats --- (\d+) records sent", produced)
    assert sent is not None, produced[-1000:]
    assert int(sent[1]) >= 4000
    assert "Aggregated throughput stats --- 4000 records received" in consumed
    assert "ack failed 0 msg" in consumed
