"""Users of the metadata store, as logins see them: an unknown user looks the same on every server."""

from collections.abc import AsyncIterator

import pytest

from bearlake.metadata import Metadata
from bearlake.metadata.open import open_metadata
from bearlake.metadata.users import CredentialChange, ScramCredential
from bearlake.serving.authentication.credentials import create_credential, has_password
from bearlake.serving.authentication.users import StoredUsers
from fixtures.later_versions import store_credentials

SMALL, LARGE = "SCRAM-SHA-256", "SCRAM-SHA-512"


@pytest.fixture
async def metadata() -> AsyncIterator[Metadata]:
    store = await open_metadata("memory:///")
    yield store
    await store.close()


async def put(metadata: Metadata, user: str, *mechanisms: str) -> None:
    made = [create_credential(mechanism, "secret") for mechanism in mechanisms]
    changes = [CredentialChange(user, credential.mechanism, credential) for credential in made]
    await metadata.users.change(changes, revision=await metadata.users.revision())


async def test_a_user_is_found_by_mechanism_and_a_password_is_checked_against_the_strongest(metadata: Metadata) -> None:
    await put(metadata, "alice", SMALL, LARGE)
    await put(metadata, "bob", SMALL)
    users = StoredUsers(metadata.users)

    assert (await users.find("alice", SMALL)).mechanism == SMALL
    assert (await users.find_any("alice")).mechanism == LARGE
    assert has_password(await users.find_any("bob"), "secret")


async def test_changes_in_the_store_take_effect_at_once(metadata: Metadata) -> None:
    users = StoredUsers(metadata.users)
    await put(metadata, "alice", LARGE)
    assert has_password(await users.find("alice", LARGE), "secret")
    await metadata.users.change([CredentialChange("alice", LARGE, None)], revision=1)

    assert not has_password(await users.find("alice", LARGE), "secret")


async def test_a_user_with_a_credential_of_a_later_version_logs_in_by_the_others(metadata: Metadata) -> None:
    await put(metadata, "alice", SMALL)
    unknown = ScramCredential("SCRAM-BLAKE2", 4096, b"salt", b"stored", b"server")
    await store_credentials(metadata, [CredentialChange(user, unknown.mechanism, unknown) for user in ("alice", "bob")])
    users = StoredUsers(metadata.users)

    assert has_password(await users.find_any("alice"), "secret")
    assert not has_password(await users.find_any("bob"), "secret")


@pytest.mark.parametrize("user", ["ghost", "", "a\0b", "x" * 10_000])
async def test_an_unknown_user_looks_the_same_on_every_server_and_fits_no_password(
    metadata: Metadata, user: str
) -> None:
    first, second = StoredUsers(metadata.users), StoredUsers(metadata.users)
    found = [await users.find(user, SMALL) for users in (first, second, first)]

    assert len({(credential.salt, credential.iterations) for credential in found}) == 1
    assert not has_password(await first.find_any(user), "secret")
    await put(metadata, "alice", SMALL)
    real = await first.find("alice", SMALL)
    assert (real.iterations, len(real.salt)) == (found[0].iterations, len(found[0].salt))


async def test_a_mechanism_that_a_user_lacks_has_a_decoy(metadata: Metadata) -> None:
    await put(metadata, "alice", SMALL)
    assert not has_password(await StoredUsers(metadata.users).find("alice", LARGE), "secret")
