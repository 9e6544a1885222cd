"""Unmodified clients log in as they do to Kafka, or get the error that says why they may not.

One server has a listener for SASL on this machine, and a listener for SASL over TLS. Users were made by `bearlake user create`.
"""

import asyncio
import contextlib
import functools
import json
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka  # type: ignore[import-untyped]
import jwt
import pytest
import yaml
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

from clients.messages import TIMEOUT_S, Message
from clients.program_clients import JsonProgram, franz_go, kafkajs
from clients.registry import Unavailable
from fixtures.server_process import finished, started

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]
    from kafka.net.sasl.oauth import AbstractTokenProvider  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

ISSUER, AUDIENCE = "https://issuer.example", "bearlake"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
USER, PASSWORD, WRONG = "alice", "correct horse", "guess 17"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN, BEARER = "PLAIN", "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the server listens, and what a client trusts."""

    clear: str
    tls: str
    authority: Path

    def address(self, mechanism: str) -> str:
        return self.tls if mechanism in (PLAIN, BEARER) else self.clear


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, certificates: Mapping[str, Path]) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("logins")
    key = jwt.get_algorithm_by_name("RS256").to_jwk(KEY.public_key(), as_dict=True)
    (folder / "keys.json").write_text(json.dumps({"keys": [{**key, "kid": "k", "alg": "RS256", "use": "sig"}]}))
    settings = {
        "metadata": {"url": f"sqlite://{folder}/metadata.db"},
        "object_store": {"url": f"file://{folder}/objects"},
        "admin": {"port": 0},
        "listeners": {
            "kafka_more": [
                {
                    "name": "TLS",
                    "advertised_host": "localhost",
                    "tls_certificate_file": str(certificates["server"]),
                    "tls_key_file": str(certificates["server_key"]),
                }
            ]
        },
        "access": {"super_users": [f"User:{USER}"]},
        "authentication": {
            "mechanisms": [*SCRAM, PLAIN, BEARER],
            "failures": {"per_address_max": 1_000_000, "per_user_max": 1_000_000},
            "token": {"issuer": ISSUER, "audience": AUDIENCE, "keys_file": str(folder / "keys.json")},
        },
    }
    config = folder / "settings.yaml"
    config.write_text(yaml.safe_dump(settings))
    made = finished("user", "create", USER, "--password-file", "-", "--config", config, stdin=f"{PASSWORD}\n".encode())
    assert made.returncode == 0, made.stderr.decode()
    with started("serve", "kafka", "--config", config, ready_file=folder / "ready.json") as server:
        more = server.ready["kafka:TLS"]
        yield Place(clear=server.kafka, tls=more, authority=certificates["authority"])


def token(**claims: Any) -> str:
    full = {"iss": ISSUER, "aud": AUDIENCE, "sub": USER, "exp": int(time.time()) + 3600, **claims}
    return jwt.encode(full, KEY, "RS256", headers={"kid": "k"})


def expired() -> str:
    return token(exp=int(time.time()) - 3600)


class Refused(Exception):
    """The client could not log in; the text is its own."""


# -- clients: each produces one record and returns the records of the topic, or raises `Refused` --------------------------


def librdkafka(place: Place, mechanism: str, secret: str, topic: str) -> list[bytes]:
    config: dict[str, Any] = {
        "bootstrap.servers": place.address(mechanism),
        "security.protocol": "SASL_SSL" if place.address(mechanism) == place.tls else "SASL_PLAINTEXT",
        "ssl.ca.location": str(place.authority),
        "sasl.mechanism": mechanism,
    }
    if mechanism == BEARER:
        config["oauth_cb"] = lambda _: (secret, time.time() + 3600)
    else:
        config |= {"sasl.username": USER, "sasl.password": secret}
    refusals: list[str] = []

    def note(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:  # noqa: SLF001 - public, as the library has it
            refusals.append(error.str())

    producer = Producer({**config, "error_cb": note})
    producer.produce(topic, b"x")
    deadline = time.monotonic() + TIMEOUT_S
    while producer.flush(0.1) and not refusals:
        assert time.monotonic() < deadline, "neither delivered nor refused"
    if refusals:
        producer.purge()
        producer.flush(1)
        raise Refused(refusals[0])
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        record = consumer.poll(TIMEOUT_S)
        assert record is not None
        assert record.error() is None
        return [record.value()]
    finally:
        consumer.close()


class FixedToken(AbstractTokenProvider):  # type: ignore[misc]
    """A token that the test made."""

    def __init__(self, text: str) -> None:
        self._text = text

    def token(self) -> str:
        return self._text


def kafka_python(place: Place, mechanism: str, secret: str, topic: str) -> list[bytes]:
    config: dict[str, Any] = {
        "bootstrap_servers": place.address(mechanism),
        "security_protocol": "SASL_SSL" if place.address(mechanism) == place.tls else "SASL_PLAINTEXT",
        "ssl_cafile": str(place.authority),
        "bootstrap_timeout_ms": 3_000,
        "sasl_mechanism": mechanism,
    }
    if mechanism == BEARER:
        config["sasl_oauth_token_provider"] = FixedToken(secret)
    else:
        config |= {"sasl_plain_username": USER, "sasl_plain_password": secret}
    try:
        producer = kafka.KafkaProducer(**config)
        try:
            producer.send(topic, b"x").get(timeout=TIMEOUT_S)
        finally:
            producer.close(timeout=1)
    except kafka.errors.KafkaError as error:
        raise Refused(repr(error)) from error
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", group_id=topic, **config)
    try:
        return [next(consumer).value]
    finally:
        consumer.close()


def aiokafka_(place: Place, mechanism: str, secret: str, topic: str) -> list[bytes]:
    async def run() -> list[bytes]:
        config = {
            "bootstrap_servers": place.clear,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": secret,
        }
        producer = aiokafka.AIOKafkaProducer(**config)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"x")
        except (AuthenticationFailedError, KafkaConnectionError) as error:
            raise Refused(repr(error)) from error
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **config)
        await consumer.start()
        try:
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value]
        finally:
            await consumer.stop()

    return asyncio.run(run())


def kcat(place: Place, mechanism: str, secret: str, topic: str) -> list[bytes]:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat is not installed")
    protocol = "SASL_SSL" if place.address(mechanism) == place.tls else "SASL_PLAINTEXT"
    options = [
        f"security.protocol={protocol}",
        f"ssl.ca.location={place.authority}",
        f"sasl.mechanism={mechanism}",
        f"sasl.username={USER}",
        f"sasl.password={secret}",
    ]
    common = [program, "-b", place.address(mechanism), "-t", topic, *(f"-X{option}" for option in options)]
    run = functools.partial(subprocess.run, capture_output=True, timeout=TIMEOUT_S, check=False)
    written = run([*common, "-P", "-X", "message.timeout.ms=5000"], input=b"x\n")
    if written.returncode:
        raise Refused(written.stderr.decode())
    return bytes(run([*common, "-C", "-e", "-o", "beginning", "-q"]).stdout).split()


def by_program(
    obtain: Callable[[str, Path], JsonProgram], place: Place, mechanism: str, secret: str, topic: str
) -> list[bytes]:
    """Our own program around a third-party library, on the listener without TLS."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_SASL", f"{mechanism} {USER} {secret}")
        try:
            program = obtain(place.clear, Path(folder))
        except Unavailable as error:
            pytest.skip(str(error))
        try:
            program.create_topic(topic, 1)
            program.produce(topic, [Message(b"x")])
        except Exception as error:
            raise Refused(str(error)) from error
        return [message.value or b"" for message in program.consume(topic, topic, 1)]


CLIENTS: Mapping[str, tuple[Callable[[Place, str, str, str], list[bytes]], tuple[str, ...]]] = {
    "librdkafka": (librdkafka, (*SCRAM, PLAIN, BEARER)),
    "kafka-python": (kafka_python, (*SCRAM, PLAIN, BEARER)),
    "aiokafka": (aiokafka_, SCRAM),
    "kcat": (kcat, (PLAIN,)),
    "franz-go": (functools.partial(by_program, franz_go), (*SCRAM, PLAIN, BEARER)),
    "kafkajs": (functools.partial(by_program, kafkajs), (*SCRAM, PLAIN)),
}
WAYS = [(name, mechanism) for name, (_, mechanisms) in CLIENTS.items() for mechanism in mechanisms]


@pytest.mark.parametrize(("client", "mechanism"), WAYS)
def test_a_client_that_logs_in_writes_and_reads(place: Place, client: str, mechanism: str, name: str) -> None:
    secret = token() if mechanism == BEARER else PASSWORD
    assert CLIENTS[client][0](place, mechanism, secret, name) == [b"x"]


@pytest.mark.parametrize(("client", "mechanism"), WAYS)
def test_a_client_with_a_wrong_proof_gets_an_error(
    place: Place, client: str, mechanism: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients in Python log the reason, and then report that they found no server."""
    secret = expired() if mechanism == BEARER else WRONG
    with pytest.raises(Refused) as refused:
        CLIENTS[client][0](place, mechanism, secret, name)
    text = f"{refused.value} {caplog.text}"
    reason = "expired" if mechanism == BEARER else "the user name or the password is wrong"
    if (client, mechanism) == ("franz-go", BEARER):
        reason = "unexpected data in oauth response"  # it does not ask for the reason, as RFC 7628 wants it
    if client == "kafkajs":
        reason = "retriable: false"  # the end of its stack trace of a failed login; the reason is far above
    assert reason in text
    assert secret not in str(refused.value)


def test_a_librdkafka_that_sends_a_wrong_nonce_is_refused_as_by_kafka(place: Place, name: str) -> None:
    """librdkafka before 2.6.1 repeats its own nonce, which Kafka accepted until CVE-2024-56128. Debian's kcat has such a librdkafka."""
    with contextlib.suppress(Refused):
        assert kcat(place, "SCRAM-SHA-256", PASSWORD, name) == [b"x"]  # a newer librdkafka


def test_a_password_without_tls_is_accepted_from_this_machine(place: Place, name: str) -> None:
    """Loopback counts as safe: the same client is let in by PLAIN on the listener without TLS."""
    here = Place(clear=place.clear, tls=place.clear, authority=place.authority)
    producer = Producer(
        {
            "bootstrap.servers": here.clear,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": PLAIN,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    producer.produce(name, b"x")
    assert producer.flush(TIMEOUT_S) == 0


def test_librdkafka_makes_lists_and_deletes_users(place: Place, name: str) -> None:
    admin = AdminClient(
        {
            "bootstrap.servers": place.clear,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(name, info, b"made by librdkafka")]
    ).values():
        future.result(timeout=TIMEOUT_S)
    found = admin.describe_user_scram_credentials([name])[name].result(timeout=TIMEOUT_S)
    assert [(info.mechanism, info.iterations) for info in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]

    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)]
    ).values():
        future.result(timeout=TIMEOUT_S)
    with pytest.raises(KafkaException):
        admin.describe_user_scram_credentials([name])[name].result(timeout=TIMEOUT_S)
