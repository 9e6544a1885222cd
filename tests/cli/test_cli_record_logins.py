"""`produce` and `consume` against a server that asks for a login: a refused login ends them at once, and rights on the stream suffice."""

from collections.abc import Iterator

import confluent_kafka
import pytest
import yaml

from bearlake.cli.kafka_options import Outage
from bearlake.errors import Denied
from fixtures.cli_process import Cli
from fixtures.server_process import ServerProcess, finished, started

PASSWORD = "a long password"


def event(name: str, text: str) -> confluent_kafka.KafkaError:
    return confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, name), text)


DOWN = event("_ALL_BROKERS_DOWN", "1/1 brokers are down")
REFUSED = event(
    "_AUTHENTICATION",
    "sasl_plaintext://127.0.0.1:9/bootstrap: SASL authentication error: wrong (after 3ms in state AUTH_REQ)",
)
ABSENT = event("_TRANSPORT", "127.0.0.1:9/3: Connect to ipv4#127.0.0.1:9 failed (after 0ms in state CONNECT)")
CLOSED = event("_TRANSPORT", "127.0.0.1:9/bootstrap: Send failed: Broken pipe (after 0ms in state UP)")
QUESTION = " (does it ask for a login or TLS? See -X security.protocol=…)"


def test_a_refused_login_is_the_only_message(capsys: pytest.CaptureFixture[str]) -> None:
    outage = Outage(confluent_kafka, "127.0.0.1:9")
    for error in (REFUSED, DOWN, CLOSED):
        outage(error)

    with pytest.raises(Denied, match=r"^127\.0\.0\.1:9: SASL authentication error: wrong$"):
        outage.check()
    assert capsys.readouterr().err == ""


def test_a_login_that_a_server_refuses_later_is_tried_again(capsys: pytest.CaptureFixture[str]) -> None:
    outage = Outage(confluent_kafka, "127.0.0.1:9")
    outage.answered()
    for error in (REFUSED, DOWN, DOWN):
        outage(error)

    outage.check()
    assert capsys.readouterr().err.count("no answer from 127.0.0.1:9: SASL authentication error: wrong; retrying") == 1


@pytest.mark.parametrize(
    ("errors", "has_answered", "text"),
    [
        ([ABSENT], False, ": Connect to ipv4#127.0.0.1:9 failed"),
        ([CLOSED], False, f": Send failed: Broken pipe{QUESTION}"),
        ([DOWN], False, QUESTION),
        ([DOWN], True, ""),
    ],
    ids=["absent", "closed", "closed without a reason", "worked before"],
)
def test_an_outage_has_the_reason_of_the_client(
    errors: list[confluent_kafka.KafkaError], has_answered: bool, text: str
) -> None:
    outage = Outage(confluent_kafka, "127.0.0.1:9")
    if has_answered:
        outage.answered()
    for error in errors:
        outage(error)

    assert outage.text == f"no answer from 127.0.0.1:9{text}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the user `reader`, who may read streams and use no group, and `writer`, who may write them."""
    folder = tmp_path_factory.mktemp("logins")
    config = folder / "settings.yaml"
    config.write_text(
        yaml.safe_dump({"authentication": {"mechanisms": ["PLAIN"]}, "access": {"allow_if_no_rule": False}})
    )
    stores = ("--data-dir", folder / "data", "--config", config)
    with started("up", *stores, ready_file=folder / "ready.json") as process:
        for user, operation in [("reader", "Read"), ("writer", "Write")]:
            rule = ("--principal", f"User:{user}", "--operation", operation, "--resource", "Topic:letters")
            for words in (("user", "create", user, "--password-file", "-"), ("access", "allow", *rule)):
                assert finished(*words, *stores, stdin=PASSWORD.encode()).returncode == 0
        Cli(process)("stream", "create", "letters")
        yield process


@pytest.fixture
def cli(server: ServerProcess) -> Cli:
    return Cli(server)


def login(user: str, password: str = PASSWORD) -> list[str]:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }
    return [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]


@pytest.mark.integration
def test_rights_on_a_stream_suffice_without_a_group(cli: Cli) -> None:
    cli("produce", "letters", *login("writer"), stdin=b"one\n")

    assert cli("consume", "letters", "--from-beginning", "--exit-at-end", *login("reader")) == "one\n"


@pytest.mark.integration
@pytest.mark.parametrize("command", [["produce", "letters"], ["consume", "letters", "--from-beginning"]], ids=" ".join)
def test_a_wrong_password_ends_a_command_with_the_server_s_reason(cli: Cli, command: list[str]) -> None:
    message = cli(*command, *login("reader", "wrong"), stdin=b"two\n", code=1)

    assert message.splitlines() == [
        f"bearlake: {cli.environ['BEARLAKE_BOOTSTRAP']}: SASL authentication error: the user name or the password is wrong"
    ]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["consume", "letters", "--from-beginning", *login("writer")], "Topic authorization failed"),
        (["consume", "letters", "--group", "g", *login("reader")], "Group authorization failed"),
        (["consume", "secrets", *login("reader")], "secrets: Broker: Topic authorization failed"),
    ],
    ids=["no right to read", "no right to the group", "no right to describe"],
)
def test_a_missing_right_is_a_refusal_and_no_outage(cli: Cli, command: list[str], reason: str) -> None:
    assert reason in cli(*command, code=1)


@pytest.mark.integration
def test_a_client_without_a_login_learns_what_may_be_missing(cli: Cli) -> None:
    assert QUESTION in cli("consume", "letters", code=3)


@pytest.mark.integration
def test_a_server_that_asks_for_a_login_starts_without_a_tour(server: ServerProcess) -> None:
    output = server.said()

    assert "There is no tour: clients of the Kafka listener must log in." in output
    assert "bearlake user create NAME" in output
    assert "bearlake produce" not in output
