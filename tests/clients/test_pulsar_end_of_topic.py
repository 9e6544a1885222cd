"""Pulsar's Java client, unmodified, on a topic that is terminated while in use. Skipped with a message without Java or Maven."""

from pathlib import Path

import pytest

from conformance import packages, processes
from conformance.java_tools import SHORT_LIVED
from fixtures.server_process import started

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SOURCES = Path(__file__).resolve().parent
TIMEOUT_S = 120.0
LOGGING = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
NOTICED = (
    "a reader goes on before",
    "the topic is terminated",
    "listeners hear of the end",
    "consumers have reached it",
    "a reader has reached it",
    "a send is refused",
    "a new producer is refused",
)


def test_consumers_readers_and_producers_notice_the_end(tmp_path: Path) -> None:
    try:
        jars = packages.obtain_jars(SOURCES / "pulsar_java" / "pom.xml", "pulsar-jars")
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"PULSAR'S JAVA CLIENT NOT TESTED: {error}")
    with started("up", "--data-dir", tmp_path / "data", "--no-tour", ready_file=tmp_path / "ready.json") as server:
        program = ["java", *SHORT_LIVED, LOGGING, "-cp", f"{jars}/*", SOURCES / "pulsar_end" / "EndOfTopic.java"]
        where = [f"pulsar://{server.ready['pulsar']}", str(server.ready["pulsar_http"]), "ended"]
        log, errors = tmp_path / "steps.log", tmp_path / "steps.err"
        finished = processes.run([*program, *where], log=log, errors=errors, timeout_s=TIMEOUT_S)

    assert finished.is_success, f"{finished.tail()} {errors.read_text(errors='replace')[-1000:]}"
    assert finished.text().splitlines() == [f"ok {what}" for what in NOTICED]
