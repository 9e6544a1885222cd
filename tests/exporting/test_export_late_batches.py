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
from fixtures.kafka_server import Make, batch_of

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


class KilledBeforeSending(ExportTarget):
    """An export that is killed when its plan is in the ledger, and nothing is on its way."""

    @override
    async def _send(
        self, views: Mapping[str, ExportedTopic], made: Mapping[Place, Sequence[tuple[int, Outgoing]]]
    ) -> None:
        raise Fenced("killed")


class KilledBeforeChecking(Delayed):
    """An export that gets the late batch in its way, and is killed before it reads back what it has appended."""

    @override
    async def _check_late(self, view: ExportedTopic, index: int, start: int, end: int) -> None:
        raise Fenced("killed")


class Scene:
    """An export was killed with a batch of five records on its way, and the source has deleted these."""

    def __init__(self, patch: pytest.MonkeyPatch, options: ExportOptions) -> None:
        self._patch = patch
        self._options = options

    async def export(self, kind: type[ExportTarget] = ExportTarget) -> None:
        """Export again."""
        self._patch.setattr(exporting, "ExportTarget", kind)
        await export_topics(SETTINGS, self._options)


@pytest.fixture(params=[5, 7], ids=["batches of the same size", "batches of other sizes"])
async def scene(request: pytest.FixtureRequest, kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch) -> Scene:
    source, target = (await kafka_cluster())[0], (await kafka_cluster())[0]
    await source.create("t")
    producer = await source.client()
    await producer.produce("t", batch_of(*(b"a%d" % number for number in range(5))))
    made = Scene(monkeypatch, ExportOptions(source=source.address, target=target.address, patterns=["t"]))
    with pytest.raises(Fenced):
        await made.export(Killed)
    for batch in range(3):
        await producer.produce("t", batch_of(*(b"%d-%d" % (batch, number) for number in range(request.param))))
    view = await source.streams.catalog.resolve("t")
    await source.streams.metadata.log.trim(view.partition(0), 5)
    Delayed.has_arrived = False
    return made


async def test_a_late_batch_of_deleted_records_is_no_repeat_of_the_next_ones(scene: Scene) -> None:
    with pytest.raises(Conflict, match="arrived late"):
        await scene.export(Delayed)

    assert Delayed.has_arrived


async def test_an_export_that_starts_again_behind_records_of_a_late_batch_does_not_go_on(scene: Scene) -> None:
    with pytest.raises(Conflict, match="arrived late"):
        await scene.export(Delayed)

    for _ in range(2):
        with pytest.raises(Conflict, match="arrived late"):
            await scene.export()


async def test_an_export_that_was_killed_before_it_read_back_does_not_hide_a_late_batch(scene: Scene) -> None:
    with pytest.raises(Fenced):
        await scene.export(KilledBeforeChecking)
    assert Delayed.has_arrived

    with pytest.raises(Conflict, match="arrived late"):
        await scene.export()


async def test_a_plan_of_which_nothing_was_sent_does_not_hide_a_late_batch(scene: Scene) -> None:
    with pytest.raises(Fenced):
        await scene.export(KilledBeforeSending)

    with pytest.raises(Conflict, match="arrived late"):
        await scene.export(Delayed)
    assert Delayed.has_arrived


async def test_an_export_goes_on_if_the_late_batch_never_arrives(scene: Scene) -> None:
    with pytest.raises(Fenced):
        await scene.export(KilledBeforeSending)

    await scene.export()
    await scene.export()
