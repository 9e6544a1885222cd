"""The simulation can fail: each known way to break the write, commit, follow or read path is found within a few seeds."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bearlake.cache.objects import Extent, ObjectCache
from bearlake.errors import BearlakeError, Fenced, Unavailable
from bearlake.metadata import batch_decision
from bearlake.metadata.ledger import Ledger
from bearlake.metadata.model import ObjectCommit, ObjectCommitted, Outcome, OutcomeKind
from bearlake.metadata.sqlite import commits as sqlite_commits
from bearlake.streams.append import AppendCall
from bearlake.streams.committer import Committer
from bearlake.streams.flush import Storing
from bearlake.streams.follower import Follower
from bearlake.streams.service import Streams
from bearlake.streams.writer import Writer
from simulator import named_clients, truth
from simulator.nodes import AppendFields
from simulator.scenario import run_seed

SEED_COUNT_MAX = 150


class EagerLog:
    """Acknowledges before the commit: answers with the offsets that it expects, and commits meanwhile."""

    def __init__(self, inner: Any, streams: Streams) -> None:
        self._inner = inner
        self._streams = streams
        self._tasks: list[Any] = []

    async def commit(self, commit: ObjectCommit) -> ObjectCommitted:
        ends: dict[int, int] = {}
        outcomes = []
        for batch in commit.batches:
            tail = self._streams._tail.get(batch.partition)
            base = ends.get(batch.partition, tail.end if tail is not None else 0)
            ends[batch.partition] = base + batch.record_count
            outcomes.append(Outcome(OutcomeKind.ACCEPTED, base, 0))
        self._tasks.append(asyncio.create_task(self._commit(commit)))
        return ObjectCommitted(position=0, outcomes=outcomes, slices=())

    async def _commit(self, commit: ObjectCommit) -> None:
        while True:
            try:
                await self._inner.commit(commit)
            except Unavailable:
                await asyncio.sleep(0.05)
            except Fenced:
                return
            else:
                return


class EagerStreams(Streams):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        committer = self._writer.committer
        committer._commit_log = EagerLog(committer._commit_log, self)  # type: ignore[assignment]


class ForgetfulLog:
    """A commit log whose readers miss the last slice of each entry."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def follow(self, after: int, *, limit: int) -> Any:
        page = await self._inner.follow(after, limit=limit)
        entries = [
            replace(entry, slices=entry.slices[:-1]) if len(entry.slices) > 1 else entry for entry in page.entries
        ]
        return replace(page, entries=entries)


def forget_a_slice(metadata: Any) -> Any:
    metadata.log = ForgetfulLog(metadata.log)
    return metadata


def skip_the_epoch_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sqlite_commits, "check_server", lambda connection, server: None)


def forget_tokens(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sqlite_commits, "first_result", lambda connection, commit: None)
    patch.setattr(sqlite_commits, "write_commit", _write_commit_again(sqlite_commits.write_commit))


def _write_commit_again(write: Callable[..., None]) -> Callable[..., None]:
    def write_again(connection: Any, position: int, now_ms: int, commit: ObjectCommit, *decided: Any) -> None:
        connection.execute("UPDATE log SET token = token || '~' || position WHERE token = ?", (commit.token,))
        write(connection, position, now_ms, commit, *decided)

    return write_again


def let_commits_overtake_each_other(patch: pytest.MonkeyPatch) -> None:
    write = Writer._write

    async def eager(self: Writer, flush: Any) -> None:
        flush.before = None
        await write(self, flush)

    patch.setattr(Writer, "_write", eager)


def commit_objects_that_were_not_stored(patch: pytest.MonkeyPatch) -> None:
    make = Writer.__init__

    class Optimist:
        def __init__(self, store: Any) -> None:
            self._store = store

        def blocking_put(self) -> None:
            """None: as in the simulation."""

        async def put(self, key: str, parts: Any) -> None:
            with contextlib.suppress(BearlakeError):
                await self._store.put(key, parts)

    def made(self: Writer, store: Any, *arguments: Any) -> None:
        make(self, Optimist(store), *arguments)  # type: ignore[arg-type]

    patch.setattr(Writer, "__init__", made)


def commit_what_the_thread_could_not_put(patch: pytest.MonkeyPatch) -> None:
    put = Storing.put

    def optimistic(self: Storing) -> None:
        put(self)
        self._is_stored = True

    patch.setattr(Storing, "put", optimistic)


def let_threads_commit_any_object(patch: pytest.MonkeyPatch) -> None:
    put, commit = Storing.put, Storing.commit

    def put_and_commit(self: Storing) -> None:
        put(self)
        self._order.next_number = self.flush.number
        commit(self)

    patch.setattr(Storing, "put", put_and_commit)
    patch.setattr(Storing, "commit", lambda self: None)


def let_threads_commit_behind_a_failure(patch: pytest.MonkeyPatch) -> None:
    commit = Storing.commit

    def go_on(self: Storing) -> None:
        commit(self)
        self._order.ended(self.flush.number)

    patch.setattr(Storing, "commit", go_on)


def lose_changed_streams(patch: pytest.MonkeyPatch) -> None:
    refresh = Follower._refresh

    async def once(self: Follower) -> None:
        try:
            await refresh(self)
        finally:
            self._changed.clear()

    patch.setattr(Follower, "_refresh", once)


def serve_stored_offsets(patch: pytest.MonkeyPatch) -> None:
    def add(self: ObjectCache, ref: Any, buffer: bytearray, slices: Any) -> None:
        self._insert((ref.key, 0, ref.size), Extent(0, memoryview(buffer), None))

    patch.setattr(ObjectCache, "add", add)


def read_every_socket(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writer, "is_over_budget", property(lambda self: False))


def answer_in_the_wrong_order(patch: pytest.MonkeyPatch) -> None:
    def answer(self: AppendCall) -> None:
        self._on_done(list(self)[::-1])  # type: ignore[arg-type]

    patch.setattr(AppendCall, "answer", answer)


def move_offsets_by_one(patch: pytest.MonkeyPatch) -> None:
    rolled_up = Ledger.rolled_up

    def moved(self: Ledger, position: int) -> None:
        rolled_up(self, position)
        for state in list(self.partitions.values())[:1]:
            state.end += 1

    patch.setattr(Ledger, "rolled_up", moved)


def call_every_failed_commit_a_failure(patch: pytest.MonkeyPatch) -> None:
    commit = Committer.commit

    async def once(self: Committer, told: ObjectCommit, **more: Any) -> Any:
        log = self._commit_log

        class Once:
            async def commit(self, told: ObjectCommit) -> Any:
                try:
                    return await log.commit(told)
                except Unavailable as error:
                    raise Fenced("taken for a failure") from error

        self._commit_log = Once()  # type: ignore[assignment]
        try:
            return await commit(self, told, **more)
        finally:
            self._commit_log = log

    patch.setattr(Committer, "commit", once)


def forget_what_was_sent_before(patch: pytest.MonkeyPatch) -> None:
    def forgetful(**fields: Any) -> AppendFields:
        return AppendFields(**fields | {"after_sequence": -1})

    patch.setattr(named_clients, "AppendFields", forgetful)


def let_the_overtaken_write(patch: pytest.MonkeyPatch) -> None:
    decide = batch_decision.decide_named

    def decide_without_epoch(known: Any, partition_epoch: int, *arguments: int, **named: bool) -> Any:
        return decide(known, 0, *arguments, **named)

    patch.setattr(batch_decision, "decide_named", decide_without_epoch)


def let_unknown_producers_start_anywhere(patch: pytest.MonkeyPatch) -> None:
    """As Apache Kafka does, and this store once did on partitions with records."""
    decide = batch_decision.decide_idempotent

    def lenient(known: Any, *arguments: int, **named: bool) -> Any:
        if known is None:
            return OutcomeKind.ACCEPTED, -1
        return decide(known, *arguments, **named)

    patch.setattr(batch_decision, "decide_idempotent", lenient)


def believe_in_the_rules(patch: pytest.MonkeyPatch) -> None:
    """Only the clients' conclusions count: the check of outcomes agrees with the code."""
    patch.setattr(truth, "contradiction", lambda *_: None)


PATCHES: dict[Callable[[pytest.MonkeyPatch], None], str | tuple[str, ...]] = {
    skip_the_epoch_check: "a fenced server commits nothing",
    forget_tokens: "a repeated token gets the first result",
    let_commits_overtake_each_other: "I3",
    commit_objects_that_were_not_stored: "I1: the object is durable before its commit",
    commit_what_the_thread_could_not_put: "I1: the object is durable before its commit",
    let_threads_commit_any_object: ("I3", "outcomes follow the rules", "what was refused is not stored"),
    let_threads_commit_behind_a_failure: ("I3", "outcomes follow the rules", "what was refused is not stored"),
    lose_changed_streams: ("every server knows all streams", "nothing is kept of deleted streams"),
    serve_stored_offsets: ("I2", "KIP-74", "KIP-734", "I1, I6: a reader gets the records that were acknowledged"),
    read_every_socket: "pending bytes are bounded",
    answer_in_the_wrong_order: "I1",
    move_offsets_by_one: ("outcomes follow the rules", "I1: nothing uncommitted is shown"),
    call_every_failed_commit_a_failure: "what was refused is not stored",
    forget_what_was_sent_before: "I1: a batch reported as a duplicate is stored",
    let_unknown_producers_start_anywhere: "outcomes follow the rules",
    let_the_overtaken_write: ("outcomes follow the rules", "what was refused is not stored"),
}
"""Each mutation, and the rule (or rules) that it may break first."""


def first_violation(kind: str = "", **changes: Any) -> str:
    """The first violation in the seeds whose text begins with `kind`."""
    for seed in range(SEED_COUNT_MAX):
        violation = run_seed(seed, **changes).violation
        if violation is not None and str(violation).startswith(kind):
            return str(violation)
    return f"no violation in {SEED_COUNT_MAX} seeds"


@pytest.mark.parametrize("mutate", PATCHES, ids=lambda mutate: mutate.__name__)
def test_the_simulation_notices_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    assert first_violation().startswith(PATCHES[mutate])


def test_a_client_that_infers_notices_unknown_producers_that_start_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Violation without reference to rules: the application got "delivered", and the record is missing."""
    believe_in_the_rules(monkeypatch)
    let_unknown_producers_start_anywhere(monkeypatch)

    assert first_violation().startswith("I9: what a later success implies is stored")


def test_the_simulation_notices_an_acknowledgement_before_the_commit() -> None:
    assert first_violation(streams_class=EagerStreams).startswith("I1: ")


def test_the_simulation_notices_a_forgotten_slice() -> None:
    assert "log has a gap" in first_violation(wrap_metadata=forget_a_slice)
