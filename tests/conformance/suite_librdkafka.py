"""librdkafka's integration tests, one process per test.

A test that times out ends its whole process, so each runs alone in its own; two go on at the same time. What decides is
the report that the process writes, one state per test. `number_name/subtest` runs only the sub-tests whose name begins
with `subtest`, where the rest of a test needs what the list excludes.

Tests measure time (`TIMING_ASSERT`), so a busy machine fails some: a failing test gets a second attempt alone, and an
outcome that needed it says so.
"""

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from conformance import packages, processes
from conformance.outcomes import Context, Outcome, State

JOBS = 2
TIMEOUT_S = 300
TIMEOUT_MULTIPLIER = 2
BROKER_VERSION = "4.3.1"
"""What the tests are told about the broker: the newest rules."""

STATES: dict[str, State] = {"PASSED": "pass", "SKIPPED": "skip"}
ESCAPES = re.compile(r"\x1b(\[[0-9;]*m|\(B)")


def run(context: Context) -> Iterator[Outcome]:
    """Run the selected tests; those marked `alone` come last, one at a time."""
    directory = packages.obtain_librdkafka_tests()
    _write_configuration(context)
    names = context.selected()
    alone = [name for name in names if context.expected.variants.get(name, {}).get("alone")]
    together = [name for name in names if name not in alone]
    failed: list[str] = []
    with ThreadPoolExecutor(JOBS) as pool:
        runs = [pool.submit(_run_one, context, directory, name, attempt=1) for name in together]
        for ended in as_completed(runs):
            outcome = ended.result()
            if outcome.state == "fail":
                failed.append(outcome.test)
            else:
                yield outcome
    for name in failed:
        yield _run_one(context, directory, name, attempt=2)
    for name in alone:
        yield _run_one(context, directory, name, attempt=1)


def _run_one(context: Context, directory: Path, name: str, *, attempt: int) -> Outcome:
    test, _, subtest = name.partition("/")
    logs = context.logs / "librdkafka"
    stem = name.replace("/", ".")
    report = logs / f"{stem}.json"
    report.unlink(missing_ok=True)
    variant = context.expected.variants.get(name, {})
    environment = {
        "TESTS": test[:4],
        "TEST_KAFKA_VERSION": str(variant.get("broker_version", BROKER_VERSION)),
        "TEST_REPORT": str(report),
        "RDKAFKA_TEST_CONF": str(logs / "test.conf"),
        "LD_LIBRARY_PATH": f"{directory.parent / 'src'}:{directory.parent / 'src-cpp'}",
        "KAFKA_PATH": str(logs),
        "BROKERS": context.bootstrap,
    }
    if subtest:
        environment["SUBTESTS"] = subtest
    quick = ["-Q"] if context.is_quick else []
    log = logs / f"{stem}.log"
    command = ["nice", "-n", "5", "./test-runner", "-p1", "-L", *quick]
    timeout_s = float(str(variant.get("timeout_s", TIMEOUT_S)))
    finished = processes.run(command, log=log, timeout_s=timeout_s, cwd=directory, env=environment)
    state, note = _judge(finished, report, test, subtest)
    if attempt > 1 and state == "pass":
        note = "passed at the second attempt, alone"
    return Outcome(test=name, state=state, seconds=finished.seconds, note=note)


def _judge(finished: processes.Finished, report: Path, test: str, subtest: str) -> tuple[State, str]:
    """State and reason from the report; without one, or without the asked sub-test, it is a failure."""
    try:
        state = json.loads(report.read_text(encoding="utf-8"))["tests"][test]["state"]
    except (OSError, ValueError, KeyError):
        return "fail", f"no report, exit code {finished.code}, see {finished.log}"
    text = ESCAPES.sub("", finished.text())
    if subtest and f"[ {subtest}" not in text:  # a filter that matches nothing would pass
        return "fail", f"there is no sub-test {subtest}"
    if state in STATES:
        return STATES[state], ""
    reason = re.search(r"### Test .*failed at ([^ ]+) .*###\n(.*)", text)
    return "fail", f"{reason[1]} {reason[2]}" if reason else f"see {finished.log}"


def _write_configuration(context: Context) -> None:
    """The runner's configuration, and the `bin/` wrappers through which some tests call Kafka's own tools."""
    logs = context.logs / "librdkafka"
    (logs / "bin").mkdir(parents=True, exist_ok=True)
    text = f"bootstrap.servers={context.bootstrap}\ntest.timeout.multiplier={TIMEOUT_MULTIPLIER}\n"
    (logs / "test.conf").write_text(text, encoding="utf-8")
    jars = packages.obtain_kafka_jars()
    classes = {
        "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
        "kafka-configs.sh": "kafka.admin.ConfigCommand",
    }
    for name, main in classes.items():
        wrapper = logs / "bin" / name
        wrapper.write_text(f"#!/bin/sh\nexec java -Xmx256m -cp '{jars}/*' {main} \"$@\"\n", encoding="utf-8")
        os.chmod(wrapper, 0o755)
