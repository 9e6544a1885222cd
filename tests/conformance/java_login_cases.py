"""Cases of the Java suite about logins: users by ConfigCommand (`kafka-configs.sh`), and clients that log in by SASL."""

from collections.abc import Callable

from conformance.java_checks import Case, check, closed_cluster, contains
from conformance.java_tools import CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, TOPICS

PASSWORD, OTHER = "correct-horse", "guess-17"


def scram_users_command(case: Case) -> None:
    """Create a user, describe its mechanisms and iterations, change its password, delete it; refusals are Kafka's."""
    entity = ["--entity-type", "users", "--entity-name", case.name]
    _create(case, PASSWORD, "SCRAM-SHA-256", "iterations=4097,")
    _create(case, PASSWORD, "SCRAM-SHA-512", "iterations=8192,")
    text = case.succeed(CONFIGS, "--describe", *entity)
    contains(text, f"SCRAM credential configs for user-principal '{case.name}' are ")
    contains(text, "SCRAM-SHA-256=iterations=4097", "SCRAM-SHA-512=iterations=8192")
    check(PASSWORD not in text, "a description has the password")
    case.succeed(CONFIGS, "--alter", "--delete-config", "SCRAM-SHA-256", *entity)
    text = case.succeed(CONFIGS, "--describe", *entity)
    check("SCRAM-SHA-256" not in text and "SCRAM-SHA-512=iterations=8192" in text, f"after the deletion: {text}")
    absent = case.complaint(CONFIGS, "--alter", "--delete-config", "SCRAM-SHA-256", *entity)
    contains(absent, "ResourceNotFoundException")
    many = case.complaint(CONFIGS, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=16385,password=x]", *entity)
    contains(many, "UnacceptableCredentialException")
    alice = case.user(case.name, PASSWORD)
    wanted = "SCRAM-SHA-512=[password=x]"
    with closed_cluster(case):
        contains(alice.complaint(CONFIGS, "--alter", "--add-config", wanted, *entity), "ClusterAuthorizationException")


def clients_that_log_in(case: Case) -> None:
    """The console tools write and read by SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN; a changed password applies to new logins."""
    _create(case, PASSWORD, "SCRAM-SHA-256")
    _create(case, PASSWORD, "SCRAM-SHA-512")
    case.succeed(TOPICS, "--create", "--topic", case.name, "--partitions", "1")
    mechanisms = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
    for mechanism in mechanisms:
        written = _produce(case.user(case.name, PASSWORD, mechanism), mechanism)
        check("Exception" not in written, f"{mechanism}: {written[:300]}")
    reader = case.user(case.name, PASSWORD, "SCRAM-SHA-512")
    options = ["--from-beginning", "--max-messages", str(len(mechanisms))]
    text = reader.succeed(CONSOLE_CONSUMER, "--topic", case.name, "--group", case.name, *options)
    check(text.split() == list(mechanisms), f"read {text!r}")
    _create(case, OTHER, "SCRAM-SHA-512")
    contains(_produce(reader, "late"), "SaslAuthenticationException")


def clients_with_a_wrong_login(case: Case) -> None:
    """A wrong password, an unknown user and a mechanism that is not offered get the exceptions that applications catch."""
    _create(case, PASSWORD, "SCRAM-SHA-512")
    case.succeed(TOPICS, "--create", "--topic", case.name, "--partitions", "1")
    for name, mechanism in (
        (case.name, "SCRAM-SHA-512"),
        (f"{case.name}-absent", "SCRAM-SHA-512"),
        (case.name, "PLAIN"),
    ):
        text = _produce(case.user(name, OTHER, mechanism), "refused")
        contains(text, "SaslAuthenticationException")
        check(OTHER not in text, "an exception has the password")
    offered = case.user(case.name, PASSWORD, "OAUTHBEARER").complaint(CONSOLE_CONSUMER, "--topic", case.name)
    contains(offered, "UnsupportedSaslMechanismException", "SCRAM-SHA-512")


def _create(case: Case, password: str, mechanism: str, more: str = "") -> None:
    entity = ["--entity-type", "users", "--entity-name", case.name]
    wanted = f"{mechanism}=[{more}password={password}]"
    contains(case.succeed(CONFIGS, "--alter", "--add-config", wanted, *entity), "Completed updating config for user")


def _produce(case: Case, line: str) -> str:
    return case.complaint(CONSOLE_PRODUCER, "--topic", case.name, stdin=f"{line}\n".encode())


CASES: dict[str, Callable[[Case], None]] = {
    case.__name__: case for case in (scram_users_command, clients_that_log_in, clients_with_a_wrong_login)
}
