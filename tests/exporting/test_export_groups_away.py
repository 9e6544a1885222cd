"""Coordinators of groups that are away for a moment, as on a new Kafka cluster: a copy that ends waits for them."""

import asyncio
from typing import Any

import pytest

from bearlake.app.exporting import Exported, ExportOptions, export_topics
from bearlake.errors import Overloaded
from bearlake.exporting.settings import ExportSettings, ExportSourceSettings, ExportTargetSettings
from bearlake.importing.cluster import Connections, SourceCluster
from bearlake.importing.settings import CopySettings, SourceSettings
from bearlake.importing.source_groups import Coordinators
from bearlake.settings.document import Settings
from bearlake.streams.groups.problems import GroupRefusal, Problem
from fixtures import copied_records
from fixtures.kafka_server import Make, Node, batch_of

SETTINGS = Settings(
    exports=ExportSettings(
        source=ExportSourceSettings(fetch_wait_ms=20),
        target=ExportTargetSettings(fetch_wait_ms=20),
        copy=CopySettings(pause_ms=10),
    )
)


def refuse(node: Node, method: str, problem: Problem, count: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let a server refuse the first calls of a method of its coordinator; returns the list of all calls."""
    coordinator: Any = node.streams.coordinator
    real, calls = getattr(coordinator, method), []

    async def refused(*given: Any, **named: Any) -> Any:
        calls.append(given)
        if len(calls) <= count:
            raise GroupRefusal(problem)
        return await real(*given, **named)

    monkeypatch.setattr(coordinator, method, refused)
    return calls


async def with_groups(source: Node, count: int) -> None:
    """Make a stream with two records, and groups that have read one."""
    await source.create("orders")
    client = await source.client()
    for value in (b"1", b"2"):
        await client.produce("orders", batch_of(value))
    for number in range(count):
        await asyncio.to_thread(copied_records.commit, source.address, f"g{number}", "orders", 0, 1)


async def exported(source: Node, target: Node) -> Exported:
    """Export the stream with its groups."""
    options = ExportOptions(source=source.address, target=target.address, patterns=["orders"], groups=True)
    return await export_topics(SETTINGS, options)


@pytest.mark.parametrize("problem", [Problem.NOT_COORDINATOR, Problem.COORDINATOR_UNAVAILABLE])
@pytest.mark.parametrize(
    ("is_target", "method"), [(False, "offsets"), (True, "offsets"), (True, "commit")], ids=["read", "look", "write"]
)
async def test_groups_are_moved_although_their_coordinators_are_away_at_first(
    kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch, problem: Problem, is_target: bool, method: str
) -> None:
    source, target = (await kafka_cluster())[0], (await kafka_cluster())[0]
    await with_groups(source, 3)
    calls = refuse(target if is_target else source, method, problem, 5, monkeypatch)

    found = await exported(source, target)

    assert found.refused_groups == {}
    assert found.groups == ["g0", "g1", "g2"]
    assert len(calls) == 5 + 3
    for group in found.groups:
        assert await asyncio.to_thread(copied_records.committed, target.address, group, "orders") == [1]


async def test_a_round_waits_for_all_its_coordinators_together(
    kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (await kafka_cluster())[0]
    await with_groups(source, 2)
    calls = refuse(source, "offsets", Problem.COORDINATOR_UNAVAILABLE, 1_000_000, monkeypatch)
    cluster = SourceCluster(source.address, SourceSettings())
    await cluster.topics(["orders"])

    async with Connections(cluster) as connections:
        coordinators = Coordinators(cluster, connections, wait_ms=250)
        for count in (4, 5):
            with pytest.raises(Overloaded, match="COORDINATOR_NOT_AVAILABLE"):
                await coordinators.offsets(f"g{count - 4}")
            assert len(calls) == count
        with pytest.raises(Overloaded):
            await Coordinators(cluster, connections, wait_ms=0).offsets("g0")

    assert len(calls) == 6
