"""A target whose broker with the ledger goes away while an export follows: another broker leads the ledger from then on."""

import asyncio
from contextlib import suppress

from bearlake.app.exporting import ExportOptions, export_topics
from bearlake.exporting.settings import ExportSettings, ExportSourceSettings, ExportTargetSettings
from bearlake.importing.cluster import SourceCluster
from bearlake.importing.settings import CopySettings
from bearlake.settings.document import Settings
from fixtures.kafka_server import Cluster, Make, batch_of
from fixtures.waiting import WAIT_S

TARGET = ExportTargetSettings(fetch_wait_ms=20)
SETTINGS = Settings(
    exports=ExportSettings(
        source=ExportSourceSettings(fetch_wait_ms=20),
        target=TARGET,
        copy=CopySettings(pause_ms=10, refresh_ms=1_000),
    )
)


async def ended_at(target: Cluster, end: int) -> None:
    """Return once topic `t` of the target ends at this offset."""
    async with asyncio.timeout(WAIT_S):
        while await end_of(target) != end:  # noqa: ASYNC110 - the store wakes nobody for this
            await asyncio.sleep(0.02)


async def end_of(target: Cluster) -> int | None:
    for stream in await target.metadata.streams.list(prefix="t"):
        partition = stream.partition(0)
        return (await target.metadata.log.bounds([partition]))[partition].end
    return None


async def test_an_export_follows_the_ledger_to_another_broker(kafka_cluster: Make) -> None:
    source, target = (await kafka_cluster())[0], await kafka_cluster(2)
    await source.create("t")
    producer = await source.client()
    await producer.produce("t", batch_of(b"a", b"b"))
    bootstrap = f"{target[0].address},{target[1].address}"
    options = ExportOptions(source=source.address, target=bootstrap, patterns=["t"], follow=True)
    exporting = asyncio.ensure_future(export_topics(SETTINGS, options))
    await ended_at(target, 2)
    ledger = await SourceCluster(bootstrap, TARGET).topic(TARGET.ledger_topic)
    assert ledger is not None

    assert len(set(ledger.leaders) & {node.address for node in target.nodes}) == 1
    await target.kill([node.address for node in target.nodes].index(ledger.leaders[0]))
    await producer.produce("t", batch_of(b"c"))

    await ended_at(target, 3)
    exporting.cancel()
    with suppress(asyncio.CancelledError):
        await exporting
