"""Log messages when the object store accepts no puts: one when the outage begins and one when it ends, however many objects fail."""

import asyncio
import logging

import pytest

from fixtures.deployment import append, batch_of, create, deployment, submit, verdicts_of
from fixtures.failing_stores import SlowStore, settings
from simulator.loop import virtual_time

LOGGER = "bearlake.streams.putting"


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int | None]]:
    """Level, and number of failures if present, of log messages about puts."""
    found = [record for record in caplog.records if record.name == LOGGER]
    return [(record.levelno, vars(record).get("failure_count")) for record in found]


def test_an_outage_of_the_object_store_is_logged_when_it_begins_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    @virtual_time
    async def body() -> None:
        store = SlowStore()
        async with deployment(store) as stores:
            streams = await stores.serve(settings())
            view = await create(streams)
            await append(streams, view, batch_of(b"stored"))
            for outage in (3, 2):
                store.fails = set(range(len(store.sizes), len(store.sizes) + outage))
                failed = [await append(streams, view, batch_of(b"lost")) for _ in range(outage)]
                assert verdicts_of([result for results in failed for result in results]) == ["NOT_STORED"] * outage
                assert verdicts_of(await append(streams, view, batch_of(b"stored"))) == ["ACCEPTED"]
            await append(streams, view, batch_of(b"stored"))

    body()

    assert told(caplog) == [(logging.WARNING, None), (logging.INFO, 3), (logging.WARNING, None), (logging.INFO, 2)]


def test_a_put_that_began_before_the_last_failure_does_not_end_the_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    @virtual_time
    async def body() -> None:
        store = SlowStore()
        async with deployment(store) as stores:
            streams = await stores.serve(settings(linger_ms=1, flush_when_idle=False))
            view = await create(streams)
            store.each_put_s, store.fails = [0.3, 0.1], {1, 2}
            slow = submit(streams, view, batch_of(b"a"))
            await asyncio.sleep(0.05)
            fast = submit(streams, view, batch_of(b"b"))
            assert verdicts_of([*await slow, *await fast]) == ["ACCEPTED", "NOT_STORED"]
            assert told(caplog) == [(logging.WARNING, None)]
            assert verdicts_of(await append(streams, view, batch_of(b"c"))) == ["NOT_STORED"]
            assert verdicts_of(await append(streams, view, batch_of(b"d"))) == ["ACCEPTED"]

    body()

    assert told(caplog) == [(logging.WARNING, None), (logging.INFO, 2)]
