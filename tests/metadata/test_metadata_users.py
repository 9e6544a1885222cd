"""Behaviour of every metadata store: users and their SCRAM credentials."""

import asyncio

import pytest

from bearlake.errors import Conflict, Invalid
from bearlake.metadata import Metadata
from bearlake.metadata.users import (
    CREDENTIAL_CHANGES_MAX,
    DECOY_KEY_BYTES,
    USER_NAME_BYTES_MAX,
    CredentialChange,
    ScramCredential,
    User,
)
from fixtures.later_versions import store_credentials

SMALL, LARGE = "SCRAM-SHA-256", "SCRAM-SHA-512"


def credential(mechanism: str = SMALL, salt: bytes = b"\0salt\xff") -> ScramCredential:
    return ScramCredential(mechanism, 4096, salt, b"stored" + salt, b"server" + salt)


def put(user: str, mechanism: str = SMALL, salt: bytes = b"\0salt\xff") -> CredentialChange:
    return CredentialChange(user, mechanism, credential(mechanism, salt))


def drop(user: str, mechanism: str = SMALL) -> CredentialChange:
    return CredentialChange(user, mechanism, None)


async def test_every_server_reads_a_user_as_it_was_stored(metadata: Metadata, peer: Metadata) -> None:
    assert await metadata.users.get("alice") is None

    assert await metadata.users.change([put("alice", LARGE), put("alice"), put("Zoë,=")], revision=0) == 1

    alice = User("alice", [credential(SMALL), credential(LARGE)])
    assert await peer.users.get("alice") == alice
    assert await peer.users.list() == [User("Zoë,=", [credential()]), alice]
    assert await peer.users.revision() == 1


async def test_credentials_are_replaced_and_deleted_one_by_one(metadata: Metadata, peer: Metadata) -> None:
    await metadata.users.change([put("alice"), put("alice", LARGE), put("bob")], revision=0)

    await peer.users.change([put("alice", salt=b"new"), drop("alice", LARGE), drop("bob"), drop("ghost")], revision=1)

    assert await metadata.users.list() == [User("alice", [credential(salt=b"new")])]
    assert await metadata.users.get("bob") is None


async def test_users_are_listed_by_code_point_in_pages(metadata: Metadata) -> None:
    names = ["B", "a", "b", "é", "中"]
    await metadata.users.change([put(name, mechanism) for name in names for mechanism in (SMALL, LARGE)], revision=0)
    found: list[User] = []
    while page := await metadata.users.list(after=found[-1].name if found else "", limit=2):
        assert len(page) <= 2
        found += page

    assert [user.name for user in found] == names
    assert all(len(user.credentials) == 2 for user in found)


async def test_a_credential_of_a_later_version_is_read_and_can_be_deleted(metadata: Metadata, peer: Metadata) -> None:
    await store_credentials(metadata, [put("alice"), put("alice", "SCRAM-SHA3-512")])
    assert await peer.users.get("alice") == User("alice", [credential(), credential("SCRAM-SHA3-512")])

    await peer.users.change([drop("alice"), drop("alice", "SCRAM-SHA3-512")], revision=1)
    assert await metadata.users.get("alice") is None


@pytest.mark.parametrize("revision", [0, 1, 3])
async def test_a_change_decided_on_another_revision_is_refused(metadata: Metadata, revision: int) -> None:
    await metadata.users.change([put("alice")], revision=0)
    await metadata.users.change([drop("alice")], revision=1)

    with pytest.raises(Conflict):
        await metadata.users.change([put("bob"), put("alice")], revision=revision)
    assert await metadata.users.list() == []
    assert await metadata.users.revision() == 2


async def test_a_late_change_cannot_bring_back_a_deleted_user(metadata: Metadata, peer: Metadata) -> None:
    """A process decided to create the user when there was none; meanwhile another process created the user and deleted it again."""
    revision = await metadata.users.revision()
    await peer.users.change([put("mallory")], revision=revision)
    await peer.users.change([drop("mallory")], revision=revision + 1)

    with pytest.raises(Conflict):
        await metadata.users.change([put("mallory")], revision=revision)
    assert await peer.users.get("mallory") is None


async def test_one_of_many_concurrent_changes_wins(metadata: Metadata, peer: Metadata) -> None:
    handles = [metadata, peer] * 5
    changes = (handle.users.change([put(f"user-{n}")], revision=0) for n, handle in enumerate(handles))
    results = await asyncio.gather(*changes, return_exceptions=True)

    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 9
    assert len(await metadata.users.list()) == 1


@pytest.mark.parametrize(
    "changes",
    [
        [put("")],
        [put("a\0b")],
        [put("\ud800")],
        [drop("x" * (USER_NAME_BYTES_MAX + 1))],
        [put("alice", "SCRAM-SHA-1")],
        [drop("alice", "")],
        [CredentialChange("alice", SMALL, credential(LARGE))],
        [put("alice"), drop("alice")],
        [put(f"user-{n}") for n in range(CREDENTIAL_CHANGES_MAX + 1)],
    ],
    ids=["empty", "NUL", "surrogate", "long", "mechanism", "no mechanism", "other mechanism", "twice", "many"],
)
async def test_changes_that_no_store_can_keep_are_invalid(metadata: Metadata, changes: list[CredentialChange]) -> None:
    with pytest.raises(Invalid):
        await metadata.users.change([put("bob"), *changes], revision=0)
    assert await metadata.users.revision() == 0


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * (USER_NAME_BYTES_MAX + 1)])
async def test_an_invalid_user_name_finds_no_user(metadata: Metadata, name: str) -> None:
    assert await metadata.users.get(name) is None


async def test_all_servers_have_one_decoy_key(metadata: Metadata, peer: Metadata) -> None:
    keys = await asyncio.gather(*(handle.users.decoy_key() for handle in [metadata, peer] * 5))

    assert len(set(keys)) == 1
    assert len(keys[0]) == DECOY_KEY_BYTES
    assert await peer.users.decoy_key() == keys[0]


async def test_each_deployment_has_its_own_decoy_key(metadata: Metadata, backend: object) -> None:
    other = await (await backend.fresh()).open()  # type: ignore[attr-defined]

    assert await other.users.decoy_key() != await metadata.users.decoy_key()
