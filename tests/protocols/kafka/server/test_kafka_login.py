"""Logins of Kafka connections: what is served before and after, what a refused client sees, and when a login ends.

Source: KIP-152 (SaslAuthenticate), KIP-368 (re-authentication), KIP-255 (OAUTHBEARER).
"""

import json
import ssl
import time
from dataclasses import replace

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from scramp import ScramClient

from bearlake.metadata.users import CredentialChange
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.protocols.kafka.sasl import FRAME_BYTES_MAX
from bearlake.serving.authentication.credentials import create_credential
from bearlake.serving.authentication.settings import (
    MECHANISMS,
    AuthenticationSettings,
    FailureSettings,
    TokenSettings,
)
from bearlake.serving.listener import ListenerSettings
from bearlake.streams.principal import Principal
from bearlake.telemetry import metrics
from fixtures.kafka_server import batch_of, fetch_request, produce_request
from fixtures.waiting import until

ISSUER, AUDIENCE = "https://issuer.example", "bearlake"
KEY = ed25519.Ed25519PrivateKey.generate()
ALICE = Principal("User", "alice")


@pytest.fixture
def keys_file(tmp_path):
    key = jwt.get_algorithm_by_name("EdDSA").to_jwk(KEY.public_key(), as_dict=True)
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{**key, "kid": "k", "alg": "EdDSA", "use": "sig"}]}))
    return path


@pytest.fixture
def settings(keys_file):
    token = TokenSettings(issuer=ISSUER, audience=AUDIENCE, keys_file=str(keys_file))
    return AuthenticationSettings(mechanisms=list(MECHANISMS), token=token, login_ms=600_000)


@pytest.fixture
async def start(kafka_cluster, settings):
    """`await start(…)`: a server with the user alice (password "secret"); options change the settings of authentication."""

    async def begin(*, listener=ListenerSettings(), **changes):  # noqa: B008 - frozen
        cluster = await kafka_cluster(1, authentication=replace(settings, **changes), listeners=[listener])
        credentials = [create_credential(name, "secret") for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
        changes = [CredentialChange("alice", credential.mechanism, credential) for credential in credentials]
        await cluster.metadata.users.change(changes, revision=0)
        await cluster[0].create("t")
        return cluster[0]

    return begin


def token(**claims):
    full = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 3600, **claims}
    return jwt.encode(full, KEY, "EdDSA", headers={"kid": "k"})


async def choose(client, mechanism):
    return await client.ask(m.SaslHandshakeRequest(mechanism=mechanism), 1)


async def send(client, data, version=2):
    return await client.ask(m.SaslAuthenticateRequest(auth_bytes=data), version)


async def scram(client, mechanism="SCRAM-SHA-512", user="alice", password="secret"):
    assert (await choose(client, mechanism)).error_code == 0
    exchange = ScramClient([mechanism], user, password)
    first = await send(client, exchange.get_client_first().encode())
    assert first.error_code == 0
    exchange.set_server_first(first.auth_bytes.decode())
    return await send(client, exchange.get_client_final().encode())


async def plain(client, user="alice", password="secret"):
    assert (await choose(client, "PLAIN")).error_code == 0
    return await send(client, f"\0{user}\0{password}".encode())


async def bearer(client, text):
    assert (await choose(client, "OAUTHBEARER")).error_code == 0
    return await send(client, f"n,,\x01auth=Bearer {text}\x01\x01".encode())


LOGINS = {
    "SCRAM-SHA-256": lambda client: scram(client, "SCRAM-SHA-256"),
    "SCRAM-SHA-512": scram,
    "PLAIN": plain,
    "OAUTHBEARER": lambda client: bearer(client, token()),
}


def whom(node):
    """Who the server thinks is connected."""
    return [connection.who for connection in node.server.connections]


@pytest.mark.parametrize("mechanism", LOGINS)
async def test_a_client_that_logs_in_is_served_as_its_user(start, mechanism):
    node = await start()
    client = await node.client()
    await client.ask(m.ApiVersionsRequest(), 4)
    answer = await LOGINS[mechanism](client)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert 0 < answer.session_lifetime_ms <= 3_600_000
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0
    assert whom(node) == [ALICE]


@pytest.mark.parametrize(
    ("login", "code"),
    [
        (lambda client: scram(client, password="wrong"), ErrorCode.SASL_AUTHENTICATION_FAILED),
        (lambda client: scram(client, user="ghost"), ErrorCode.SASL_AUTHENTICATION_FAILED),
        (lambda client: plain(client, password="wrong"), ErrorCode.SASL_AUTHENTICATION_FAILED),
        (lambda client: plain(client, user="ghost"), ErrorCode.SASL_AUTHENTICATION_FAILED),
        (lambda client: choose(client, "GSSAPI"), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (lambda client: send(client, b"\0alice\0secret"), ErrorCode.ILLEGAL_SASL_STATE),
    ],
    ids=["SCRAM", "SCRAM ghost", "PLAIN", "PLAIN ghost", "mechanism", "no handshake"],
)
async def test_a_refused_client_gets_the_reason_and_is_disconnected(start, login, code):
    node = await start()
    client = await node.client()
    answer = await login(client)
    assert answer.error_code == code
    assert "secret" not in str(answer)
    assert await client.is_closed()


async def test_a_client_that_would_send_tokens_without_frames_is_refused(start):
    node = await start()
    client = await node.client()
    answer = await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert await client.is_closed()


async def test_a_refused_token_is_explained_and_the_client_disconnected_after_its_acknowledgement(start):
    node = await start()
    client = await node.client()
    first = await bearer(client, token(exp=int(time.time()) - 3600))
    assert (first.error_code, json.loads(first.auth_bytes)) == (0, {"status": "invalid_token"})
    answer = await send(client, b"\x01")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "expired" in answer.error_message
    assert await client.is_closed()


@pytest.mark.parametrize(
    "request_",
    [m.MetadataRequest(topics=None), m.ListGroupsRequest(), m.CreateTopicsRequest(topics=[])],
    ids=["Metadata", "ListGroups", "CreateTopics"],
)
async def test_nothing_else_is_answered_before_the_login(start, request_):
    node = await start()
    client = await node.client()
    client.send(request_, 4)
    assert await client.is_closed()


@pytest.mark.parametrize("topic", ["t"])
async def test_a_batch_that_is_sent_before_the_login_is_not_stored(start, topic):
    node = await start()
    client = await node.client()
    await choose(client, "SCRAM-SHA-512")
    with pytest.raises((EOFError, ConnectionError)):
        await client.produce(topic, batch_of(b"a"))
    friend = await node.client()
    await scram(friend)
    assert (await friend.list_offset(topic, -1)).offset == 0


async def test_a_batch_that_is_sent_together_with_a_wrong_password_is_not_stored(start):
    node = await start()
    client = await node.client()
    await choose(client, "PLAIN")
    client.send(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    client.send(produce_request("t", batch_of(b"a")), 9)
    assert (await client.receive()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed()
    friend = await node.client()
    await plain(friend)
    assert (await friend.list_offset("t", -1)).offset == 0


async def test_requests_sent_together_with_a_right_password_wait_for_it(start):
    node = await start()
    client = await node.client()
    client.send(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 2)
    client.send(m.MetadataRequest(topics=None), 12)
    assert [(await client.receive()).error_code for _ in range(2)] == [0, 0]
    assert [topic.name for topic in (await client.receive()).topics] == ["__consumer_offsets", "t"]


async def test_a_large_request_before_the_login_closes_the_connection_at_its_size(start):
    node = await start()
    client = await node.client()
    client.send_bytes((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert await client.is_closed()


@pytest.mark.parametrize("sends", [False, True])
async def test_a_client_that_does_not_log_in_is_disconnected_in_time(start, sends):
    before = metrics.KAFKA_CONNECTIONS_REFUSED.labels("slow_login").value
    node = await start(login_ms=50)
    client = await node.client()
    if sends:
        await client.ask(m.ApiVersionsRequest(), 4)
        await choose(client, "SCRAM-SHA-512")
    assert await client.is_closed()
    assert metrics.KAFKA_CONNECTIONS_REFUSED.labels("slow_login").value == before + 1


async def test_the_deadline_does_not_concern_a_client_that_has_logged_in(start):
    node = await start()
    client = await node.client()
    await plain(client)
    (connection,) = node.server.connections
    connection._close_unless_logged_in()  # noqa: SLF001 - the deadline; in real time, a slow login could miss it

    assert (await client.produce("t", batch_of(b"a"))).error_code == 0


async def test_a_login_that_has_ended_ends_the_connection_after_the_answers_before_it(start):
    node = await start()
    client = await node.client()
    await plain(client)
    (connection,) = node.server.connections
    batch = await client.produce("t", batch_of(b"a"))
    connection.session.ends_s = 0.0
    client.send(m.MetadataRequest(topics=None), 12)

    assert batch.error_code == 0
    assert await client.is_closed()


async def test_no_batch_is_stored_after_the_login_has_ended(start):
    node = await start()
    client = await node.client()
    await plain(client)
    for _ in range(3):
        assert (await client.produce("t", batch_of(b"a"))).error_code == 0
    (connection,) = node.server.connections
    connection.session.ends_s = 0.0
    with pytest.raises((EOFError, ConnectionError)):
        await client.produce("t", batch_of(b"late"))
    friend = await node.client()
    await plain(friend)
    assert (await friend.list_offset("t", -1)).offset == 3


async def test_a_client_may_log_in_again_before_and_after_the_end(start):
    node = await start()
    client = await node.client()
    assert (await bearer(client, token(groups=["a"]))).error_code == 0
    (connection,) = node.server.connections
    connection.session.ends_s = 0.0
    answer = await bearer(client, token(groups=["b"]))

    assert (answer.error_code, answer.session_lifetime_ms > 0) == (0, True)
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0
    assert [who.groups for who in whom(node)] == [{"b"}]


async def test_a_second_login_as_somebody_else_ends_the_connection(start):
    node = await start()
    client = await node.client()
    await bearer(client, token())
    answer = await bearer(client, token(sub="mallory"))

    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed()


async def test_a_second_login_by_another_mechanism_ends_the_connection(start):
    node = await start()
    client = await node.client()
    await plain(client)

    assert (await choose(client, "SCRAM-SHA-512")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.is_closed()


async def test_a_token_ends_the_session_when_it_expires(start):
    node = await start()
    client = await node.client()
    answer = await bearer(client, token(exp=int(time.time()) + 60))
    assert 0 < answer.session_lifetime_ms <= 60_000


async def test_too_many_failures_are_answered_so_that_clients_try_again_later(start):
    node = await start(failures=FailureSettings(per_address_max=2, window_ms=3_600_000))
    for _ in range(2):
        await plain(await node.client(), password="wrong")
    answer = await plain(await node.client())
    assert answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_deleted_user_cannot_log_in(start):
    node = await start()
    users = node.streams.metadata.users
    await users.change(
        [CredentialChange("alice", name, None) for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")], revision=1
    )
    assert (await plain(await node.client())).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (await scram(await node.client())).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_listener_without_logins_answers_as_kafka_does(start):
    node = await start(listener=ListenerSettings(anonymous=True))
    client = await node.client()
    assert (await choose(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await send(client, b"")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0
    assert [str(who) for who in whom(node)] == ["User:ANONYMOUS"]


async def test_a_login_that_has_begun_cannot_begin_again(start):
    """Otherwise one connection could look up any number of users, and none of them would count as a failed login."""
    node = await start()
    client = await node.client()
    await choose(client, "SCRAM-SHA-512")
    assert (await send(client, b"n,,n=ghost,r=nonce")).error_code == 0
    assert (await choose(client, "SCRAM-SHA-512")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.is_closed()


async def test_fetches_that_wait_behind_another_end_with_the_login(start):
    """A client may send many at once, each of which may wait for a minute."""
    node = await start(session_ms_max=500)
    alice = await node.client()
    assert (await plain(alice)).error_code == 0
    for offset in range(3):
        alice.send(fetch_request([("t", 0, offset)], wait_ms=60_000, bytes_min=1), 11)
    session = next(iter(node.server.connections)).session
    await until(lambda: not session.is_logged_in)
    bob = await node.client()
    assert (await plain(bob)).error_code == 0
    await bob.produce("t", batch_of(b"a", b"b", b"c"))

    assert (await alice.receive()).responses[0].partitions[0].records  # this one had begun
    assert await alice.reader.read() == b""


@pytest.fixture
def by_certificate(certificates):
    """A listener that wants client certificates, and the context of a client that has one."""
    listener = ListenerSettings(
        tls_certificate_file=str(certificates["server"]),
        tls_key_file=str(certificates["server_key"]),
        tls_client_ca_file=str(certificates["authority"]),
    )
    context = ssl.create_default_context(cafile=str(certificates["authority"]))
    context.load_cert_chain(certificates["client"], certificates["client_key"])
    return listener, context


async def test_a_client_certificate_is_a_login(start, by_certificate):
    listener, context = by_certificate
    node = await start(listener=listener, certificate_rules=["RULE:^CN=(.*)$/$1/"])
    client = await node.client(tls=context)
    assert (await client.produce("t", batch_of(b"a"))).error_code == 0
    assert whom(node) == [ALICE]


async def test_a_certificate_without_a_user_name_is_refused(start, by_certificate):
    listener, context = by_certificate
    node = await start(listener=listener, certificate_rules=["RULE:^UID=(.*)$/$1/"])
    client = await node.client(tls=context)
    client.send(m.MetadataRequest(topics=None), 12)
    assert await client.is_closed()


async def test_a_connection_by_certificate_ends_too(start, by_certificate):
    """Its certificate is verified again when the client connects."""
    listener, context = by_certificate
    node = await start(listener=listener, session_ms_max=100)
    client = await node.client(tls=context)
    assert await client.is_closed()
