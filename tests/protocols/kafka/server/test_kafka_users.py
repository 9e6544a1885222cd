"""DescribeUserScramCredentials and AlterUserScramCredentials: codes as Kafka's, and what a change means for logins.

Source: KIP-554.
"""

import hashlib

import pytest

from bearlake.metadata.users import CredentialChange, ScramCredential
from bearlake.protocols.kafka import messages as m
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.serving.authentication.credentials import create_credential
from bearlake.serving.authentication.settings import AuthenticationSettings
from bearlake.streams.access.control import AccessSettings
from fixtures.later_versions import store_credentials
from fixtures.logins import LOGIN_MS

ALTER, DESCRIBE = m.AlterUserScramCredentialsRequest, m.DescribeUserScramCredentialsRequest
SMALL, LARGE = 1, 2
SALT = b"0123456789abcdef"


@pytest.fixture
async def node(kafka_cluster):
    """A server with the super user alice and the user bob, password "secret" each."""
    settings, access = (
        AuthenticationSettings(mechanisms=["PLAIN"], login_ms=LOGIN_MS),
        AccessSettings(super_users=["User:alice"]),
    )
    cluster = await kafka_cluster(1, authentication=settings, access=access)
    credential = create_credential("SCRAM-SHA-512", "secret")
    changes = [CredentialChange(name, credential.mechanism, credential) for name in ("alice", "bob")]
    await cluster.metadata.users.change(changes, revision=0)
    return cluster[0]


async def logged_in(node, user, password="secret"):
    client = await node.client()
    await client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = await client.ask(m.SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)
    return client if answer.error_code == 0 else None


def put(name="carol", mechanism=SMALL, password="new", iterations=4096, salt=SALT, salted=None):
    kind = {SMALL: "sha256", LARGE: "sha512"}.get(mechanism, "sha256")
    made = hashlib.pbkdf2_hmac(kind, password.encode(), salt, iterations) if salted is None else salted
    return ALTER.Upsertion(name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=made)


def drop(name="carol", mechanism=SMALL):
    return ALTER.Deletion(name=name, mechanism=mechanism)


async def alter(client, *alterations):
    deletions = [change for change in alterations if isinstance(change, ALTER.Deletion)]
    upsertions = [change for change in alterations if isinstance(change, ALTER.Upsertion)]
    answer = await client.ask(ALTER(deletions=deletions, upsertions=upsertions), 0)
    return [(result.user, result.error_code) for result in answer.results]


async def describe(client, *names):
    users = [DESCRIBE.User(name=name) for name in names] or None
    answer = await client.ask(DESCRIBE(users=users), 0)
    assert answer.error_code == 0
    return [
        (result.user, result.error_code, [(info.mechanism, info.iterations) for info in result.credential_infos])
        for result in answer.results
    ]


async def test_a_user_that_a_super_user_makes_logs_in_until_it_is_deleted(node):
    admin = await logged_in(node, "alice")
    for credential in (put(), put(mechanism=LARGE, iterations=8192)):
        assert await alter(admin, credential) == [("carol", 0)]
    assert await describe(admin, "carol") == [("carol", 0, [(SMALL, 4096), (LARGE, 8192)])]
    assert await logged_in(node, "carol", "new")
    for alteration in (put(mechanism=LARGE, password="newer"), drop()):
        assert await alter(admin, alteration) == [("carol", 0)]
    assert await logged_in(node, "carol", "new") is None
    assert await logged_in(node, "carol", "newer")
    assert await alter(admin, drop(mechanism=LARGE)) == [("carol", 0)]
    assert await logged_in(node, "carol", "newer") is None
    assert [user for user, _, _ in await describe(admin)] == ["alice", "bob"]


async def test_only_super_users_list_and_change_users(node):
    bob = await logged_in(node, "bob")
    assert await alter(bob, put("alice"), drop("bob", LARGE)) == [
        ("bob", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("alice", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ]
    answer = await bob.ask(DESCRIBE(users=None), 0)
    assert (answer.error_code, answer.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    assert await logged_in(node, "bob")


async def test_a_listener_without_logins_lets_nobody_change_users(kafka):
    client = await kafka.client()
    assert await alter(client, put()) == [("carol", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    described = await client.ask(DESCRIBE(users=None), 0)
    assert described.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "`bearlake user`" in described.error_message


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([put(name="")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([put(name="ANONYMOUS")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([put(mechanism=0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([drop(mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([put(iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([put(iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([put(salt=b"short")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([put(salted=b"short")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([put(), put()], ErrorCode.DUPLICATE_RESOURCE),
        ([put(), put(mechanism=LARGE)], ErrorCode.DUPLICATE_RESOURCE),
        ([put(), put(mechanism=LARGE), put()], ErrorCode.DUPLICATE_RESOURCE),
        ([put(), put(mechanism=LARGE, iterations=1)], ErrorCode.DUPLICATE_RESOURCE),
        ([put(iterations=1), put(mechanism=LARGE)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([drop()], ErrorCode.RESOURCE_NOT_FOUND),
        ([put(), drop()], ErrorCode.RESOURCE_NOT_FOUND),
        ([put(mechanism=LARGE), drop()], ErrorCode.RESOURCE_NOT_FOUND),
        ([drop(mechanism=3), put()], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
async def test_a_wrong_alteration_changes_nothing_of_its_user(node, alterations, code):
    admin = await logged_in(node, "alice")
    name = alterations[0].name
    assert sorted(await alter(admin, *alterations, put("dave"))) == sorted([(name, code), ("dave", 0)])
    assert [user for user, _, _ in await describe(admin)] == ["alice", "bob", "dave"]


@pytest.mark.parametrize("second", [drop("bob"), drop("bob", LARGE), put("bob"), put("bob", LARGE)])
async def test_a_user_is_altered_once_in_a_request_whatever_the_mechanism(node, second):
    """Source: KIP-554; `ScramControlManager.alterCredentials`, which looks at deletions first."""
    admin = await logged_in(node, "alice")

    answer = await alter(admin, drop("bob", LARGE), second, put("dave"))

    assert sorted(answer) == [("bob", ErrorCode.DUPLICATE_RESOURCE), ("dave", 0)]
    assert await logged_in(node, "bob")


async def test_unknown_and_repeated_users_have_different_errors(node):
    admin = await logged_in(node, "alice")
    assert await describe(admin, "bob", "ghost", "alice", "bob") == [
        ("bob", ErrorCode.DUPLICATE_RESOURCE, []),
        ("ghost", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("alice", 0, [(LARGE, 4096)]),
    ]


async def test_credentials_of_a_later_version_are_left_out(node):
    client = await logged_in(node, "alice")
    unknown = ScramCredential("SCRAM-BLAKE2", 4096, b"salt", b"stored", b"server")
    await store_credentials(node.streams.metadata, [CredentialChange("bob", unknown.mechanism, unknown)])

    (result,) = (await client.ask(DESCRIBE(users=[DESCRIBE.User(name="bob")]), 0)).results
    assert [info.mechanism for info in result.credential_infos] == [LARGE]
