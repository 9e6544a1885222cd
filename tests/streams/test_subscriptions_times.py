"""Moves of a subscription to a time, while messages arrive."""

import pytest

from bearlake.streams.offsets import OffsetAnswer, OffsetQuestion
from bearlake.streams.subscriptions.model import EARLIEST
from fixtures.deployment import NOW_MS, append, batch_of
from fixtures.subscriptions import lake
from simulator.loop import virtual_time


@pytest.mark.parametrize("is_expired", [True, False], ids=["expire", "seek"])
def test_a_message_that_arrives_during_a_look_up_by_time_is_delivered(
    is_expired: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up found no message at or after the time; this one is."""

    @virtual_time
    async def body() -> None:
        async with lake() as made:
            streams, service = await made.serve()
            await append(streams, made.view, batch_of(b"old", timestamp=NOW_MS - 60_000))
            await service.create(made.partition, "made", EARLIEST)
            look_up = streams.offsets

            async def slow(questions: list[OffsetQuestion]) -> list[OffsetAnswer]:
                answers = await look_up(questions)
                await append(streams, made.view, batch_of(b"new"))
                return answers

            monkeypatch.setattr(streams, "offsets", slow)
            move = service.expire if is_expired else service.seek_time
            await move(made.partition, "made", NOW_MS - 1_000)

            (stats,) = await service.stats(made.partition)
            assert (stats.mark_delete, stats.backlog_count) == (1, 1)

    body()
