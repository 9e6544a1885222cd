"""Cases of the Java suite about client quotas: ConfigCommand (`kafka-configs.sh`), and clients that are throttled.

The clients measure the throttle times that responses have; the performance tools print them as metrics.
"""

import re
from collections.abc import Callable

from conformance import scram_users
from conformance.java_checks import Case, check, closed_cluster, contains
from conformance.java_tools import CONFIGS, TOOLS, TOPICS

RATE = 300_000
FEW, MANY, RECORD_BYTES = 100, 4_000, 1_000
"""Records, and their size: 4 MB take 13 s at the limited rate. Apache Kafka measures a rate over 11 s, and throttles no less than that."""


def quota_command(case: Case) -> None:
    """Set, describe and delete quotas of a user, of one of its clients, and of an address; bad values are refused."""
    user, client = ["--entity-type", "users", "--entity-name", case.name], ["--entity-type", "clients"]
    pair = [*user, *client, "--entity-name", "loader"]
    address = ["--entity-type", "ips", "--entity-name", "10.1.2.3"]
    case.succeed(CONFIGS, "--alter", "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048", *user)
    case.succeed(CONFIGS, "--alter", "--add-config", "request_percentage=12.5", *pair)
    case.succeed(CONFIGS, "--alter", "--add-config", "connection_creation_rate=7", *address)
    text = case.succeed(CONFIGS, "--describe", *user)
    contains(text, f"Quota configs for user-principal '{case.name}' are ")
    contains(text, "producer_byte_rate=1024", "consumer_byte_rate=2048")
    text = case.succeed(CONFIGS, "--describe", *pair)
    contains(text, f"Quota configs for user-principal '{case.name}', client-id 'loader' are request_percentage=12.5")
    contains(case.succeed(CONFIGS, "--describe", *address), "for ip '10.1.2.3' are connection_creation_rate=7")
    case.succeed(CONFIGS, "--alter", "--delete-config", "producer_byte_rate", *user)
    text = case.succeed(CONFIGS, "--describe", *user)
    check("producer_byte_rate" not in text and "consumer_byte_rate=2048" in text, f"after the deletion: {text}")
    for value in ("producer_byte_rate=-1", "producer_byte_rate=1.5", "request_percentage=0"):
        contains(case.complaint(CONFIGS, "--alter", "--add-config", value, *user), "InvalidRequestException")
    case.succeed(CONFIGS, "--alter", "--delete-config", "consumer_byte_rate", *user)
    case.succeed(CONFIGS, "--alter", "--delete-config", "request_percentage", *pair)
    case.succeed(CONFIGS, "--alter", "--delete-config", "connection_creation_rate", *address)
    left = case.succeed(CONFIGS, "--describe", *user) + case.succeed(CONFIGS, "--describe", *pair)
    check("_rate=" not in left and "percentage" not in left, f"quotas are left: {left}")


def quota_command_defaults(case: Case) -> None:
    """Default quotas of users, clients and addresses have entities of their own. They are too high to throttle anyone."""
    for kind, title, quota in (
        ("users", "the default user-principal", "producer_byte_rate"),
        ("clients", "the default client-id", "consumer_byte_rate"),
        ("ips", "the default ip", "connection_creation_rate"),
    ):
        entity = ["--entity-type", kind, "--entity-default"]
        case.succeed(CONFIGS, "--alter", "--add-config", f"{quota}=1000000000", *entity)
        text = case.succeed(CONFIGS, "--describe", *entity)
        case.succeed(CONFIGS, "--alter", "--delete-config", quota, *entity)
        contains(text, f"Quota configs for {title} are {quota}=1.0E9")
        check(quota not in case.succeed(CONFIGS, "--describe", *entity), f"the default of {kind} is left")
    user = scram_users.create(case.tools.bootstrap, f"{case.name}-alice")
    wanted = ["--alter", "--add-config", "producer_byte_rate=1", "--entity-type", "users", "--entity-default"]
    with closed_cluster(case):
        contains(case.user(user.name, user.password).complaint(CONFIGS, *wanted), "ClusterAuthorizationException")


def throttled_clients(case: Case) -> None:
    """The server asks a producer and a consumer over their rates to wait; they get no error, and lose no record."""
    user = scram_users.create(case.tools.bootstrap, f"{case.name}-alice")
    alice = case.user(user.name, user.password)
    entity = ["--entity-type", "users", "--entity-name", user.name]
    case.succeed(TOPICS, "--create", "--topic", case.name, "--partitions", "1")
    check(_produce(case, FEW) == 0, "a user without a quota is throttled")
    quotas = f"producer_byte_rate={RATE},consumer_byte_rate={RATE}"
    case.succeed(CONFIGS, "--alter", "--add-config", quotas, *entity)
    check(_produce(alice, MANY) > 0, "a producer over its quota is not throttled")
    arguments = ["--num-records", str(FEW + MANY), "--group", case.name, "--print-metrics", "--timeout", "60000"]
    text = alice.succeed(f"{TOOLS}.ConsumerPerformance", "--topic", case.name, *arguments)
    check(_metric(text, "fetch-throttle-time-max") > 0, "a consumer over its quota is not throttled")
    contains(text, f", {FEW + MANY}, ")
    case.succeed(CONFIGS, "--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate", *entity)


def _produce(case: Case, count: int) -> float:
    """Write records as fast as allowed; returns the longest throttle time of a response, in ms."""
    size = ["--num-records", str(count), "--record-size", str(RECORD_BYTES), "--throughput", "-1"]
    text = case.succeed(f"{TOOLS}.ProducerPerformance", "--topic", case.name, *size, "--print-metrics")
    found = re.search(rf"^{count} records sent", text, re.MULTILINE)
    check(found is not None, f"not {count} records sent: {text[-200:]}")
    return _metric(text, "produce-throttle-time-max")


def _metric(text: str, name: str) -> float:
    """The value of a client's metric, as the performance tools print it; NaN counts as 0."""
    values = [float(value) for value in re.findall(rf"{name}:\S* *: *(\S+)", text)]
    check(bool(values), f"no metric {name}: {text[-300:]}")
    return max((value for value in values if value == value), default=0.0)


CASES: dict[str, Callable[[Case], None]] = {
    case.__name__: case for case in (quota_command, quota_command_defaults, throttled_clients)
}
