# ruff: noqa: SLF001 - a bug is put into the step for one subject
"""Rounds of one server over its partitions, groups, listeners and consumer instances: a bug with one subject affects no other (I11)."""

from typing import Any

import pytest

from bearlake.errors import Conflict, Unavailable
from bearlake.metadata.model import Lease, ServerRef
from bearlake.metadata.open import open_metadata
from bearlake.protocols.pulsar.access import Access, Claim
from bearlake.serving.certificates import Certificates
from bearlake.streams.groups.abandoned_writes import AbandonedWrites
from bearlake.streams.groups.ownership import Ownership
from bearlake.streams.groups.problems import GroupRefusal, Problem
from bearlake.streams.groups.settings import GroupSettings
from bearlake.streams.tenure import Tenure
from bearlake.telemetry import metrics

SERVER = ServerRef(node_id=0, epoch=1)
LEASE = Lease(name="group/g", holder=SERVER, epoch=1)


class Doubted:
    """A lease that may be lost."""

    is_unverified = True


def fault_count(step: str) -> float:
    """How many bugs the metric counts for a step."""
    return metrics.CONTAINED_FAULTS.labels(step).value


@pytest.mark.parametrize(
    ("error", "confirmed"),
    [(KeyError("a bug"), [2, 3]), (Conflict("taken"), [2, 3]), (Unavailable("down"), [])],
    ids=["bug", "Conflict", "Unavailable"],
)
async def test_leases_of_exclusive_producers(
    monkeypatch: pytest.MonkeyPatch, error: Exception, confirmed: list[int]
) -> None:
    metadata = await open_metadata("memory:///")
    access = Access(metadata, Tenure(metadata.servers, SERVER))
    claims: Any = access._claims
    for partition in (1, 2, 3):
        claims[partition] = Claim()
        claims[partition].held = Doubted()
    done: list[int] = []

    async def confirm(partition: int) -> None:
        if partition == 1:
            raise error
        done.append(partition)

    monkeypatch.setattr(access, "confirm", confirm)
    await access.verify()

    assert done == confirmed
    await metadata.close()


async def test_abandoned_writes_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = await open_metadata("memory:///")
    writes = AbandonedWrites(metadata)
    done: list[str] = []

    async def finish(name: str) -> None:
        if name == "a":
            raise KeyError("a bug")
        done.append(name)

    for name in ("a", "b"):
        writes.add(name, LEASE)
    monkeypatch.setattr(writes, "finish", finish)
    before = fault_count("finish an abandoned write")
    await writes.try_to_finish_all()

    assert done == ["b"]
    assert fault_count("finish an abandoned write") == before + 1
    await metadata.close()


@pytest.mark.parametrize(
    ("error", "count"), [(KeyError("a bug"), 1), (GroupRefusal(Problem.NOT_COORDINATOR), 0)], ids=["bug", "refusal"]
)
async def test_a_bug_in_the_look_up_of_a_groups_lease_is_counted(
    monkeypatch: pytest.MonkeyPatch, error: Exception, count: int
) -> None:
    metadata = await open_metadata("memory:///")
    ownership = Ownership(metadata, SERVER, GroupSettings())
    owned: Any = type("Owned", (), {"held": Doubted()})()
    ownership.owned["g"] = owned

    async def confirm(*_: Any) -> None:
        raise error

    monkeypatch.setattr(ownership, "confirm", confirm)
    before = fault_count("verify a group")
    await ownership.verify()

    assert fault_count("verify a group") == before + count
    ownership.owned.clear()
    await ownership.close()
    await metadata.close()


def test_certificates_of_listeners() -> None:
    renewed: list[str] = []

    class Kept:
        def __init__(self, name: str) -> None:
            self.name = name

        def renew(self) -> None:
            if self.name == "a":
                raise KeyError("a bug")
            renewed.append(self.name)

    certificates = Certificates()
    kept: Any = certificates._watched
    kept += [Kept("a"), Kept("b")]
    certificates.renew()

    assert renewed == ["b"]
