"""Cases of the Java suite about transactions: the copier of Kafka's system tests, and TransactionsCommand."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from conformance.java_checks import Case, check, contains
from conformance.java_tools import CONSOLE_CONSUMER, TOOLS, TOPICS

RECORD_COUNT = 5_000
COPIER_COUNT = 2
TRANSACTION_SIZE = 50
KILLED_AFTER_S = (4.0, 5.0, 6.0)
"""How long each copier runs before it is killed; then a new one with the same transactional id goes on to the end."""
TO_THE_END_S = 120.0
COPIER = f"{TOOLS}.TransactionalMessageCopier"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"


def copiers_that_are_killed(case: Case) -> None:
    """Two copiers of one group abort at random and are killed three times each; every record arrives once."""
    output = f"{case.name}-copy"
    for topic in (case.name, output):
        case.succeed(TOPICS, "--create", "--topic", topic, "--partitions", str(COPIER_COUNT))
    count = str(RECORD_COUNT)
    case.succeed(f"{TOOLS}.VerifiableProducer", "--topic", case.name, "--max-messages", count, "--acks", "-1")
    with ThreadPoolExecutor(COPIER_COUNT) as pool:
        list(pool.map(lambda number: _copy(case, output, number), range(COPIER_COUNT)))
    read = ["--topic", output, "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "10000"]
    values = sorted(int(line) for line in case.complaint(CONSOLE_CONSUMER, *read).splitlines() if line.isdigit())
    check(len(values) == len(set(values)), f"{len(values) - len(set(values))} records were copied twice")
    check(values == list(range(RECORD_COUNT)), f"{len(values)} of {RECORD_COUNT} records were copied")


def _copy(case: Case, output: str, number: int) -> None:
    """Copy until nothing is left, and kill the copier in between."""
    arguments = [
        *("--broker-list", case.tools.bootstrap, "--input-topic", case.name, "--input-partition", str(number)),
        *("--output-topic", output, "--consumer-group", case.name, "--transactional-id", f"{case.name}-{number}"),
        *("--transaction-size", str(TRANSACTION_SIZE), "--transaction-timeout", "30000"),
        *("--enable-random-aborts", "--group-mode", "--use-group-metadata"),
    ]
    for attempt, timeout_s in enumerate([*KILLED_AFTER_S, TO_THE_END_S]):
        name = f"copier-{number}-{attempt}"
        finished = case.tools.run_bare(COPIER, *arguments, name=name, timeout_s=timeout_s)
    check(finished.is_success, f"the last copier {number} ended with {finished.code}: {finished.tail()}")


def transactions_command(case: Case) -> None:
    """List, describe, describe the producers, and find what hangs."""
    output = f"{case.name}-copy"
    for topic in (case.name, output):
        case.succeed(TOPICS, "--create", "--topic", topic, "--partitions", "1")
    case.succeed(f"{TOOLS}.VerifiableProducer", "--topic", case.name, "--max-messages", "100", "--acks", "-1")
    finished = case.tools.run_bare(
        COPIER,
        *("--broker-list", case.tools.bootstrap, "--input-topic", case.name, "--input-partition", "0"),
        *("--output-topic", output, "--consumer-group", case.name, "--transactional-id", case.name),
    )
    check(finished.is_success, f"the copier ended with {finished.code}: {finished.tail()}")
    row = next((line for line in case.succeed(TRANSACTIONS, "list").splitlines() if case.name in line), "")
    contains(row, "CompleteCommit")
    described = case.succeed(TRANSACTIONS, "describe", "--transactional-id", case.name)
    contains(described, case.name, "CompleteCommit")
    producers = case.succeed(TRANSACTIONS, "describe-producers", "--topic", output, "--partition", "0")
    contains(producers, "ProducerId", "None")
    hanging = case.succeed(TRANSACTIONS, "find-hanging", "--topic", output)
    check(case.name not in hanging, f"a transaction hangs: {hanging}")
    contains(case.complaint(TRANSACTIONS, "describe", "--transactional-id", "absent"), "could not be found")


CASES: dict[str, Callable[[Case], None]] = {
    case.__name__: case for case in (copiers_that_are_killed, transactions_command)
}
