"""SCRAM logins: the published example exchanges, an independent client, and what a wrong password or a malformed message gets.

Source: RFC 7677 section 3 (example exchange of SCRAM-SHA-256).
"""

import base64
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramClient, ScramException

from bearlake.errors import Denied, Invalid
from bearlake.metadata.users import SCRAM_HASHES
from bearlake.serving.authentication.credentials import (
    create_credential,
    decoy_credential,
    from_salted_password,
    has_password,
)
from bearlake.serving.authentication.scram import MESSAGE_BYTES_MAX, ScramExchange
from fixtures.users import DECOY_KEY, Users

SMALL_WORLD = Users({"alice": "secret"})
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


async def log_in(users: Users, mechanism: str, user: str, password: str) -> ScramExchange:
    exchange = ScramExchange(mechanism, users)
    client = ScramClient([mechanism], user, password)
    client.set_server_first((await exchange.answer(client.get_client_first().encode())).decode())
    client.set_server_final((await exchange.answer(client.get_client_final().encode())).decode())
    return exchange


def test_the_credential_of_rfc_7677_checks_its_password_and_no_other() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", RFC_SALT, 4096)
    credential = from_salted_password("SCRAM-SHA-256", 4096, RFC_SALT, salted)
    # the server's signature of the example is HMAC(server key, its messages)
    messages = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    import hmac

    signature = hmac.digest(credential.server_key, messages, "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert has_password(credential, "pencil")
    assert not has_password(credential, "Pencil")


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
async def test_a_client_with_the_password_logs_in(mechanism: str) -> None:
    exchange = await log_in(Users({"alice": "correct horse"}), mechanism, "alice", "correct horse")
    assert exchange.is_complete
    assert exchange.user == "alice"


async def test_names_with_commas_and_equals_signs_are_read_back() -> None:
    assert (await log_in(Users({"a=b,c": "secret"}), "SCRAM-SHA-512", "a=b,c", "secret")).user == "a=b,c"


@pytest.mark.parametrize("mechanism", SCRAM_HASHES)
@pytest.mark.parametrize("user", ["alice", "nobody-knows-me"])
async def test_a_wrong_password_and_an_unknown_user_get_the_same_answers(mechanism: str, user: str) -> None:
    with pytest.raises(Denied, match="user name or the password is wrong"):
        await log_in(Users({"alice": "correct horse"}), mechanism, user, "wrong")


def test_an_unknown_user_has_the_same_salt_on_every_server() -> None:
    first, second = (decoy_credential("SCRAM-SHA-256", "ghost", DECOY_KEY) for _ in range(2))
    assert (first.salt, first.iterations) == (second.salt, second.iterations)
    assert first.salt != decoy_credential("SCRAM-SHA-256", "ghost", b"another deployment").salt
    assert not has_password(first, "")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"n,,",
        b"n,,n=,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=alice",
        b"x" * (MESSAGE_BYTES_MAX + 1),
    ],
)
async def test_a_malformed_first_message_is_denied(message: bytes) -> None:
    with pytest.raises(Denied):
        await ScramExchange("SCRAM-SHA-256", Users({"alice": "secret"})).answer(message)


async def test_no_login_succeeds_after_a_failure() -> None:
    exchange = ScramExchange("SCRAM-SHA-256", Users({"alice": "secret"}))
    client = ScramClient(["SCRAM-SHA-256"], "alice", "secret")
    client.set_server_first((await exchange.answer(client.get_client_first().encode())).decode())
    with pytest.raises(Denied):
        await exchange.answer(b"c=biws,r=abc,p=AAAA")
    with pytest.raises(Denied):
        await exchange.answer(client.get_client_final().encode())
    assert not exchange.is_complete


async def test_a_client_notices_a_server_that_does_not_know_the_password() -> None:
    """A credential stolen from one mechanism cannot impersonate the server of another."""
    users = Users({"alice": "secret"})
    credential = await users.find("alice", "SCRAM-SHA-256")
    users.credentials["alice", "SCRAM-SHA-256"] = type(credential)(
        credential.mechanism, credential.iterations, credential.salt, credential.stored_key, bytes(32)
    )
    with pytest.raises(ScramException):
        await log_in(users, "SCRAM-SHA-256", "alice", "secret")


def test_a_credential_shows_no_key() -> None:
    credential = create_credential("SCRAM-SHA-256", "secret")
    assert credential.stored_key.hex() not in repr(credential)
    assert repr(credential) == "ScramCredential(mechanism='SCRAM-SHA-256', iterations=4096)"


@pytest.mark.parametrize(
    ("mechanism", "password", "iterations"),
    [
        ("SCRAM-SHA-1", "secret", 4096),
        ("SCRAM-SHA-256", "secret", 4095),
        ("SCRAM-SHA-256", "secret", 16_385),
        ("SCRAM-SHA-256", "", 4096),
        ("SCRAM-SHA-256", "x" * 1_025, 4096),
    ],
)
def test_bad_credentials_are_refused(mechanism: str, password: str, iterations: int) -> None:
    with pytest.raises(Invalid):
        create_credential(mechanism, password, iterations)


@settings(max_examples=300, deadline=None)
@given(
    edits=st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3)), min_size=1, max_size=4), first=st.booleans()
)
async def test_a_damaged_message_is_denied_or_harmless(edits: list[tuple[int, bytes]], first: bool) -> None:
    def damaged(message: bytes) -> bytes:
        for position, piece in edits:
            message = message[:position] + piece + message[position + 1 :]
        return message

    exchange = ScramExchange("SCRAM-SHA-256", SMALL_WORLD)
    client = ScramClient(["SCRAM-SHA-256"], "alice", "secret")
    message = client.get_client_first().encode()
    try:
        client.set_server_first((await exchange.answer(damaged(message) if first else message)).decode())
        final = client.get_client_final().encode()
        await exchange.answer(final if first else damaged(final))
    except (Denied, ScramException):
        assert not exchange.is_complete
    else:
        assert exchange.user == "alice"
