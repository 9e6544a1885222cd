"""Likely mistakes on the command line: each is answered soon, in words that say what to do."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from bearlake.app import copying, tour
from bearlake.app.schema_values import SchemaValues
from bearlake.cli import http_client, produce
from bearlake.cli.admin_client import AdminClient
from bearlake.cli.kafka_options import Outage
from bearlake.cli.main import run
from bearlake.cli.output import NOTICE_S
from bearlake.cli.progress import Progress
from bearlake.errors import NotFound
from fixtures.http_answers import answering, head
from fixtures.waiting import WAIT_S
from simulator.loop import virtual_time

HTTP = confluent_kafka.KafkaError(
    confluent_kafka.KafkaError._TRANSPORT,  # noqa: SLF001
    "127.0.0.1:9/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000): increase receive.message.max.bytes",
)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["topics"], 2, "Did you mean 'stream'?"),
        (["acls"], 2, "Did you mean 'access'?"),
        (["strem"], 2, "Did you mean 'stream'?"),
        (["stream", "topics"], 2, "No such command 'topics'."),
        (
            ["produce", "a", "-b", "http://127.0.0.1:9"],
            2,
            "expected HOST:PORT of a Kafka listener, such as 127.0.0.1:9",
        ),
        (["consume", "a", "-b", "pulsar://127.0.0.1:9"], 2, "expected HOST:PORT of a Kafka listener"),
        (["tour", "--bootstrap", "http://127.0.0.1:9/"], 2, "such as 127.0.0.1:9"),
        (["import", "kafka", "--from", "http://127.0.0.1:9", "--topics", "a"], 2, "expected HOST:PORT"),
        (["export", "kafka", "--to", "http://127.0.0.1:9", "--topics", "a"], 2, "expected HOST:PORT"),
        (["stream", "alter", "a"], 2, "nothing to change: pass --set, --unset or --partitions"),
        (
            [
                "access",
                "deny",
                "--principal",
                "User:a",
                "--operation",
                "Read",
                "--resource",
                "Topic:a",
                "--host",
                "eve",
            ],
            2,
            "--host eve: expected the IP address of a client, or * for all",
        ),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(
    words: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    assert text in capsys.readouterr().err


def test_a_client_names_its_protocol_before_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []
    monkeypatch.setattr(tour, "run", lambda bootstrap, *_: reached.append(bootstrap))

    assert run(["tour", "--bootstrap", "SASL_SSL://127.0.0.1:9"]) == 0
    assert reached == ["SASL_SSL://127.0.0.1:9"]


def test_a_password_is_not_read_where_it_would_be_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BEARLAKE_USER_PASSWORD", raising=False)
    monkeypatch.setattr("getpass.getpass", shown_password)
    monkeypatch.setattr("click.termui.hidden_prompt_func", shown_password)

    assert run(["user", "create", "u", "--metadata-url", "memory:///", "--object-store-url", "memory:///"]) == 2
    assert "there is no terminal to ask for the password: pass --password-file" in capsys.readouterr().err


def shown_password(_prompt: str) -> str:
    import getpass
    import warnings

    warnings.warn("Can not control echo on the terminal.", getpass.GetPassWarning, stacklevel=2)
    return "secret"


def test_an_http_server_is_known_where_kafka_was_expected() -> None:
    outage = Outage(confluent_kafka, "127.0.0.1:9")
    outage(HTTP)

    assert outage.text == "no answer from 127.0.0.1:9: that is an HTTP server, not a Kafka listener"


def test_a_server_that_says_nothing_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    outage = Outage(confluent_kafka, "127.0.0.1:9")
    for seconds in (NOTICE_S, NOTICE_S + 1, NOTICE_S + 2):
        outage.waited(seconds)
    answered = Outage(confluent_kafka, "127.0.0.1:8")
    answered.answered()
    answered.waited(NOTICE_S + 1)

    assert capsys.readouterr().err.count("no answer from") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [("_UNKNOWN_PARTITION", "`bearlake stream describe`"), ("MSG_SIZE_TOO_LARGE", "-X message.max.bytes=")],
)
def test_a_record_that_is_not_delivered_has_advice(name: str, text: str) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:9"}
    sender = produce._Sender(confluent_kafka, settings, Progress("produced"), lambda: None)  # noqa: SLF001
    sender._on_delivery(confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, name)), None)  # noqa: SLF001

    assert text in sender.first_error


class Due:
    """A timer that is due at once."""

    def __init__(self, _seconds: float, call: Callable[..., None], words: Any, options: Any) -> None:
        self.start = lambda: call(*words, **options)
        self.daemon = False

    def cancel(self) -> None:
        """Nothing is left to cancel."""


@pytest.mark.parametrize(("request_s", "count"), [(None, 1), (2.0, 0)])
def test_a_command_says_that_it_waits_for_an_api(
    request_s: float | None, count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(http_client, "threading", SimpleNamespace(Timer=Due))
    with answering([head(Content_Length=2), b"{}"]) as url:
        AdminClient(url, None, request_s=request_s).call("GET", "/v1/servers")

    assert capsys.readouterr().err.count(f"no answer from {url} yet; waiting 35 s at most") == count


def test_an_answer_ends_the_timer_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with answering([head(Content_Length=2), b"{}"]) as url:
        AdminClient(url, None).call("GET", "/v1/servers")
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(WAIT_S)

    assert capsys.readouterr().err == ""


def test_a_subject_without_schemas_is_named_with_what_to_do() -> None:
    def ask(_path: str) -> Any:
        raise NotFound("Subject 'a-value' not found.")

    values = SchemaValues(ask, lambda _: None)
    with pytest.raises(
        NotFound, match="the registry has no subject a-value: register a schema there, or pass the id of one"
    ):
        values.chosen("latest", "a-value")
    values.close()


class Deaf:
    """A client that gets no answer; it remembers how long it waited."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    def list_topics(self, timeout: float) -> None:
        self.waited_s.append(timeout)
        raise confluent_kafka.KafkaException(HTTP)


def test_the_tour_says_that_it_waits_for_a_first_answer() -> None:
    client, said = Deaf(), list[str]()
    with pytest.raises(tour.TourFailed, match="is the server running"):
        tour.reach(confluent_kafka, client, "127.0.0.1:9", said.append)

    assert sum(client.waited_s) == tour.TIMEOUT_S
    assert client.waited_s[0] <= 10
    assert said == ["  wait      no answer from 127.0.0.1:9 yet; the tour waits 60 s at most"]


@pytest.mark.parametrize(("seconds", "count"), [(copying.NOTICE_S / 2, 0), (2 * copying.NOTICE_S, 1)])
def test_a_copy_says_that_it_waits_for_a_first_answer(
    seconds: float, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    @virtual_time
    async def ask() -> None:
        assert await copying.first_answer(asyncio.sleep(seconds, "answer"), "the source 127.0.0.1:9") == "answer"

    ask()
    assert capsys.readouterr().err.count("no answer from the source 127.0.0.1:9 yet; waiting") == count
