"""Apache Flink: a job on a local cluster copies a topic with Flink's Kafka source and sink, exactly once, through a failure of the job.

The sink writes transactions, which it commits with checkpoints. The job fails on purpose after its first checkpoint and restarts from it. A
reader of committed records must then find each record once.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from conformance import packages
from conformance.outcomes import Context, Outcome

SOURCES = Path(__file__).resolve().parent / "flink"
RECORD_COUNT = 4_000
PARTITION_COUNT = 2
TIMEOUT_S = 240
JAVA_OPTIONS = ("-Xmx768m", "-XX:+UseSerialGC", "--add-opens=java.base/java.util=ALL-UNNAMED")


def run(context: Context) -> Iterator[Outcome]:
    """Run the job once."""
    jars = packages.obtain_jars(SOURCES / "pom.xml", "flink-jars")
    class_path = f"{packages.obtain_java_program(SOURCES, jars)}:{jars}/*"
    for name in context.selected():
        logs = context.logs / "flink"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        begin = time.monotonic()
        problem = _copy(context.bootstrap, class_path, logs / f"{name}.log")
        yield Outcome(test=name, state="fail" if problem else "pass", seconds=time.monotonic() - begin, note=problem)


def _copy(bootstrap: str, class_path: str, log: Path) -> str:
    """Return what went wrong, or nothing."""
    source, target = (f"flink-{side}-{time.time_ns()}" for side in ("in", "out"))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(topic, PARTITION_COUNT) for topic in (source, target)]
    for created in admin.create_topics(topics).values():
        created.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORD_COUNT):
        producer.produce(source, str(number).encode(), partition=number % PARTITION_COUNT)
    producer.flush(30)
    command = ["java", *JAVA_OPTIONS, "-cp", class_path, "CopyJob", bootstrap, source, target]
    with log.open("wb") as output:
        try:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"the job did not end in {TIMEOUT_S} s, see {log}"
    if done.returncode or "COPIED AFTER A FAILURE" not in log.read_text(errors="replace"):
        return f"the job ended with {done.returncode}, see {log}"
    found = _read(bootstrap, target)
    if sorted(found) != list(range(RECORD_COUNT)):
        return f"{len(found)} records, {len(set(found))} different ones, instead of {RECORD_COUNT}"
    return ""


def _read(bootstrap: str, topic: str) -> list[int]:
    """Return the committed records, until none comes for a while."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    quiet_s = time.monotonic() + 15
    while time.monotonic() < quiet_s:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b"-1"))
            quiet_s = time.monotonic() + (15 if len(found) < RECORD_COUNT else 3)
    consumer.close()
    return found
