"""Cases of the Java suite about administration: TopicCommand, ConfigCommand, ConsumerGroupCommand and others."""

import json
import re
from collections.abc import Callable

from conformance.java_checks import Case, check, columns, contains
from conformance.java_tools import CONFIGS, GROUPS, TOOLS, TOPICS


def topic_command(case: Case) -> None:
    """Create, list, describe, add partitions, delete."""
    topic = ["--topic", case.name]
    contains(
        case.succeed(TOPICS, "--create", *topic, "--partitions", "3", "--config", "retention.ms=100000"), "Created"
    )
    check(case.name in case.succeed(TOPICS, "--list").split(), "the new topic is not listed")
    text = case.succeed(TOPICS, "--describe", *topic)
    contains(text, f"Topic: {case.name}", "PartitionCount: 3", "ReplicationFactor: 1", "retention.ms=100000")
    partitions = re.findall(r"Partition: (\d+)\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S+)", text)
    check([int(row[0]) for row in partitions] == [0, 1, 2], f"partitions {partitions}")
    check(all("none" not in row for row in partitions), f"a partition has no leader: {partitions}")
    case.succeed(TOPICS, "--alter", *topic, "--partitions", "5")
    contains(case.succeed(TOPICS, "--describe", *topic), "PartitionCount: 5", "retention.ms=100000")
    case.succeed(TOPICS, "--delete", *topic)
    check(case.name not in case.succeed(TOPICS, "--list").split(), "the deleted topic is listed")


def topic_command_refusals(case: Case) -> None:
    """Requests that must be refused get the error that the tools' users know."""
    topic = ["--topic", case.name]
    case.succeed(TOPICS, "--create", *topic, "--partitions", "2")
    contains(case.complaint(TOPICS, "--create", *topic), "already exists")
    case.succeed(TOPICS, "--create", "--if-not-exists", *topic)
    contains(case.complaint(TOPICS, "--alter", *topic, "--partitions", "1"), "InvalidPartitionsException")
    contains(case.complaint(TOPICS, "--describe", "--topic", f"{case.name}-absent"), "does not exist")
    contains(case.complaint(TOPICS, "--create", "--topic", "no/such/name"), "InvalidTopicException")
    contains(case.complaint(TOPICS, "--delete", "--topic", f"{case.name}-absent"), "does not exist")


def config_command(case: Case) -> None:
    """Set, read with its source, and remove the configuration of a topic; unknown names and bad values are refused."""
    entity = ["--entity-type", "topics", "--entity-name", case.name]
    case.succeed(TOPICS, "--create", "--topic", case.name, "--partitions", "1")
    case.succeed(CONFIGS, "--alter", "--add-config", "retention.ms=86400000,max.message.bytes=500000", *entity)
    text = case.succeed(CONFIGS, "--describe", *entity)
    contains(text, "retention.ms=86400000", "max.message.bytes=500000", "DYNAMIC_TOPIC_CONFIG")
    case.succeed(CONFIGS, "--alter", "--delete-config", "max.message.bytes", *entity)
    text = case.succeed(CONFIGS, "--describe", *entity)
    contains(text, "retention.ms=86400000")
    check("max.message.bytes" not in text, "a deleted configuration is still set")
    text = case.succeed(CONFIGS, "--describe", "--all", *entity)
    names = ("cleanup.policy", "compression.type", "max.message.bytes", "message.timestamp.type", "segment.bytes")
    contains(text, *(f"\n  {name}=" for name in names))
    refused = case.complaint(CONFIGS, "--alter", "--add-config", "retention.ms=soon", *entity)
    contains(refused, "InvalidConfigurationException")
    refused = case.complaint(CONFIGS, "--alter", "--add-config", "no.such.setting=1", *entity)
    contains(refused, "InvalidConfigurationException")
    contains(case.succeed(CONFIGS, "--describe", *entity), "retention.ms=86400000")


def config_command_on_brokers(case: Case) -> None:
    """Every broker that Metadata names describes all its settings."""
    text = case.succeed(f"{TOOLS}.BrokerApiVersionsCommand")
    nodes = re.findall(r"\(id: (\d+) rack", text)
    check(bool(nodes), f"no broker in {text[:200]}")
    for node in nodes:
        text = case.succeed(CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", node)
        contains(text, f"All configs for broker {node} are:", "\n  num.partitions=", "\n  message.max.bytes=")


def consumer_group_command(case: Case) -> None:
    """List, describe (offsets, members, state), reset, delete offsets, delete the group."""
    group, topic = ["--group", case.name], ["--topic", case.name]
    _consume_group(case)
    check(case.name in case.succeed(GROUPS, "--list").split(), "the group is not listed")
    contains(case.succeed(GROUPS, "--list", "--state", "Empty"), case.name)
    check(_offsets(case) == {0: 100}, f"committed {_offsets(case)}")
    rows = columns(case.succeed(GROUPS, "--describe", *group, "--state"), case.name)
    check(len(rows) == 1 and rows[0][-2:] == ["Empty", "0"], f"state {rows}")
    contains(case.complaint(GROUPS, "--describe", *group, "--members"), "no active members")
    case.succeed(GROUPS, "--reset-offsets", *group, *topic, "--to-offset", "40", "--dry-run")
    check(_offsets(case) == {0: 100}, "a dry run moved the offset")
    resets = (("--to-offset", "40", 40), ("--shift-by", "-10", 30), ("--to-latest", "", 100), ("--to-earliest", "", 0))
    for option, value, offset in resets:
        arguments = [word for word in (option, value) if word]
        case.succeed(GROUPS, "--reset-offsets", *group, *topic, *arguments, "--execute")
        check(_offsets(case) == {0: offset}, f"{option} {value}: {_offsets(case)}")
    contains(case.succeed(GROUPS, "--delete-offsets", *group, *topic), "Successful")
    contains(case.succeed(GROUPS, "--delete", *group), "was successful")
    check(case.name not in case.succeed(GROUPS, "--list").split(), "the deleted group is listed")


def consumer_group_command_refusals(case: Case) -> None:
    """Groups that do not exist are reported as such."""
    group = ["--group", f"{case.name}-absent"]
    contains(case.complaint(GROUPS, "--describe", *group), "GroupIdNotFoundException")
    contains(case.complaint(GROUPS, "--delete", *group), "GroupIdNotFoundException")


def offsets_and_record_deletion(case: Case) -> None:
    """GetOffsetShell finds ends and starts; DeleteRecordsCommand moves the start; LogDirsCommand gives sizes."""
    _consume_group(case)
    shell = f"{TOOLS}.GetOffsetShell"
    times = {"earliest": 0, "latest": 100, "max-timestamp": None, "1": 0}
    for instant, offset in times.items():
        rows = case.succeed(shell, "--topic", case.name, "--time", instant).split()
        wanted = rows == [f"{case.name}:0:{offset}"] if offset is not None else len(rows) == 1
        check(wanted, f"--time {instant}: {rows}")
    request = case.tools.logs / "delete.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": case.name, "partition": 0, "offset": 60}]}))
    text = case.succeed(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(request))
    contains(text, f"{case.name}-0", "low_watermark: 60")
    rows = case.succeed(shell, "--topic", case.name, "--time", "earliest").split()
    check(rows == [f"{case.name}:0:60"], f"start after deletion: {rows}")
    text = case.succeed(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", case.name)
    contains(text, f'"partition":"{case.name}-0"', '"isFuture":false')


def cluster_tools(case: Case) -> None:
    """ClusterTool prints one cluster id, the same every time; BrokerApiVersionsCommand finds every API usable."""
    first = case.tools.run_bare(f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", case.tools.bootstrap)
    again = case.tools.run_bare(f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", case.tools.bootstrap)
    check(re.fullmatch(r"Cluster ID: \S+\n", first.text()) is not None, f"printed {first.text()!r}")
    check(first.text() == again.text(), "the cluster id changed")
    contains(case.succeed(f"{TOOLS}.BrokerApiVersionsCommand"), "Produce(0): ", "Fetch(1): ", "ApiVersions(18): ")


def _consume_group(case: Case) -> None:
    """One partition with 100 records, all of them read and committed by the group."""
    case.succeed(TOPICS, "--create", "--topic", case.name, "--partitions", "1")
    case.succeed(f"{TOOLS}.VerifiableProducer", "--topic", case.name, "--max-messages", "100", "--acks", "-1")
    arguments = ["--group-id", case.name, "--max-messages", "100", "--reset-policy", "earliest"]
    case.succeed(f"{TOOLS}.VerifiableConsumer", "--topic", case.name, *arguments)


def _offsets(case: Case) -> dict[int, int]:
    """Committed offset per partition, as `--describe` prints it; checks that lag is the rest of 100 records."""
    rows = columns(case.succeed(GROUPS, "--describe", "--group", case.name), case.name)
    for row in rows:
        check(int(row[4]) == 100 and int(row[5]) == 100 - int(row[3]), f"end and lag do not fit: {row}")
    return {int(row[2]): int(row[3]) for row in rows}


CASES: dict[str, Callable[[Case], None]] = {
    case.__name__: case
    for case in (
        topic_command,
        topic_command_refusals,
        config_command,
        config_command_on_brokers,
        consumer_group_command,
        consumer_group_command_refusals,
        offsets_and_record_deletion,
        cluster_tools,
    )
}
