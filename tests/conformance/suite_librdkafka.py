"""librdkafka's integration tests, one process per test.

A test that times out ends its whole process, so each test has its own process; two processes run at a time. The report that a process
writes decides, with one state per test. `number_name/subtest` runs only the sub-tests whose name begins
with `subtest`, where the rest of a test needs what the list excludes.

Tests measure time (`TIMING_ASSERT`), so a busy machine fails some: a failing test gets a second attempt alone, and an
outcome that needed it says so.
"""

import json
import os
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from conformance import packages, processes
from conformance.outcomes import Context, Outcome, State

JOBS = 2
TIMEOUT_S = 300
TIMEOUT_MULTIPLIER = 2
BROKER_VERSION = "4.3.1"
"""The broker version in the tests' configuration: the newest."""

STATES: dict[str, State] = {"PASSED": "pass", "SKIPPED": "skip"}
ESCAPES = re.compile(r"\x1b(\[[0-9;]*m|\(B)")


def run(context: Context) -> Iterator[Outcome]:
    """Run the selected tests; tests marked `alone` run last, one at a time."""
    directory = packages.obtain_librdkafka_tests()
    _write_wrappers(context)
    series = _processes(context)
    alone = [names for names in series if context.expected.variants.get(names[0], {}).get("alone")]
    failed: list[list[str]] = []
    with ThreadPoolExecutor(JOBS) as pool:
        runs = [pool.submit(_run_one, context, directory, names, attempt=1) for names in series if names not in alone]
        for ended in as_completed(runs):
            outcomes = ended.result()
            if any(outcome.state == "fail" for outcome in outcomes):
                failed.append([outcome.test for outcome in outcomes])
            else:
                yield from outcomes
    for names in failed:
        yield from _run_one(context, directory, names, attempt=2)
    for names in alone:
        yield from _run_one(context, directory, names, attempt=1)


def _processes(context: Context) -> list[list[str]]:
    """The selected names by process: tests of one number always run together, a sub-test alone."""
    series: dict[str, list[str]] = {}
    for name in context.selected():
        series.setdefault(name if "/" in name else name[:4], []).append(name)
    return list(series.values())


def _run_one(context: Context, directory: Path, names: list[str], *, attempt: int) -> list[Outcome]:
    """One process: all tests of a number, or one sub-test. It deletes its own topics, whose prefix no other process uses."""
    test, _, subtest = names[0].partition("/")
    logs = context.logs / "librdkafka"
    stem = names[0].replace("/", ".").rstrip(":")
    report, configuration = logs / f"{stem}.json", logs / f"{stem}.conf"
    report.unlink(missing_ok=True)
    settings = {
        "bootstrap.servers": context.bootstrap,
        "test.timeout.multiplier": TIMEOUT_MULTIPLIER,
        "test.topic.prefix": f"rdkafkatest-{uuid.uuid4().hex[:8]}",
    }
    configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    variant = context.expected.variants.get(names[0], {})
    environment = {
        "TESTS": test[:4],
        "TEST_KAFKA_VERSION": str(variant.get("broker_version", BROKER_VERSION)),
        "TEST_REPORT": str(report),
        "RDKAFKA_TEST_CONF": str(configuration),
        "LD_LIBRARY_PATH": f"{directory.parent / 'src'}:{directory.parent / 'src-cpp'}",
        "KAFKA_PATH": str(logs),
        "BROKERS": context.bootstrap,
        **({"SUBTESTS": subtest} if subtest else {}),
    }
    quick = ["-Q"] if context.is_quick else []
    command = ["nice", "-n", "5", "./test-runner", "-p1", "-L", "-D", *quick]
    timeout_s = float(str(variant.get("timeout_s", TIMEOUT_S)))
    log = logs / f"{stem}.log"
    finished = processes.run(command, log=log, timeout_s=timeout_s, cwd=directory, env=environment)
    return [_outcome(finished, report, name, attempt) for name in names]


def _outcome(finished: processes.Finished, report: Path, name: str, attempt: int) -> Outcome:
    test, _, subtest = name.partition("/")
    state, note = _state(finished, report, test, subtest)
    if attempt > 1 and state == "pass":
        note = "passed at the second attempt, alone"
    return Outcome(test=name, state=state, seconds=finished.seconds, note=note)


def _state(finished: processes.Finished, report: Path, test: str, subtest: str) -> tuple[State, str]:
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


def _write_wrappers(context: Context) -> None:
    """The `bin/` wrappers through which some tests call Kafka's own tools."""
    logs = context.logs / "librdkafka"
    (logs / "bin").mkdir(parents=True, exist_ok=True)
    jars = packages.obtain_kafka_jars()
    classes = {
        "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
        "kafka-configs.sh": "kafka.admin.ConfigCommand",
    }
    for name, main in classes.items():
        wrapper = logs / "bin" / name
        wrapper.write_text(f"#!/bin/sh\nexec java -Xmx256m -cp '{jars}/*' {main} \"$@\"\n", encoding="utf-8")
        os.chmod(wrapper, 0o755)
