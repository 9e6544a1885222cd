"""A batch of a killed export that arrives after the next export has read where the target ends, while the source deletes what is in it."""

from collections.abc import Mapping, Sequence

import pytest
from typing_extensions import override

from bearlake.app import exporting
from bearlake.app.exporting import ExportOptions, export_topics
from bearlake.errors import Conflict, Fenced
from bearlake.exporting.batches import Outgoing, sign
from bearlake.exporting.ledger import Place
from bearlake.exporting.sending import produced
from bearlake.exporting.settings import ExportSettings, ExportSourceSettings, ExportTargetSettings
from bearlake.exporting.target import ExportedTopic, ExportTarget
from bearlake.importing.settings import CopySettings
from bearlake.settings.document import Settings
from fixtures.kafka_server import Make, Node, batch_of, values_of

SETTINGS = Settings(
    exports=ExportSettings(
        source=ExportSourceSettings(fetch_wait_ms=20),
        target=ExportTargetSettings(fetch_wait_ms=20),
        copy=CopySettings(pause_ms=10),
    )
)


class Killed(ExportTarget):
    """An export that is killed when its first batch is on its way."""

    late: Mapping[Place, bytearray]
    views: Mapping[str, ExportedTopic]

    @override
    async def _send(
        self, views: Mapping[str, ExportedTopic], made: Mapping[Place, Sequence[tuple[int, Outgoing]]]
    ) -> None:
        for place, found in made.items():
            for offset, batch in found:
                sign(batch.batch, self.ledger.accounts[place].sender, offset)
        Killed.views, Killed.late = views, {place: found[0][1].batch for place, found in made.items()}
        raise Fenced("killed")


class Delayed(ExportTarget):
    """An export that gets the killed one's batch in its way, after it has read the end of the target."""

    has_arrived = False

    @override
    async def _send(
        self, views: Mapping[str, ExportedTopic], made: Mapping[Place, Sequence[tuple[int, Outgoing]]]
    ) -> None:
        if not Delayed.has_arrived:
            Delayed.has_arrived = True
            connection = await self._connections.to(views["t"].topic.leaders[0])
            await produced(connection, {"t": views["t"].topic}, [Killed.late], self._settings)
        await super()._send(views, made)


async def values(node: Node) -> list[bytes | None]:
    """All values of `t`."""
    client = await node.client()
    (topic,) = (await client.fetch("t", 0)).responses
    return [value for _, value in values_of(topic.partitions[0].records)]


@pytest.mark.parametrize("size", [5, 7], ids=["batches of the same size", "batches of other sizes"])
async def test_a_late_batch_of_deleted_records_is_no_repeat_of_the_next_ones(
    kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    source, target = (await kafka_cluster())[0], (await kafka_cluster())[0]
    await source.create("t")
    producer = await source.client()
    await producer.produce("t", batch_of(*(b"a%d" % number for number in range(5))))
    options = ExportOptions(source=source.address, target=target.address, patterns=["t"])
    monkeypatch.setattr(exporting, "ExportTarget", Killed)
    with pytest.raises(Fenced):
        await export_topics(SETTINGS, options)
    for batch in range(3):
        await producer.produce("t", batch_of(*(b"%d-%d" % (batch, number) for number in range(size))))
    view = await source.streams.catalog.resolve("t")
    await source.streams.metadata.log.trim(view.partition(0), 5)
    monkeypatch.setattr(exporting, "ExportTarget", Delayed)
    Delayed.has_arrived = False

    with pytest.raises(Conflict, match="arrived late"):
        await export_topics(SETTINGS, options)

    assert Delayed.has_arrived
