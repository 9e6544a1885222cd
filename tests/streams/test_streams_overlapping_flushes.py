"""Objects in flight at the same time, stored by threads: every order of three puts and commits, with a failure at each.

The first two objects are in flight from the beginning; the third one is sealed at any later moment.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bearlake.clock import ManualClock
from bearlake.errors import Fenced, Unavailable
from bearlake.metadata.open import open_metadata
from bearlake.objects.local import LocalObjectStore
from bearlake.streams.append import Result
from fixtures.deployment import NOW_MS, Deployment, batch_of, create, fetch, submit, values_of, verdicts_of
from fixtures.failing_stores import settings
from fixtures.stores_here import HereStore, Server, with_server

VALUES = (b"first", b"second", b"third")
Answer = asyncio.Future[list[Result]]
Schedule = tuple[str, ...]
"""Events: `put N` ends the put of object N, `commit` runs the second part whose turn it is, `seal` begins the third flush."""


def schedules(events: Schedule = ()) -> Iterator[Schedule]:
    """Every order of the events that threads allow."""
    flushes = 3 if "seal" in events else 2
    committed = events.count("commit")
    possible = [f"put {number}" for number in range(flushes) if f"put {number}" not in events]
    if f"put {committed}" in events:
        possible.append("commit")
    if flushes == 2:
        possible.append("seal")
    if not possible:
        yield events
    for event in possible:
        yield from schedules((*events, event))


class Ordered(HereStore):
    """The test ends puts and runs commits; the put of the object with the value `failing` fails."""

    def __init__(self, failing: bytes = b"", failure: Exception | str | None = None) -> None:
        super().__init__()
        self.late = []
        self.turns = []
        self._failing = failing
        self._failure = failure

    def failure_of(self, content: bytes) -> Exception | str | None:
        return self._failure if self._failing and self._failing in content else None

    def sees(self, token: str) -> bool:
        """Whether the object is stored."""
        return token in self._objects


async def follow(schedule: Schedule, server: Server, store: Ordered, pause_s: float) -> list[Answer]:
    """Let the events happen, with `pause_s` in between; returns the answers."""
    assert store.late is not None
    assert store.turns is not None
    answers: list[Answer] = []
    for value in VALUES[:2]:
        answers.append(asyncio.ensure_future(server.submit(value)))
        await asyncio.sleep(0.02)
    for event in schedule:
        if event == "seal":
            answers.append(asyncio.ensure_future(server.submit(VALUES[2])))
            await asyncio.sleep(0.02)
        elif event == "commit":
            if store.turns:
                store.turns.pop(0)()
        elif len(store.late) > (number := int(event[-1])):  # else the event loop stores it
            store.late[number]()
        await asyncio.sleep(pause_s)
    return answers


def watch_objects(server: Server, store: Ordered) -> list[str]:
    """Record commits of objects that are not stored (I1)."""
    early: list[str] = []
    commits = server.log._inner._commits  # noqa: SLF001 - what both ways of a commit call
    commit = commits.commit

    def checked(told: object) -> object:
        if not store.sees(token := told.token):  # type: ignore[attr-defined]
            early.append(token)
        return commit(told)

    commits.commit = checked
    return early


ALL = list(schedules())
Failure = Exception | str
PUT_FAILURES: dict[str, Failure] = {"put lost": "lost", "put refused": Unavailable("busy")}
COMMIT_FAILURES: dict[str, Failure] = {"commit lost": "lost", "commit refused": Unavailable("busy")}


def test_the_schedules_are_complete() -> None:
    assert len(ALL) == len(set(ALL))
    assert {len(schedule) for schedule in ALL} == {7}
    assert ("seal", "put 2", "put 1", "put 0", "commit", "commit", "commit") in ALL
    assert ("put 0", "commit", "put 1", "commit", "seal", "put 2", "commit") in ALL


async def assert_stored(schedule: Schedule, server: Server, store: HereStore, pause_s: float) -> None:
    """Follow the schedule; all three values must be stored, in order, and none committed before its object is there."""
    assert isinstance(store, Ordered)
    early = watch_objects(server, store)
    answers = await asyncio.gather(*await follow(schedule, server, store, pause_s))

    assert [verdicts_of(answer) for answer in answers] == [["ACCEPTED"]] * 3, schedule
    assert await server.values() == list(enumerate(VALUES)), schedule
    assert early == [], schedule


@pytest.mark.parametrize("pause_s", [0, 1])
def test_threads_store_everything_in_order(pause_s: float) -> None:
    for schedule in ALL:

        async def body(server: Server, store: HereStore, schedule: Schedule = schedule) -> None:
            await assert_stored(schedule, server, store, pause_s)

            assert (len(server.log.behind), server.log.tokens) == (3, []), schedule

        with_server(body, Ordered(), linger_ms=10)


@pytest.mark.parametrize("pause_s", [0, 1])
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("kind", [*PUT_FAILURES, *COMMIT_FAILURES])
def test_a_failure_of_a_thread_repeats_reorders_and_loses_nothing(kind: str, number: int, pause_s: float) -> None:
    for schedule in ALL:

        async def body(server: Server, store: HereStore, schedule: Schedule = schedule) -> None:
            await assert_stored(schedule, server, store, pause_s)

        behind = [None] * number + [COMMIT_FAILURES[kind]] if kind in COMMIT_FAILURES else []
        with_server(body, Ordered(VALUES[number], PUT_FAILURES.get(kind)), *behind, linger_ms=10)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_object_that_cannot_be_stored_is_left_out(number: int) -> None:
    for schedule in ALL:

        async def body(server: Server, store: HereStore, schedule: Schedule = schedule) -> None:
            assert isinstance(store, Ordered)
            early = watch_objects(server, store)
            store.is_full = True
            answers = await asyncio.gather(*await follow(schedule, server, store, 0))

            kinds = [verdicts_of(answer)[0] for answer in answers]
            assert kinds == ["NOT_STORED" if at == number else "ACCEPTED" for at in range(3)], schedule
            stored = [value for at, value in enumerate(VALUES) if at != number]
            assert await server.values() == list(enumerate(stored)), schedule
            assert early == [], schedule

        with_server(body, Ordered(VALUES[number], Unavailable("disk full")), linger_ms=10)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_refused_server_stores_nothing_behind_the_refusal(number: int) -> None:
    for schedule in ALL:

        async def body(server: Server, store: HereStore, schedule: Schedule = schedule) -> None:
            assert isinstance(store, Ordered)
            server.log.failures = [Fenced("a newer epoch was registered")] * 3
            answers = await asyncio.gather(*await follow(schedule, server, store, 0))

            kinds = [verdicts_of(answer)[0] for answer in answers]
            assert kinds == ["ACCEPTED"] * number + ["SERVER_FENCED"] * (3 - number), schedule
            assert await server.values() == list(enumerate(VALUES[:number])), schedule

        behind = [None] * number + [Fenced("a newer epoch was registered")]
        with_server(body, Ordered(), *behind, linger_ms=10)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("part", ["put", "commit"])
def test_nothing_is_stored_behind_a_bug(part: str, number: int) -> None:
    for schedule in ALL:

        async def body(server: Server, store: HereStore, schedule: Schedule = schedule) -> None:
            assert isinstance(store, Ordered)
            answers = await follow(schedule, server, store, 0)
            await asyncio.sleep(1)

            done = [verdicts_of(answer.result())[0] for answer in answers if answer.done()]
            assert done == ["ACCEPTED"] * number + ["SERVER_FENCED"] * (2 - number), schedule
            assert await server.values() == list(enumerate(VALUES[:number])), schedule

        behind: list[Exception | None] = [None] * number + [ValueError("a bug")] if part == "commit" else []
        store = Ordered(VALUES[number], ValueError("a bug") if part == "put" else None)
        with_server(body, store, *behind, linger_ms=10)


def test_the_event_loop_commits_behind_an_object_with_a_refused_batch() -> None:
    async def body(server: Server, store: HereStore) -> None:
        assert store.late is not None
        assert store.turns is not None
        batch = batch_of(b"first", producer=7)
        answers = [submit(server.streams, server.view, batch)]
        await asyncio.sleep(0.02)
        store.late[0]()
        store.turns.pop()()
        await answers[0]
        for following in (batch, batch_of(b"second")):
            answers.append(submit(server.streams, server.view, following))
            await asyncio.sleep(0.02)
        for put in store.late[1:]:
            put()
        while store.turns:
            store.turns.pop()()

        assert [verdicts_of(await answer) for answer in answers] == [["ACCEPTED"], ["DUPLICATE"], ["ACCEPTED"]]
        assert (len(server.log.behind), len(server.log.tokens)) == (2, 1)
        assert await server.values() == [(0, b"first"), (1, b"second")]

    with_server(body, Ordered(), linger_ms=10)


@pytest.mark.parametrize("part", ["put", "commit"])
def test_threads_commit_again_once_the_event_loop_has_caught_up(part: str) -> None:
    async def body(server: Server, store: HereStore) -> None:
        assert store.late is not None
        assert store.turns is not None
        assert isinstance(store, Ordered)
        schedule = ("seal", "put 0", "commit", "put 1", "commit")
        answers = await follow(schedule, server, store, 0)
        await asyncio.gather(*answers[:2])
        behind = len(server.log.behind)
        assert server.log.tokens  # of commits on the event loop
        store.late[2]()
        store.turns.pop()()

        assert verdicts_of(await answers[2]) == ["ACCEPTED"]
        assert len(server.log.behind) == behind + 1
        assert await server.values() == list(enumerate(VALUES))

    store = Ordered(VALUES[0], "lost" if part == "put" else None)
    with_server(body, store, *["lost"] * (part == "commit"), linger_ms=10)


@pytest.mark.parametrize("part", ["put", "commit"])
def test_closing_does_not_let_threads_commit_behind_a_failure(part: str) -> None:
    failure = Unavailable("busy")

    async def body(server: Server, store: HereStore) -> None:
        assert store.late is not None
        assert store.turns is not None
        assert isinstance(store, Ordered)
        server.log.failures = [failure] * 9
        answers = await follow(("put 0", "commit"), server, store, 0)
        behind = len(server.log.behind)
        closing = asyncio.ensure_future(server.streams.close())
        await asyncio.sleep(0.02)
        store.late[1]()
        store.turns.pop()()
        await closing

        assert len(server.log.behind) == behind
        assert [verdicts_of(answer) for answer in await asyncio.gather(*answers)] == [["UNAVAILABLE"]] * 2

    store = Ordered(VALUES[0], failure if part == "put" else None)
    with_server(body, store, *[failure] * (part == "commit"), linger_ms=10)


@pytest.mark.parametrize("end", ["close", "drain"])
def test_a_server_that_ends_waits_for_its_threads(end: str) -> None:
    for schedule in ALL:
        for at in range(len(schedule)):

            async def body(server: Server, store: HereStore, schedule: Schedule = schedule, at: int = at) -> None:
                assert isinstance(store, Ordered)
                assert store.turns is not None
                assert store.late is not None
                answers = await follow(schedule[:at], server, store, 0)
                ending = asyncio.ensure_future(getattr(server.streams, end)())
                await asyncio.sleep(0.02)
                begun, late = len(store.late), [event for event in schedule[at:] if event.startswith("put")]
                is_over = begun == schedule[:at].count("commit")
                assert ending.done() == is_over, schedule
                for event in late:
                    if int(event[-1]) < begun:
                        store.late[int(event[-1])]()
                while store.turns:
                    store.turns.pop(0)()
                await asyncio.sleep(0.02)

                assert ending.done(), schedule
                kinds = [verdicts_of(answer)[0] for answer in await asyncio.gather(*answers)]
                known = schedule[:at].count("commit") if end == "close" else len(kinds)
                assert kinds == ["ACCEPTED"] * known + ["UNAVAILABLE"] * (len(kinds) - known), schedule

            with_server(body, Ordered(), linger_ms=10)


async def test_stores_on_this_machine_keep_the_order_of_a_producer(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "objects")
    metadata = await open_metadata(f"sqlite://{tmp_path}/metadata.db")
    stores = Deployment(metadata, store, ManualClock(NOW_MS))
    streams = await stores.serve(settings(linger_ms=0, flush_bytes=0))  # each batch is flushed while a slot is free
    view = await create(streams)
    answers = []
    in_flight_max = 0
    for sequence in range(300):
        answers.append(submit(streams, view, batch_of(b"%d" % sequence, producer=7, sequence=sequence)))
        await asyncio.sleep(0)
        in_flight_max = max(in_flight_max, streams._writer.put_count)  # noqa: SLF001
    results = await asyncio.gather(*answers)

    assert [verdicts_of(result) for result in results] == [["ACCEPTED"]] * 300
    assert [result[0][1] for result in results] == list(range(300))
    assert values_of(await fetch(streams, view)) == [(at, b"%d" % at) for at in range(300)]
    assert in_flight_max > 1
    await stores.close()
    await store.close()
