"""Kafka Connect's standalone worker."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from conformance import packages, processes

MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
JAVA_OPTIONS = ("-Xmx768m", "-XX:+UseSerialGC")


@contextmanager
def worker(folder: Path, connectors: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker with `worker.properties` and the connectors' `<name>.properties` of `folder`; its output goes to `log`."""
    logging = f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}"
    class_path = f"{packages.obtain_kafka_jars()}/*"
    files = [str(folder / f"{name}.properties") for name in ("worker", *connectors)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["java", *JAVA_OPTIONS, logging, "-cp", class_path, MAIN, *files],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            processes.end_group(process)
