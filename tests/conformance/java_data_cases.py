"""Cases of the Java suite that move records: the Verifiable… tools, the performance tools, the console tools."""

import re
from collections.abc import Callable

from conformance.java_checks import Case, check, contains, events
from conformance.java_tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOOLS, TOPICS

RECORD_COUNT = 20_000
PERFORMANCE_COUNT = 50_000
RECORD_BYTES = 1000
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def verifiable_producer_and_consumer(case: Case) -> None:
    """20,000 records with acks=all, every offset acknowledged once; a classic group reads and commits all of them."""
    case.succeed(TOPICS, "--create", "--topic", case.name, "--partitions", "3")
    count = str(RECORD_COUNT)
    text = case.succeed(f"{TOOLS}.VerifiableProducer", "--topic", case.name, "--max-messages", count, "--acks", "-1")
    sent = events(text, "producer_send_success")
    check(len(sent) == RECORD_COUNT, f"{len(sent)} of {RECORD_COUNT} records acknowledged")
    check(len({(event["partition"], event["offset"]) for event in sent}) == RECORD_COUNT, "an offset was given twice")
    arguments = ["--group-id", case.name, "--max-messages", count, "--reset-policy", "earliest"]
    text = case.succeed(f"{TOOLS}.VerifiableConsumer", "--topic", case.name, *arguments)
    read = sum(int(str(event["count"])) for event in events(text, "records_consumed"))
    check(read == RECORD_COUNT, f"{read} of {RECORD_COUNT} records consumed")
    commits = events(text, "offsets_committed")
    check(bool(commits) and all(event["success"] for event in commits), "a commit failed")


def verifiable_producer_without_acknowledgement(case: Case) -> None:
    """acks=0 and acks=1 deliver as well; no response is sent for acks=0."""
    for acks in ("0", "1"):
        text = case.succeed(
            f"{TOOLS}.VerifiableProducer", "--topic", case.name, "--max-messages", "1000", "--acks", acks
        )
        check(len(events(text, "producer_send_success")) == 1000, f"acks={acks}: not all records sent")
    arguments = ["--group-id", case.name, "--max-messages", "2000", "--reset-policy", "earliest"]
    text = case.succeed(f"{TOOLS}.VerifiableConsumer", "--topic", case.name, *arguments)
    read = sum(int(str(event["count"])) for event in events(text, "records_consumed"))
    check(read == 2000, f"{read} of 2000 records consumed")


def performance_tools(case: Case) -> None:
    """ProducerPerformance sends 50 MB, ConsumerPerformance reads them; neither reports a loss."""
    _perform(case, "none", PERFORMANCE_COUNT)
    text = case.succeed(
        f"{TOOLS}.ConsumerPerformance",
        "--topic",
        case.name,
        "--num-records",
        str(PERFORMANCE_COUNT),
        "--group",
        case.name,
    )
    read = int(text.splitlines()[-1].split(",")[4])
    check(read == PERFORMANCE_COUNT, f"{read} of {PERFORMANCE_COUNT} records consumed")


def performance_tools_with_every_compression(case: Case) -> None:
    """10,000 records with each compression into one topic; one consumer reads them all."""
    for compression in COMPRESSIONS:
        _perform(case, compression, 10_000)
    total = 10_000 * len(COMPRESSIONS)
    text = case.succeed(
        f"{TOOLS}.ConsumerPerformance", "--topic", case.name, "--num-records", str(total), "--group", case.name
    )
    read = int(text.splitlines()[-1].split(",")[4])
    check(read == total, f"{read} of {total} records consumed")


def console_tools(case: Case) -> None:
    """Write lines with keys and headers with the console producer, and read them with the console consumer."""
    lines = "h:1\tk1\tgrüße\nh:2\tk2\t値\n".encode()
    properties = ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"]
    finished = case.tools.run(CONSOLE_PRODUCER, "--topic", case.name, *properties, stdin=lines)
    check(finished.is_success, f"console producer ended with {finished.code}: {finished.tail()}")
    shown = ["--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"]
    text = case.succeed(CONSOLE_CONSUMER, "--topic", case.name, "--from-beginning", "--max-messages", "2", *shown)
    check(sorted(text.splitlines()) == ["h:1\tk1\tgrüße", "h:2\tk2\t値"], f"read {text!r}")


def client_compatibility(case: Case) -> None:
    """Kafka's own compatibility test: cluster id, offsets for times, topics, configurations, large record, idempotence."""
    case.run(
        TOPICS, "--delete", "--if-exists", "--topic", "newtopic"
    )  # the tool creates the topic and does not delete it
    has_acls = re.search(r"DescribeAcls\(29\): \d", case.succeed(f"{TOOLS}.BrokerApiVersionsCommand")) is not None
    supported = ["offsets-for-times", "cluster-id", "create-topics", "describe-configs", "idempotent-producer"]
    arguments = [word for name in supported for word in (f"--{name}-supported", "true")]
    text = case.succeed(
        f"{TOOLS}.ClientCompatibilityTest",
        *("--topic", case.name, "--num-cluster-nodes", "1", "--expect-record-too-large-exception", "false"),
        *("--describe-acls-supported", str(has_acls).lower(), *arguments),
    )
    contains(text, "SUCCESS")


def _perform(case: Case, compression: str, count: int) -> None:
    arguments = ["--num-records", str(count), "--record-size", str(RECORD_BYTES), "--throughput", "-1"]
    properties = ["--command-property", f"compression.type={compression}", "--command-property", "acks=all"]
    text = case.succeed(f"{TOOLS}.ProducerPerformance", "--topic", case.name, *arguments, *properties)
    found = re.search(rf"^{count} records sent", text, re.MULTILINE)
    check(found is not None, f"{compression}: not {count} records sent: {text[-200:]}")


CASES: dict[str, Callable[[Case], None]] = {
    case.__name__: case
    for case in (
        verifiable_producer_and_consumer,
        verifiable_producer_without_acknowledgement,
        performance_tools,
        performance_tools_with_every_compression,
        console_tools,
        client_compatibility,
    )
}
