"""Each gate passes good measurements, and fails for a measurement or history that breaks its condition."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nemesis import checking, gates, table_files
from nemesis.gates import COMPLETE_S, LIFE_SAMPLES_MIN, Gate, Leftovers
from nemesis.report import Run, render
from nemesis.schedule import InjectedFault
from nemesis.watch import Objects, written_ms

SHORT_S, LONG_S = 60.0, COMPLETE_S
MEGABYTE = 1_000_000
SECOND = 10**9


def happened(kind: str, proof: str | None = "seen", error: str = "") -> InjectedFault:
    """A fault that was drawn."""
    return InjectedFault(kind, "something", 1, 2, proof, error)


def leftovers(**more: Any) -> Leftovers:
    """Leftovers that are all zero or empty, except for these."""
    return Leftovers(**{"orphans": 0, "unused": 0, "open_tasks": 0, "quarantined": 0, **more})


def results(found: Sequence[Gate]) -> list[bool | None]:
    """Return the results of the gates."""
    return [gate.is_passed for gate in found]


# -- key compaction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "left", "load_s", "expected"),
    [
        (100, 20, LONG_S, True),
        (100, 100, LONG_S, False),
        (100, 100, SHORT_S, None),
        (0, 0, LONG_S, False),
        (100, None, SHORT_S, False),
    ],
)
def test_a_topic_with_key_compaction_is_readable_and_loses_records(
    written: int, left: int | None, load_s: float, expected: bool | None
) -> None:
    assert gates.key_compaction(written, left, load_s).is_passed is expected


# -- the backup (what the drill finds: test_nemesis_restored.py) -------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "load_s", "expected", "figures"),
    [
        (([], ["backup-1 of 3"]), SHORT_S, True, "backup-1 of 3"),
        ((["a record is lost"], ["backup-1 of 3"]), SHORT_S, False, "a record is lost; backup-1 of 3"),
        (None, SHORT_S, None, "no backup was taken"),
        (None, LONG_S, False, "no backup was taken"),
    ],
)
def test_a_restored_backup_has_no_problem_and_a_long_run_has_a_backup(
    found: tuple[Sequence[str], Sequence[str]] | None, load_s: float, expected: bool | None, figures: str
) -> None:
    gate = gates.restored(found, load_s)

    assert (gate.is_passed, gate.figures) == (expected, figures)


# -- every fault was seen --------------------------------------------------------------------------------------------


def test_a_run_that_saw_every_kind_passes() -> None:
    gate = gates.faults_seen(["a", "b"], [], [happened("a"), happened("b")], LONG_S)

    assert (gate.is_passed, gate.figures) == (True, "2 of 2 kinds")


def test_a_kind_that_was_never_drawn_fails_a_long_run_and_leaves_a_short_one_incomplete() -> None:
    long, short = (gates.faults_seen(["a", "b"], [], [happened("a")], load_s) for load_s in (LONG_S, SHORT_S))

    assert (long.is_passed, short.is_passed) == (False, None)
    assert long.figures == short.figures == "1 of 2 kinds; never drawn: b"


@pytest.mark.parametrize("injected", [happened("b", None), happened("b", None, "RuntimeError: not now")])
def test_a_kind_that_was_drawn_and_never_took_effect_fails(injected: InjectedFault) -> None:
    once, often = [happened("a"), injected], [happened("a"), injected, injected, injected]

    assert gates.faults_seen(["a", "b"], [], once, LONG_S).is_passed is False
    assert gates.faults_seen(["a", "b"], [], once, SHORT_S).is_passed is None
    assert gates.faults_seen(["a", "b"], [], often, SHORT_S).is_passed is False


def test_a_fault_that_failed_to_end_does_not_count_as_seen() -> None:
    gate = gates.faults_seen(["a"], [], [happened("a", "seen", "TimeoutError")], LONG_S)

    assert gate.is_passed is False


def test_kinds_that_are_not_possible_are_named() -> None:
    assert gates.faults_seen(["a"], ["z"], [happened("a")], LONG_S).figures == "1 of 1 kinds; not possible here: z"


# -- what is left ----------------------------------------------------------------------------------------------------


def test_empty_stores_pass() -> None:
    assert results(gates.leftovers(leftovers(), 7, has_workers=True, waited_s=1)) == [True, True, True]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (leftovers(orphans=1), [False, True, True]),
        (leftovers(unused=1), [False, True, True]),
        (leftovers(open_tasks=1), [False, True, True]),
        (leftovers(stale_files=["table/s/t-1/data/x.parquet"]), [False, True, True]),
        (leftovers(stale_metadata=["table/s/t-1/metadata/x.avro"]), [False, True, True]),
        (leftovers(missing=["table/s/t-1/data/y.parquet"]), [True, False, True]),
        (leftovers(quarantined=1), [True, True, False]),
        (None, [False, False, False]),
    ],
)
def test_each_kind_of_leftover_fails_its_gate(found: Leftovers | None, expected: list[bool]) -> None:
    assert results(gates.leftovers(found, 7, has_workers=True, waited_s=1)) == expected


def test_stored_files_are_compared_with_the_files_that_tables_and_index_name() -> None:
    table = "table/streams/main-01234567"
    named = table_files.TableFiles(
        data=frozenset({f"{table}/data/live.parquet", f"{table}/data/gone.parquet"}),
        metadata=frozenset({f"{table}/metadata/1.metadata.json"}),
        folders=frozenset({table}),
    )
    stored = [f"{table}/data/{name}.parquet" for name in ("live", "indexed", "orphan")] + [
        f"{table}/metadata/{name}" for name in ("1.metadata.json", "old.avro", "00000-lost.metadata.json")
    ]

    assert table_files.stale_files(stored, named, [f"{table}/data/indexed.parquet"]) == [f"{table}/data/orphan.parquet"]
    assert table_files.stale_metadata(stored, named) == [
        f"{table}/metadata/00000-lost.metadata.json",
        f"{table}/metadata/old.avro",
    ]
    assert table_files.missing(stored, named) == [f"{table}/data/gone.parquet"]


# -- attempts, memory, rest ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "attempts", "claims", "expected"),
    [
        (3, gates.ATTEMPTS_MAX, gates.CLAIMS_MAX, True),
        (3, gates.ATTEMPTS_MAX + 1, 1, False),
        (3, 1, gates.CLAIMS_MAX + 1, False),
        (0, 0, 0, False),
    ],
)
def test_attempts_and_claims_are_bounded_and_must_be_measured(
    samples: int, attempts: int, claims: int, expected: bool
) -> None:
    assert gates.attempts(samples, attempts, claims, has_workers=True).is_passed is expected


def grown(by_mb: int, count: int = 5 * LIFE_SAMPLES_MIN) -> list[int]:
    """Samples of a process of 150 MB whose memory grows evenly by this much."""
    return [150 * MEGABYTE + by_mb * MEGABYTE * at // count for at in range(count)]


def test_memory_that_stays_passes_and_memory_that_grows_fails() -> None:
    assert gates.memory({("k1", 1): grown(10)}, LONG_S).is_passed is True
    assert gates.memory({("k1", 1): grown(10), ("k2", 2): grown(200)}, LONG_S).is_passed is False


def test_a_process_that_loads_its_libraries_has_not_grown() -> None:
    warming = [74 * MEGABYTE] * 40 + [145 * MEGABYTE] * 60

    assert gates.memory({("k2", 1): warming}, LONG_S).is_passed is True


def test_a_restart_hides_no_growth() -> None:
    lives = {("k1", 1): grown(200), ("k1", 2): grown(0)}

    assert gates.memory(lives, LONG_S).is_passed is False


def test_too_short_lifetimes_leave_a_short_run_unchecked_and_fail_a_long_run() -> None:
    lives = {("k1", 1): grown(0, LIFE_SAMPLES_MIN - 1)}

    assert gates.memory(lives, SHORT_S).is_passed is None
    assert gates.memory(lives, LONG_S).is_passed is False
    assert gates.memory({}, LONG_S).is_passed is False


def test_an_idle_process_that_uses_cpu_fails_and_so_does_a_missing_measurement() -> None:
    assert results([gates.idle_cpu({"k1": 0.01}), gates.idle_cpu({"k1": 0.01, "w1": 0.9}), gates.idle_cpu({})]) == [
        True,
        False,
        False,
    ]


# -- promises and clients --------------------------------------------------------------------------------------------


def test_a_history_that_breaks_a_promise_fails_the_gate(tmp_path: Path) -> None:
    """Two readers get one record at two offsets."""
    lines = [
        {"history": 1, "clock": "monotonic_ns"},
        {"e": "invoke", "i": 0, "t": 1, "p": "p", "op": "produce", "log": ["main", 0], "producer": "p", "kind": "idempotent",
         "sequence": 0, "records": [["a", "1"]]},
        {"e": "ok", "i": 0, "t": 2, "offset": 0},
        {"e": "invoke", "i": 1, "t": 3, "p": "r", "op": "read", "log": ["main", 0], "start": 0},
        {"e": "ok", "i": 1, "t": 4, "records": [[0, "a", "1"], [1, "a", "1"]]},
    ]  # fmt: skip
    history = tmp_path / "p-1.jsonl"
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))

    verdict = checking.check([history], tmp_path / "verdict.log")

    gate = gates.promises(verdict.violations, verdict.text)
    assert (gate.is_passed, gate.figures) == (False, "ONCE 1")


def test_violations_that_are_not_shown_are_counted(tmp_path: Path) -> None:
    lines = [{"history": 1, "clock": "monotonic_ns"}]
    for at in range(50):
        lines.append({"e": "invoke", "i": at, "t": 2 * at, "p": "r", "op": "read", "log": ["main", at], "start": 0})
        lines.append({"e": "ok", "i": at, "t": 2 * at + 1, "records": [[0, "nobody's", "1"]]})
    history = tmp_path / "r-1.jsonl"
    history.write_text("".join(json.dumps(line) + "\n" for line in lines))

    verdict = checking.check([history], tmp_path / "verdict.log")

    assert (verdict.violations, verdict.text) == (50, "SENT 50")


def test_a_history_that_cannot_be_checked_fails_the_gate(tmp_path: Path) -> None:
    history = tmp_path / "p-1.jsonl"
    history.write_text('{"e": "invoke", "i": 0, "t": 1, "p": "p", "op": "complete", "log": ["main", 0]}\n')

    verdict = checking.check([history], tmp_path / "verdict.log", keep=tmp_path)

    assert gates.promises(verdict.violations, verdict.text).is_passed is False


def test_histories_that_are_not_checked_in_time_are_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    history = tmp_path / "p-1.jsonl"
    history.write_text('{"history": 1, "clock": "monotonic_ns"}\n')

    verdict = checking.check([history], tmp_path / "verdict.log", within_s=0)

    (kept,) = tmp_path.glob("nemesis-unchecked-*/p-1.jsonl")
    gate = gates.promises(verdict.violations, verdict.text)
    assert gate.is_passed is False
    assert gate.figures == f"not checked within 0 s; 1 histories are kept: {kept.parent}/*.jsonl"
    assert gate.figures in render(run(gates=[gate], verdict=verdict))


def test_the_limit_of_the_whole_run_ends_the_checker_and_not_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object, **__: object) -> None:
        raise TimeoutError("the run did not end within its limit")

    monkeypatch.setattr(checking.subprocess, "run", ended)

    verdict = checking.check([], tmp_path / "verdict.log", keep=tmp_path)

    assert verdict.violations is None
    assert verdict.text.startswith("not checked: the run did not end within its limit; ")


def test_a_longer_run_may_be_checked_for_longer() -> None:
    assert checking.limit_s(SHORT_S) < checking.limit_s(LONG_S)
    assert checking.limit_s(45 * SHORT_S) > 45 * SHORT_S


def test_a_kind_of_client_that_got_no_answer_fails_the_gate() -> None:
    kinds = ["produce-rest", "sql"]

    assert gates.clients_got_answers(kinds, {"produce-rest": 5, "sql": 1}).is_passed is True
    assert gates.clients_got_answers(kinds, {"produce-rest": 5}).is_passed is False


def test_a_failed_client_fails_the_gate() -> None:
    assert gates.clients_ended([], 0, 0).is_passed is True
    assert gates.clients_ended(["sql-1 ended with 1"], 0, 0).is_passed is False


def test_calls_that_do_not_return_fail_the_gate_if_they_are_many() -> None:
    few, many = gates.clients_ended([], 3, 40), gates.clients_ended([], 4, 40)

    assert (few.is_passed, few.figures) == (True, "3 calls of librdkafka did not return")
    assert many.is_passed is False


# -- what clients felt, and the report -------------------------------------------------------------------------------


def test_the_impact_on_clients_is_reported_per_fault() -> None:
    """One producer waits 40 s while another one continues; the window is the 30 s of the fault and the 15 s after it."""
    facts = checking.Facts()
    steady = [(at * SECOND, at * SECOND - 1, "one") for at in range(101, 146)]
    facts.acknowledged["Kafka"] = sorted([*steady, (104 * SECOND, 1, "two"), (144 * SECOND, 1, "two")])
    facts.failed["Kafka"] = [99 * SECOND, 110 * SECOND, 146 * SECOND]
    facts.redelivered["Kafka"] = [120 * SECOND]

    impact = facts.impact("Kafka", [(100 * SECOND, 130 * SECOND)])

    assert sorted(impact.gaps_s) == [1.0, 40.0]
    assert impact.silences_s == [1.0]
    assert (impact.errors, impact.redelivered) == (1, 1)


def run(**more: Any) -> Run:
    """A run with one fault and one gate."""
    objects = Objects(
        at_s=0, stored=1, orphans=0, unused=0, unused_files=0, open_tasks=0, attempts_max=0, claims_max=0, quarantined=0
    )
    facts = checking.Facts()
    facts.acknowledged["Kafka"] = [(2 * SECOND, SECOND, "one")]
    values: dict[str, Any] = {
        "command": "run", "seed": 1, "load_s": 60, "total_s": 90, "size": "small", "impossible": [], "facts": facts,
        "injected_faults": [InjectedFault("kill-server", "k1", SECOND, 3 * SECOND, "gone")], "objects": [objects], "exits": [],
        "verdict": checking.Verdict(violations=0, text=""), "gates": [], "missed": [], "alarms": {}, "client_starts": {},
        "client_failures": [],
    }  # fmt: skip
    return Run(**{**values, **more})


def test_the_report_has_a_row_per_fault_with_its_impact_on_clients() -> None:
    text = render(run())

    assert "| kill-server | 1 | 1 | 16.0 / 16.0, 16.0, 0, 0 |" in text


def test_a_run_with_a_gate_that_was_not_checked_does_not_count_as_complete() -> None:
    passed, unchecked, failed = (Gate(name="gate", is_passed=value, figures="") for value in (True, None, False))

    assert render(run(gates=[passed])).startswith("# Nemesis: every gate was passed\n")
    assert "the run is not complete: gate not checked" in render(run(gates=[passed, unchecked])).splitlines()[0]
    assert not run(gates=[passed, failed]).is_passed


def test_objects_that_wait_for_the_stores_clock_are_reported_and_fail_no_gate() -> None:
    found = gates.leftovers(leftovers(later=5), 7, has_workers=True, waited_s=1)

    assert results(found) == [True, True, True]
    assert "5 wait for the store's clock" in found[0].figures


def test_the_key_of_a_wal_object_tells_when_it_was_written() -> None:
    assert written_ms("wal/2026112707/0199c6d1-5c00-7000-8000-000000000000") == 0x0199C6D15C00
    assert written_ms("kept/0199c6d1-5c00-7000-8000-000000000000") == 0
