"""How an import logs in at its source: SASL mechanisms, TLS, secrets in files, and what it says when the source refuses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from scramp import ScramMechanism

from bearlake.errors import BearlakeError, Corrupt, Denied, Invalid, Unavailable
from bearlake.importing.cluster import SourceCluster
from bearlake.importing.login import SourceLogin
from bearlake.importing.settings import SourceSettings
from bearlake.protocols.kafka import messages
from bearlake.serving.authentication.scram_client import ITERATIONS_MAX, ScramLogin
from bearlake.serving.authentication.settings import MECHANISMS
from bearlake.serving.listener import ListenerSettings
from fixtures.kafka_server import Make, Node
from fixtures.logins import Logins, add_user


async def source_with_logins(kafka_cluster: Make, logins: Logins, listener: ListenerSettings | None = None) -> Node:
    """A source with the topic `orders` and the user alice, whose password is "secret"."""
    cluster = await kafka_cluster(1, authentication=logins.settings(), listeners=[listener or ListenerSettings()])
    await add_user(cluster.metadata)
    await cluster[0].create("orders")
    return cluster[0]


def secret_file(folder: Path, text: str = "secret\n") -> str:
    """A file with a secret."""
    path = folder / "secret"
    path.write_text(text)
    return str(path)


async def names_of(address: str, **settings: Any) -> list[str]:
    """The topics that an import with these settings finds."""
    cluster = SourceCluster(address, SourceSettings(timeout_ms=20_000, **settings))
    return [topic.name for topic in await cluster.topics([".*"])]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism_logs_in(kafka_cluster: Make, logins: Logins, tmp_path: Path, mechanism: str) -> None:
    source = await source_with_logins(kafka_cluster, logins)
    named = {"user": "alice", "password_file": secret_file(tmp_path)}
    if mechanism == "OAUTHBEARER":
        named = {"token_file": secret_file(tmp_path, logins.token())}

    assert await names_of(source.address, mechanism=mechanism, **named) == ["orders"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_said(kafka_cluster: Make, logins: Logins, tmp_path: Path, mechanism: str) -> None:
    source = await source_with_logins(kafka_cluster, logins)

    with pytest.raises(Denied, match="refuses the login of alice"):
        await names_of(source.address, mechanism=mechanism, user="alice", password_file=secret_file(tmp_path, "wrong"))


async def test_a_password_that_changes_is_read_again(kafka_cluster: Make, logins: Logins, tmp_path: Path) -> None:
    source = await source_with_logins(kafka_cluster, logins)
    file = secret_file(tmp_path, "wrong")
    settings = SourceSettings(mechanism="SCRAM-SHA-256", user="alice", password_file=file)
    cluster = SourceCluster(source.address, settings)
    with pytest.raises(Denied):
        await cluster.topics([".*"])
    secret_file(tmp_path)

    assert [topic.name for topic in await cluster.topics([".*"])] == ["orders"]


async def test_a_source_that_expects_a_login_or_has_another_mechanism_is_said(
    kafka_cluster: Make, logins: Logins, tmp_path: Path
) -> None:
    cluster = await kafka_cluster(1, authentication=logins.settings(mechanisms=["SCRAM-SHA-256"]))
    named = {"user": "alice", "password_file": secret_file(tmp_path)}

    with pytest.raises(Unavailable, match="does it expect a login"):
        await names_of(cluster[0].address)
    with pytest.raises(Invalid, match="with SCRAM-SHA-512; its mechanisms: SCRAM-SHA-256"):
        await names_of(cluster[0].address, mechanism="SCRAM-SHA-512", **named)


async def test_tls_is_verified_and_a_client_certificate_is_shown(
    kafka_cluster: Make, logins: Logins, certificates: dict[str, Path]
) -> None:
    files = {name: str(path) for name, path in certificates.items()}
    listener = ListenerSettings(
        tls_certificate_file=files["server"],
        tls_key_file=files["server_key"],
        tls_client_ca_file=files["authority"],
        mechanisms=[],
    )
    cluster = await kafka_cluster(1, listeners=[listener])
    await cluster[0].create("orders")
    address = cluster[0].address
    trust = {"tls": True, "tls_ca_file": files["authority"], "tls_server_name": "localhost"}
    own = {"tls_certificate_file": files["client"], "tls_key_file": files["client_key"]}

    assert await names_of(address, **trust, **own) == ["orders"]
    with pytest.raises(Denied, match="cannot be verified"):
        await names_of(address, tls=True, tls_server_name="localhost", **own)
    with pytest.raises(Denied, match="cannot be verified"):
        await names_of(address, **{**trust, "tls_server_name": "elsewhere"}, **own)
    with pytest.raises(Unavailable):
        await names_of(address, **trust)
    with pytest.raises(Unavailable, match="does it expect TLS"):
        await names_of(address)


async def test_tls_to_a_source_without_tls_is_said(kafka: Node) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        await names_of(kafka.address, tls=True)


def test_a_tls_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = secret_file(tmp_path, "no certificate")

    with pytest.raises(Invalid, match=r"cannot use .*secret for TLS"):
        SourceLogin(SourceSettings(tls=True, tls_ca_file=file))


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_no_secret_goes_to_another_machine_in_the_open(tmp_path: Path, mechanism: str) -> None:
    asked: list[object] = []

    async def ask(request: object) -> object:
        asked.append(request)
        return messages.SaslHandshakeResponse(error_code=33, mechanisms=[])

    file = secret_file(tmp_path)
    named: dict[str, Any] = {"mechanism": mechanism, "user": "alice", "password_file": file, "token_file": file}
    with pytest.raises(Denied, match="show the secret to everybody"):
        await SourceLogin(SourceSettings(**named)).log_in(ask, "192.0.2.1:9092", "192.0.2.1")
    assert asked == []
    for trusted in (SourceSettings(**named, tls=True), SourceSettings(**named, plain_without_tls=True)):
        with pytest.raises(Invalid, match="does not let clients log in"):
            await SourceLogin(trusted).log_in(ask, "192.0.2.1:9092", "192.0.2.1")
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("text", "expected"), [("", "expected a secret"), ("a\0b", "expected a secret"), (None, "cannot read")]
)
async def test_a_secret_file_without_a_secret_is_named(
    kafka_cluster: Make, logins: Logins, tmp_path: Path, text: str | None, expected: str
) -> None:
    source = await source_with_logins(kafka_cluster, logins)
    file = str(tmp_path / "missing") if text is None else secret_file(tmp_path, text)

    with pytest.raises(Invalid, match=rf"password_file.*{expected}"):
        await names_of(source.address, mechanism="PLAIN", user="alice", password_file=file)


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "PLAIN", "user": "alice"},
        {"mechanism": "OAUTHBEARER"},
        {"user": "alice"},
        {"tls_ca_file": "x"},
        {"tls": True, "tls_key_file": "x"},
        {"partition_bytes_max": 2, "fetch_bytes_max": 1},
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"need|larger"):
        SourceSettings(**settings)


def scram_server(password: str = "secret", iterations: int = 4096) -> Any:
    """The server's side of a SCRAM login of alice."""
    mechanism = ScramMechanism("SCRAM-SHA-256")
    keys = mechanism.make_auth_info(password, iteration_count=iterations)
    return mechanism.make_server(lambda _: keys)


def first_answer(server: Any, login: ScramLogin) -> bytes:
    """The server's first answer."""
    server.set_client_first(login.first().decode())
    return str(server.get_server_first()).encode()


def test_a_scram_server_that_does_not_know_the_password_is_not_believed() -> None:
    login, server = ScramLogin("SCRAM-SHA-256", "alice", "secret"), scram_server()
    server.set_client_final(login.prove(first_answer(server, login)).decode())
    good = str(server.get_server_final()).encode()

    login.finish(good)
    for bad in (b"v=AAAA", b"e=other-error", b"", b"v=\xc3\xa4", b"\xff", b"x" * 5000):
        other, twin = ScramLogin("SCRAM-SHA-256", "alice", "secret"), scram_server()
        other.prove(first_answer(twin, other))
        with pytest.raises((Denied, Corrupt)):
            other.finish(bad)


def test_a_scram_server_cannot_make_the_import_hash_for_long() -> None:
    login = ScramLogin("SCRAM-SHA-256", "alice", "secret")
    nonce = login.first().decode().partition("r=")[2]

    for count in (str(ITERATIONS_MAX + 1), "9" * 30, "0", "-1", "x", "", "\u0664"):
        with pytest.raises(Corrupt, match="iterations"):
            login.prove(f"r={nonce}more,s=AAAA,i={count}".encode())
    with pytest.raises(Corrupt, match="malformed"):
        login.prove(f"r=other,s=AAAA,i={ITERATIONS_MAX}".encode())


async def test_the_second_address_is_tried_if_the_first_does_not_answer(kafka: Node) -> None:
    await kafka.create("orders")

    assert await names_of(f"127.0.0.1:1,{kafka.address}") == ["orders"]
    with pytest.raises(Unavailable):
        await names_of("127.0.0.1:1,127.0.0.1:2")


async def test_a_broker_that_sends_nonsense_is_an_error_of_a_known_kind() -> None:
    answers = [b"", b"\0\0\0\4\0\0\0\1", b"\xff\xff\xff\xff", b"\0\0\0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n"]
    for answer in answers:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes = answer) -> None:
            await reader.read(1)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        with pytest.raises(BearlakeError) as refused:
            await names_of(f"{host}:{port}")
        server.close()
        await server.wait_closed()
        assert answer.startswith(b"HTTP") == ("it is an HTTP server, not a Kafka listener" in str(refused.value))
