"""A target whose leaders do not take batches yet: Kafka says so for a moment after a topic was created, or has moved."""

from typing import Any

import pytest

from bearlake.app.exporting import ExportOptions, export_topics
from bearlake.exporting import ledger
from bearlake.exporting.sending import Refused, produced
from bearlake.exporting.settings import ExportSettings, ExportSourceSettings, ExportTargetSettings
from bearlake.importing.settings import CopySettings
from bearlake.protocols.kafka.errors import ErrorCode
from bearlake.settings.document import Settings
from fixtures.kafka_server import Make, batch_of


class Refusing:
    """Refuses the first batches of the ledger."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    async def __call__(self, *arguments: Any) -> Any:
        if self.codes:
            code = self.codes.pop(0)
            raise Refused(f"the target refuses a batch: {ErrorCode(code).name}", code)
        return await produced(*arguments)


async def export(kafka_cluster: Make, timeout_ms: int) -> int:
    """Export a batch of two records; return where the target ends."""
    source, target = (await kafka_cluster())[0], (await kafka_cluster())[0]
    await source.create("t")
    await (await source.client()).produce("t", batch_of(b"a", b"b"))
    settings = ExportSettings(
        source=ExportSourceSettings(fetch_wait_ms=20),
        target=ExportTargetSettings(fetch_wait_ms=20, timeout_ms=timeout_ms),
        copy=CopySettings(pause_ms=10),
    )
    options = ExportOptions(source=source.address, target=target.address, patterns=["t"])
    await export_topics(Settings(exports=settings), options)
    view = await target.streams.catalog.resolve("t")
    partition = view.partition(0)
    return (await target.streams.metadata.log.bounds([partition]))[partition].end


async def test_the_ledger_waits_for_a_leader_that_does_not_lead_yet(
    kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = Refusing(*[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3)
    monkeypatch.setattr(ledger, "produced", refusing)
    monkeypatch.setattr(ledger, "PAUSE_S", 0.001)

    assert await export(kafka_cluster, timeout_ms=60_000) == 2
    assert refusing.codes == []


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_the_ledger_does_not_wait_for_ever_nor_for_other_refusals(
    kafka_cluster: Make, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    refusing = Refusing(*[code] * 100)
    monkeypatch.setattr(ledger, "produced", refusing)
    monkeypatch.setattr(ledger, "PAUSE_S", 0.1)

    with pytest.raises(Refused, match=code.name):
        await export(kafka_cluster, timeout_ms=50 if code == ErrorCode.NOT_LEADER_OR_FOLLOWER else 60_000)
    assert len(refusing.codes) == 99
