"""`bearlake quota`: quotas are set, listed and deleted in the metadata store."""

import asyncio
import json
from pathlib import Path

import pytest

from bearlake.cli.main import run
from bearlake.metadata.open import open_metadata
from bearlake.metadata.quotas import DEFAULT, Entity, Quota, QuotaKey


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    """Options that name an empty store."""
    return ["--metadata-url", f"sqlite://{tmp_path}/metadata.db", "--object-store-url", f"file://{tmp_path}/objects"]


async def stored(where: list[str]) -> set[Quota]:
    metadata = await open_metadata(where[1])
    try:
        return set((await metadata.quotas.read()).quotas)
    finally:
        await metadata.close()


def test_the_help_names_every_quota(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quota", "set", "--help"]) == 0
    shown = capsys.readouterr().out
    assert [key.value for key in QuotaKey if key.value not in shown] == []


def test_quotas_are_set_listed_and_deleted(where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    both = ["producer_byte_rate=1e6", "request_percentage=12.5"]
    assert run(["quota", "set", "--user", "alice", "--client-id-default", *both, *where]) == 0
    assert run(["quota", "set", "--ip-default", "connection_creation_rate=10", *where]) == 0
    alice = Entity(user="alice", client_id=DEFAULT)
    limited = Quota(Entity(address=DEFAULT), QuotaKey.CONNECTION_CREATION_RATE, 10.0)
    produce = Quota(alice, QuotaKey.PRODUCER_BYTE_RATE, 1e6)
    assert asyncio.run(stored(where)) == {produce, Quota(alice, QuotaKey.REQUEST_PERCENTAGE, 12.5), limited}

    capsys.readouterr()
    assert run(["quota", "list", "--json", *where]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {
        "user": "alice",
        "client_id": "<default>",
        "ip": "",
        "quota": "request_percentage",
        "value": 12.5,
    } in shown
    assert len(shown) == 3
    assert run(["quota", "list", *where]) == 0
    assert "1000000" in capsys.readouterr().out

    assert run(["quota", "delete", "--user", "alice", "--client-id-default", "request_percentage", *where]) == 0
    assert asyncio.run(stored(where)) == {produce, limited}
    assert run(["quota", "delete", "--user", "alice", "--client-id-default", *where]) == 0
    assert asyncio.run(stored(where)) == {limited}


@pytest.mark.parametrize(
    "wrong",
    [
        ["producer_byte_rate=1"],
        ["--user", "a", "--user-default", "producer_byte_rate=1"],
        ["--user", "a", "--ip", "10.0.0.1", "producer_byte_rate=1"],
        ["--user", "a", "connection_creation_rate=1"],
        ["--ip", "example.com", "connection_creation_rate=1"],
        ["--user", "a", "producer_byte_rate"],
        ["--user", "a", "producer_byte_rate=many"],
        ["--user", "a", "producer_byte_rate=0"],
        ["--user", "a", "producer_byte_rate=nan"],
        ["--user", "a", "bytes=1"],
        ["--user", "a", "producer_byte_rate=1", "producer_byte_rate=2"],
    ],
    ids=" ".join,
)
def test_an_invalid_quota_is_refused(where: list[str], wrong: list[str]) -> None:
    assert run(["quota", "set", *wrong, *where]) == 2
