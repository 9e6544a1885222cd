"""Commits into a metadata store whose disk is full: they wait for room, and the server stays."""

import asyncio

import pytest

from bearlake.errors import Conflict, OutOfRoom
from fixtures.deployment import append, batch_of, create, deployment, fetch, submit, values_of, verdicts_of
from fixtures.failing_stores import failing, settings
from simulator.loop import virtual_time

FULL = OutOfRoom("the disk is full")


def test_a_server_waits_for_room_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    @virtual_time
    async def body() -> None:
        async with deployment() as stores:
            told: list[str] = []
            metadata = failing(stores, *[FULL] * 3_000)
            streams = await stores.serve(settings(), metadata=metadata, on_unknown=lambda: told.append("unknown"))
            view = await create(streams)

            waiting = submit(streams, view, batch_of(b"a", producer=1))
            await asyncio.sleep(500)  # `commit_unknown_ms_max` is 600 s
            assert streams.write_problem == "the disk is full"
            metadata.log.failures.clear()
            await waiting
            assert len(set(metadata.log.tokens)) == 1
            again = await append(streams, view, batch_of(b"a", producer=1))

            assert verdicts_of(again) == ["DUPLICATE"]
            assert values_of(await fetch(streams, view)) == [(0, b"a")]
            assert told == []
            assert streams.write_problem == ""

    body()

    levels = [record.levelname for record in caplog.records if record.name == "bearlake.streams.committer"]
    assert levels == ["ERROR"]


@virtual_time
async def test_an_object_without_room_is_given_up_before_the_sweep_of_orphans_forbids_it() -> None:
    """A server whose object is forbidden while it waits would be fenced as soon as there is room."""
    async with deployment() as stores:
        told: list[str] = []
        metadata = failing(stores, *[FULL] * 30_000)
        streams = await stores.serve(
            settings(),
            metadata=metadata,
            on_fenced=lambda: told.append("fenced"),
            on_unknown=lambda: told.append("unknown"),
        )
        view = await create(streams)
        submit(streams, view, batch_of(b"a", producer=1))
        await asyncio.sleep(3_000)
        metadata.log.failures.clear()
        await stores.metadata.log.forbid(set(metadata.log.tokens))
        await asyncio.sleep(10)
        again = await append(streams, view, batch_of(b"a", producer=1))

        assert verdicts_of(again) == ["ACCEPTED"]
        assert values_of(await fetch(streams, view)) == [(0, b"a")]
        assert told == []


@virtual_time
async def test_an_unknown_outcome_on_a_disk_that_is_full_since_still_stops_the_server() -> None:
    async with deployment() as stores:
        told: list[str] = []
        metadata = failing(stores, FULL, "lost", *[FULL] * 3_000)
        streams = await stores.serve(settings(), metadata=metadata, on_unknown=lambda: told.append("unknown"))
        view = await create(streams)

        submit(streams, view, batch_of(b"a"))
        await asyncio.sleep(1_000)

        assert told == ["unknown"]


@virtual_time
async def test_a_commit_that_ends_without_a_result_is_no_problem_any_more() -> None:
    async with deployment() as stores:
        metadata = failing(stores, FULL, Conflict("the result is forgotten"))
        streams = await stores.serve(settings(), metadata=metadata)
        view = await create(streams)

        answer = await append(streams, view, batch_of(b"a"))

        assert verdicts_of(answer) == ["UNAVAILABLE"]
        assert streams.write_problem == ""
