"""Histories of roll-up rounds (`simulator/rounds.py`): every promise is kept, and each rule of the roll-up that is removed is missed."""

import sqlite3
from collections.abc import Callable

import pytest

from bearlake.metadata.model import partition_key
from bearlake.metadata.sqlite import rollup, sweep
from bearlake.metadata.sqlite.claims import close_tasks_of
from bearlake.metadata.sqlite.rollup import Round
from bearlake.metadata.sqlite.upkeep import Upkeep
from simulator.rounds import run_rounds

SEED_COUNT = 6


def sweep_what_is_deleted_later(patch: pytest.MonkeyPatch) -> None:
    """Note the sweep of a stream that is deleted by now, also if the deletion is an entry after the round."""
    note = Round._sweep_later

    def note_more(self: Round, connection: sqlite3.Connection) -> None:
        for number in self._streams:
            found = connection.execute(
                "SELECT 1 FROM streams WHERE number = ? AND is_deleted AND version > ?", (number, self.end)
            ).fetchone()
            if found is not None:
                connection.execute(
                    "INSERT INTO sweeps (first_partition, last_partition) VALUES (?, ?)",
                    (partition_key(number, 0), partition_key(number + 1, 0) - 1),
                )
                close_tasks_of(connection, number)
        note(self, connection)

    patch.setattr(Round, "_sweep_later", note_more)


def move_the_position_first(patch: pytest.MonkeyPatch) -> None:
    """Move the checkpoint's position in the first transaction of a round that has several."""
    write = Round._write_objects

    def write_and_move(self: Round, connection: sqlite3.Connection) -> None:
        write(self, connection)
        connection.execute("UPDATE store SET rolled_position = ?", (self.end,))

    patch.setattr(Round, "_write_objects", write_and_move)


def append_what_the_pages_have(patch: pytest.MonkeyPatch) -> None:
    """Do not continue where a round that never ended stopped."""
    patch.setattr(rollup, "bisect_left", lambda *_: 0)


def continue_an_overtaken_round(patch: pytest.MonkeyPatch) -> None:
    """Write on although another round has moved the position."""

    def write(self: Upkeep, round_: Round) -> bool:
        with self._database.writing() as connection:
            self._follower.catch_up()
            is_more = round_.write(connection, self._follower.ledger)
        if not is_more:
            self._follower.ledger.rolled_up(round_.end)
        return is_more

    patch.setattr(Upkeep, "_write", write)


def count_slices_twice_when_they_are_released(patch: pytest.MonkeyPatch) -> None:
    release = sweep.release

    def twice(connection: sqlite3.Connection, used: dict[int, int], now_ms: int) -> None:
        release(connection, {number: 2 * count for number, count in used.items()}, now_ms)

    patch.setattr(sweep, "release", twice)


def release_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweep, "release", lambda *_: None)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    sweep_what_is_deleted_later: 7,
    move_the_position_first: 0,
    append_what_the_pages_have: 45,
    continue_an_overtaken_round: 9,
    count_slices_twice_when_they_are_released: 11,
    release_nothing: 0,
}
"""Each mutation, and a seed that shows it. After a change of the scenario's steps, `python -m simulator.rounds` finds another."""


@pytest.mark.parametrize("seed", range(SEED_COUNT))
def test_rounds_that_stop_and_overlap_keep_every_promise(seed: int) -> None:
    violation, counts = run_rounds(seed)

    assert violation is None
    assert counts["commit"]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_histories_of_rounds_notice_code_that_would(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    violation, _ = run_rounds(MUTATIONS[mutate])
    assert violation is not None
