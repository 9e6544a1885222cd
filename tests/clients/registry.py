"""The third-party clients that the tests know, by name."""

from collections.abc import Callable
from pathlib import Path

from clients.messages import Client
from clients.program_clients import ConsoleTools, Kcat, franz_go, kafkajs
from clients.python_clients import Aiokafka, ConfluentKafka, KafkaPython
from conformance import packages

CLIENTS: dict[str, Callable[[str, Path], Client]] = {
    "confluent-kafka": lambda bootstrap, _: ConfluentKafka(bootstrap),
    "kafka-python": lambda bootstrap, _: KafkaPython(bootstrap),
    "aiokafka": lambda bootstrap, _: Aiokafka(bootstrap),
    "kcat": Kcat,
    "kafka-console": ConsoleTools,
    "franz-go": franz_go,
    "kafkajs": kafkajs,
}


class Unavailable(RuntimeError):
    """A client is not installed and cannot be fetched; the message says how to install it."""


def obtain(name: str, bootstrap: str, logs: Path) -> Client:
    """The client called `name` against the server at `bootstrap`; its programs log to `logs`.

    Raises:
        Unavailable: a program is missing, or a package cannot be fetched.
    """
    try:
        return CLIENTS[name](bootstrap, logs)
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        raise Unavailable(f"{name} NOT TESTED: {error}") from error
