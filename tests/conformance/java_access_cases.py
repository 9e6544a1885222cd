"""Cases of the Java suite about access rules: AclCommand (`kafka-acls.sh`), and clients with and without rights.

The clients' own exceptions are checked: they are what applications of Kafka catch.
"""

import re
from collections.abc import Callable

from conformance import scram_users
from conformance.java_checks import Case, check, closed_cluster, contains
from conformance.java_tools import ACLS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, GROUPS, TOPICS

RULE = re.compile(r"\(principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)\)")


def acl_command(case: Case) -> None:
    """Add, list and remove rules of a topic, literal and prefixed, allowing and denying."""
    topic = ["--topic", case.name]
    prefixed = ["--topic", case.name[:-1], "--resource-pattern-type", "prefixed"]
    case.succeed(ACLS, "--add", "--allow-principal", "User:alice", "--operation", "Read", *topic)
    case.succeed(ACLS, "--add", "--allow-principal", "User:bob", "--operation", "Write", *prefixed)
    denial = ["--deny-principal", "User:carol", "--deny-host", "10.0.0.1", "--operation", "All"]
    case.succeed(ACLS, "--add", *denial, *topic)
    literal = {("User:alice", "*", "READ", "ALLOW"), ("User:carol", "10.0.0.1", "ALL", "DENY")}
    check(_rules(case, *topic) == literal, "the literal rules are not as added")
    check(_rules(case, *prefixed) == {("User:bob", "*", "WRITE", "ALLOW")}, "the prefixed rule is not as added")
    matching = _rules(case, *topic, "--resource-pattern-type", "match")
    check({row[0] for row in matching} == {"User:alice", "User:bob", "User:carol"}, f"rules that match: {matching}")
    case.succeed(ACLS, "--remove", "--force", *denial, *topic)
    check(_rules(case, *topic) == {("User:alice", "*", "READ", "ALLOW")}, "more or less than one rule was removed")
    case.succeed(ACLS, "--remove", "--force", *topic, "--resource-pattern-type", "any")
    case.succeed(ACLS, "--remove", "--force", *prefixed)
    left = _rules(case, *topic, "--resource-pattern-type", "match")
    check(not left, f"rules are left: {left}")


def acl_command_conveniences(case: Case) -> None:
    """`--producer` and `--consumer` add the rights that a producer and a consumer need."""
    topic, group = ["--topic", case.name], ["--group", case.name]
    alice, transaction = ["--allow-principal", "User:alice"], ["--transactional-id", case.name]
    case.succeed(ACLS, "--add", *alice, "--producer", "--idempotent", *transaction, *topic)
    allowed = {row[2] for row in _rules(case, *topic)}
    check(allowed == {"WRITE", "DESCRIBE", "CREATE"}, f"--producer allowed {allowed}")
    allowed = {row[2] for row in _rules(case, *transaction)}
    check(allowed == {"WRITE", "DESCRIBE"}, f"--producer --transactional-id allowed {allowed}")
    contains(case.succeed(ACLS, "--list", "--cluster"), "IDEMPOTENT_WRITE")
    case.succeed(ACLS, "--add", *alice, "--consumer", *group, *topic)
    allowed = {row[2] for row in _rules(case, *topic)}
    check(allowed == {"WRITE", "DESCRIBE", "CREATE", "READ"}, f"with --consumer: {allowed}")
    check({row[2] for row in _rules(case, *group)} == {"READ"}, "--consumer --group allows something else than READ")
    case.succeed(ACLS, "--remove", "--force", *alice, "--producer", "--idempotent", *transaction, *topic)
    check({row[2] for row in _rules(case, *topic)} == {"READ"}, "--remove --producer left other rights than READ")
    case.succeed(ACLS, "--remove", "--force", *group, *topic)


def clients_without_rights(case: Case) -> None:
    """A producer and a consumer get the exception that names what they may not use, until a rule allows it; a denial wins."""
    user = scram_users.create(case.tools.bootstrap, f"{case.name}-alice")
    alice = case.user(user.name, user.password)
    topic, group = ["--topic", case.name], ["--group", case.name]
    principal = f"User:{user.name}"
    case.succeed(TOPICS, "--create", *topic, "--partitions", "1")
    case.succeed(ACLS, "--add", "--allow-principal", "User:other", "--operation", "All", *topic, *group)
    refused = "TopicAuthorizationException: Not authorized to access topics: "
    contains(_produce(alice), f"{refused}[{case.name}]")
    contains(_consume(alice), f"{refused}[{case.name}]")
    case.succeed(ACLS, "--add", "--allow-principal", principal, "--producer", *topic)
    written = _produce(alice)
    check("Exception" not in written, f"a producer with its rights is refused: {written[:300]}")
    contains(_consume(alice), f"GroupAuthorizationException: Not authorized to access group: {case.name}")
    case.succeed(ACLS, "--add", "--allow-principal", principal, "--consumer", *group, *topic)
    contains(_consume(alice), "granted")
    case.succeed(ACLS, "--add", "--deny-principal", principal, "--operation", "Write", *topic)
    contains(_produce(alice), f"{refused}[{case.name}]")
    case.succeed(ACLS, "--remove", "--force", *group, *topic)


def tools_without_rights(case: Case) -> None:
    """What a user may not describe is not listed; changes are refused with the exception of their resource."""
    user = scram_users.create(case.tools.bootstrap, f"{case.name}-alice")
    alice = case.user(user.name, user.password)
    topic = ["--topic", case.name]
    case.succeed(TOPICS, "--create", *topic, "--partitions", "1")
    prefixed = [*topic, "--group", case.name, "--resource-pattern-type", "prefixed"]
    case.succeed(ACLS, "--add", "--allow-principal", "User:other", "--operation", "All", *prefixed)
    check(case.name not in alice.succeed(TOPICS, "--list").split(), "a topic is listed that may not be described")
    contains(alice.complaint(TOPICS, "--describe", *topic), f"Topic '{case.name}' does not exist as expected")
    contains(alice.complaint(GROUPS, "--describe", "--group", case.name), "GroupAuthorizationException")
    contains(alice.complaint(GROUPS, "--delete", "--group", case.name), "GroupAuthorizationException")
    with closed_cluster(case):
        other = ["--topic", f"{case.name}-other", "--partitions", "1"]
        contains(alice.complaint(TOPICS, "--create", *other), "TopicAuthorizationException")
        for words in (["--list"], ["--add", "--allow-principal", f"User:{user.name}", "--operation", "All", *topic]):
            contains(alice.complaint(ACLS, *words), "ClusterAuthorizationException")
    describe = ["--operation", "Describe", "--operation", "DescribeConfigs"]
    case.succeed(ACLS, "--add", "--allow-principal", f"User:{user.name}", *describe, *topic)
    contains(alice.succeed(TOPICS, "--describe", *topic), "PartitionCount: 1")
    with closed_cluster(case):  # Delete on the cluster serves as Delete on every topic
        contains(alice.complaint(TOPICS, "--delete", *topic), "TopicAuthorizationException")
    case.succeed(ACLS, "--remove", "--force", *topic)
    case.succeed(ACLS, "--remove", "--force", *prefixed)


def _rules(case: Case, *resource: str) -> set[tuple[str, str, str, str]]:
    """Principal, host, operation and permission of each listed rule."""
    return {(row[0], row[1], row[2], row[3]) for row in RULE.findall(case.succeed(ACLS, "--list", *resource))}


def _produce(case: Case) -> str:
    return case.complaint(CONSOLE_PRODUCER, "--topic", case.name, stdin=b"granted\n")


def _consume(case: Case) -> str:
    first = ["--from-beginning", "--max-messages", "1"]
    return case.complaint(CONSOLE_CONSUMER, "--topic", case.name, "--group", case.name, *first)


CASES: dict[str, Callable[[Case], None]] = {
    case.__name__: case
    for case in (acl_command, acl_command_conveniences, clients_without_rights, tools_without_rights)
}
