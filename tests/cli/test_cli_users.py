"""`bearlake user`: users are created, listed and deleted in the metadata store; a password is never on the command line."""

import asyncio
import json
from pathlib import Path

import pytest

from bearlake.cli.main import run
from bearlake.metadata.open import open_metadata
from bearlake.metadata.users import SCRAM_HASHES, CredentialChange, ScramCredential, User
from bearlake.serving.authentication.credentials import has_password
from fixtures.later_versions import store_credentials


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    """Options that name an empty store."""
    return ["--metadata-url", f"sqlite://{tmp_path}/metadata.db", "--object-store-url", f"file://{tmp_path}/objects"]


async def stored(where: list[str], name: str) -> User | None:
    metadata = await open_metadata(where[1])
    try:
        return await metadata.users.get(name)
    finally:
        await metadata.close()


def test_a_user_gets_the_password_of_the_environment_in_every_mechanism(
    where: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BEARLAKE_USER_PASSWORD", "correct horse")
    assert run(["user", "create", "alice", *where]) == 0
    assert "correct horse" not in "".join(capsys.readouterr())

    user = asyncio.run(stored(where, "alice"))
    assert user is not None
    assert [credential.mechanism for credential in user.credentials] == list(SCRAM_HASHES)
    assert all(has_password(credential, "correct horse") for credential in user.credentials)


def test_a_password_file_may_end_with_a_line(where: list[str], tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from a file\n")
    assert run(["user", "create", "alice", "--password-file", str(tmp_path / "password"), *where]) == 0

    user = asyncio.run(stored(where, "alice"))
    assert user is not None
    assert has_password(user.credentials[0], "from a file")


def test_users_are_replaced_listed_and_deleted(
    where: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BEARLAKE_USER_PASSWORD", "a")
    assert run(["user", "create", "alice", *where]) == 0
    assert run(["user", "create", "alice", *where]) == 1
    assert "--replace" in capsys.readouterr().err
    assert run(["user", "create", "alice", "--replace", *where]) == 0
    capsys.readouterr()
    assert run(["user", "list", "--json", *where]) == 0
    assert [user["name"] for user in json.loads(capsys.readouterr().out)] == ["alice"]
    assert run(["user", "list", *where]) == 0
    assert "alice  SCRAM-SHA-256, SCRAM-SHA-512  4096, 4096" in capsys.readouterr().out
    assert run(["user", "delete", "alice", *where]) == 0
    assert run(["user", "delete", "alice", *where]) == 1
    capsys.readouterr()
    assert run(["user", "list", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("name", ["", "ANONYMOUS", "x" * 257])
def test_an_invalid_user_name_is_refused(where: list[str], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("BEARLAKE_USER_PASSWORD", "a")
    assert run(["user", "create", name, *where]) == 2


def test_the_command_line_takes_no_password(where: list[str]) -> None:
    assert run(["user", "create", "alice", "--password", "secret", *where]) == 2


async def add_later(where: list[str], *names: str) -> None:
    metadata = await open_metadata(where[1])
    unknown = ScramCredential("SCRAM-BLAKE2", 4096, b"salt", b"stored", b"server")
    await store_credentials(metadata, [CredentialChange(name, unknown.mechanism, unknown) for name in names])
    await metadata.close()


def test_a_new_password_and_a_deletion_leave_no_credential_of_a_later_version(
    where: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BEARLAKE_USER_PASSWORD", "a")
    asyncio.run(add_later(where, "alice", "bob"))
    assert run(["user", "list", *where]) == 0
    assert "SCRAM-BLAKE2" in capsys.readouterr().out
    assert run(["user", "create", "alice", "--replace", *where]) == 0
    assert run(["user", "delete", "bob", *where]) == 0

    user = asyncio.run(stored(where, "alice"))
    assert user is not None
    assert [credential.mechanism for credential in user.credentials] == list(SCRAM_HASHES)
    assert asyncio.run(stored(where, "bob")) is None
