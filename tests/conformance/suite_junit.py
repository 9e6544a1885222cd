"""Kafka's own integration tests of its Java clients, of MirrorMaker and of Streams, as JUnit runs them.

Kafka's tests ask their harness for brokers with certain settings. The Java files in `junit/` are an extension of JUnit that
starts Bearlake instead, with these settings translated. A test is called `Class.method`, or `Class.method[1]` and so on if it runs
against several clusters.
"""

import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from conformance import packages, processes
from conformance.outcomes import Context, Outcome

_CLIENTS = "org.apache.kafka.clients"
_MIRROR = "org.apache.kafka.connect.mirror.integration"
_STREAMS = "org.apache.kafka.streams.integration"
CLASSES = {
    "AdminFenceProducersTest": f"{_CLIENTS}.admin",
    "AutoTopicCreationTest": f"{_CLIENTS}.admin",
    "ClientRebootstrapTest": _CLIENTS,
    "ConcurrentListOffsetsRequestTest": f"{_CLIENTS}.admin",
    "ConsumerBounceTest": f"{_CLIENTS}.consumer",
    "ConsumerIntegrationTest": f"{_CLIENTS}.consumer",
    "ConsumerTopicCreationTest": f"{_CLIENTS}.consumer",
    "DedicatedMirrorIntegrationTest": _MIRROR,
    "DeleteTopicTest": f"{_CLIENTS}.admin",
    "DescribeAuthorizedOperationsTest": f"{_CLIENTS}.admin",
    "DescribeFeaturesTest": f"{_CLIENTS}.admin",
    "DescribeProducersWithBrokerIdTest": f"{_CLIENTS}.admin",
    "DynamicGroupConfigIntegrationTest": f"{_CLIENTS}.admin",
    "EOSUncleanShutdownIntegrationTest": _STREAMS,
    "GroupAuthorizerIntegrationTest": f"{_CLIENTS}.security",
    "HandlingSourceTopicDeletionIntegrationTest": _STREAMS,
    "IQv2EndpointToPartitionsIntegrationTest": _STREAMS,
    "KafkaStreamsCloseOptionsIntegrationTest": _STREAMS,
    "IdentityReplicationIntegrationTest": _MIRROR,
    "ListOffsetsIntegrationTest": f"{_CLIENTS}.admin",
    "MirrorConnectorsIntegrationExactlyOnceTest": _MIRROR,
    "MirrorConnectorsIntegrationTransactionsTest": _MIRROR,
    "PlaintextConsumerAssignTest": f"{_CLIENTS}.consumer",
    "PlaintextConsumerCallbackTest": f"{_CLIENTS}.consumer",
    "PlaintextConsumerCloseTest": f"{_CLIENTS}.consumer",
    "PlaintextConsumerCommitTest": f"{_CLIENTS}.consumer",
    "PlaintextConsumerFetchTest": f"{_CLIENTS}.consumer",
    "PlaintextConsumerPollTest": f"{_CLIENTS}.consumer",
    "PlaintextConsumerSubscriptionTest": f"{_CLIENTS}.consumer",
    "PlaintextConsumerTest": f"{_CLIENTS}.consumer",
    "ProducerCompressionTest": f"{_CLIENTS}.producer",
    "ProducerFailureHandlingTest": f"{_CLIENTS}.producer",
    "ProducerIdExpirationTest": f"{_CLIENTS}.producer",
    "ProducerIntegrationTest": f"{_CLIENTS}.producer",
    "ProducerSendWhileDeletionTest": f"{_CLIENTS}.producer",
    "SaslPlainPlaintextConsumerTest": f"{_CLIENTS}.consumer",
    "ShareConsumerTest": f"{_CLIENTS}.consumer",
    "TransactionsExpirationTest": _CLIENTS,
    "TransactionsWithMaxInFlightOneTest": _CLIENTS,
}
"""The classes and their packages."""

SOURCES = Path(__file__).resolve().parent / "junit"
PROCESS_TIMEOUT_S = 1800
LONG_PROCESS_TIMEOUT_S = 3600
TEST_TIMEOUT_S = 90
LONG_TEST_TIMEOUT_S = 300
LONG_PACKAGES = (_MIRROR, _STREAMS)
"""Packages whose tests start several clusters and workers, and wait for them: 30 to 110 s each on a busy machine."""
JAVA_OPTIONS = ("-Xmx1500m", "-XX:+UseSerialGC")
"""Tests of MirrorMaker run six Connect workers in this process."""
REPORT = "TEST-junit-jupiter.xml"


def run(context: Context) -> Iterator[Outcome]:
    """Run the classes one after the other; yields an outcome for every test that ended, or should have.

    Each class has a process of its own, but the tests of a quick run share one: a process costs several seconds of CPU time.
    """
    jars = packages.obtain_jars(SOURCES / "pom.xml", "junit-jars")
    program = packages.obtain_java_program(SOURCES, jars)
    selected = {match[1] for match in map(_parts, context.selected()) if match}
    classes = [name for name in CLASSES if name in selected]
    for names in [classes] if context.is_quick else [[name] for name in classes]:
        with tempfile.TemporaryDirectory(prefix="bearlake-conformance-") as folder:
            yield from _run_classes(context, names, [program, SOURCES, f"{jars}/*"], Path(folder))


def _parts(test: str) -> re.Match[str] | None:
    """The class and the method of a test."""
    return re.fullmatch(r"(\w+)\.(\w+)(?:\[\d+\])?", test)


def _run_classes(context: Context, names: list[str], class_path: list[Path | str], folder: Path) -> Iterator[Outcome]:
    """Run the tests of the classes in one process, with their data in `folder`."""
    logs = context.logs / "junit"
    logs.mkdir(parents=True, exist_ok=True)
    timeout_s = LONG_PROCESS_TIMEOUT_S if _is_long(names) else PROCESS_TIMEOUT_S
    finished = processes.run(
        [
            *("java", *JAVA_OPTIONS),
            f"-Dlog4j2.configurationFile={packages.JAVA_SOURCES / 'log4j2.properties'}",
            f"-Dbearlake.program={Path(sys.executable).parent / 'bearlake'}",
            f"-Dbearlake.folder={folder}",
            f"-Dbearlake.logs={logs}",
            *("-cp", ":".join(str(part) for part in class_path)),
            *("org.junit.platform.console.ConsoleLauncher", "execute"),
            *(f"--select-class={CLASSES[name]}.{name}" for name in names),
            *_selection(context, names),
            *_configuration(names),
            *("--reports-dir", folder, "--details", "tree", "--disable-ansi-colors", "--disable-banner"),
        ],
        log=logs / f"{'quick' if context.is_quick else names[0]}.log",
        timeout_s=timeout_s,
    )
    report = folder / REPORT
    if report.is_file():
        yield from read_report(report.read_text(encoding="utf-8"), finished.log)
        return
    why = f"ended with {finished.code}" if finished.code is not None else f"did not end in {timeout_s} s"
    for test in context.selected():
        if (match := _parts(test)) and match[1] in names:
            note = f"its process {why} (see {finished.log})"
            yield Outcome(test=test, state="fail", seconds=finished.seconds, note=note)


def _selection(context: Context, names: list[str]) -> list[str]:
    """Options that select the tests of a quick run, or leave out the excluded tests; tests that are not listed run."""
    tests = context.selected() if context.is_quick else context.expected.excluded
    methods = sorted({f"{match[1]}#{match[2]}" for match in map(_parts, tests) if match and match[1] in names})
    option = "--include-methodname" if context.is_quick else "--exclude-methodname"
    return [option, rf".*\.({'|'.join(methods)})"] if methods else []


def _configuration(names: list[str]) -> list[str]:
    """Options that put our extension in the place of Kafka's, and limit the time of each test of the classes."""
    settings = {
        "junit.jupiter.extensions.autodetection.enabled": "true",
        "junit.jupiter.extensions.autodetection.exclude": "org.apache.kafka.*",
        "junit.jupiter.execution.timeout.default": f"{LONG_TEST_TIMEOUT_S if _is_long(names) else TEST_TIMEOUT_S}s",
    }
    return [f"--config={key}={value}" for key, value in settings.items()]


def _is_long(names: list[str]) -> bool:
    return any(CLASSES[name] in LONG_PACKAGES for name in names)


def read_report(report: str, log: Path) -> Iterator[Outcome]:
    """The outcomes in JUnit's XML `report`; a test that aborted itself counts as skipped. `log` is named in notes."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    names = [f"{case.attrib['classname'].rpartition('.')[2]}.{case.attrib['name'].partition('(')[0]}" for case in cases]
    counts = Counter(names)
    for case, name in zip(cases, names, strict=True):
        if counts[name] > 1:  # against several clusters: "method(ClusterInstance)[2]"
            name += case.attrib["name"].rpartition(")")[2]
        seconds = float(case.attrib["time"])
        skipped = case.find("skipped")
        failures = [child for child in case if child.tag in ("failure", "error")]
        if failures:
            note = f"{failures[0].get('message', '')[:300]} (see {log})"
            yield Outcome(test=name, state="fail", seconds=seconds, note=note)
        elif skipped is not None:
            note = (skipped.text or "").partition("\n")[0].removeprefix("org.opentest4j.TestAbortedException: ")
            yield Outcome(test=name, state="skip", seconds=seconds, note=note)
        else:
            yield Outcome(test=name, state="pass", seconds=seconds)
