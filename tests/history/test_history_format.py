"""The file format, version 1: a golden file, files of killed processes, and invalid files."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.history import format as history_format
from simulator.history.__main__ import main
from simulator.history.check import check, check_files
from simulator.history.format import CALLS, Malformed
from simulator.history.model import (
    NOTHING,
    Answer,
    Commit,
    Kind,
    Log,
    Operation,
    Outcome,
    Produce,
    Read,
    Record,
    Seen,
)
from simulator.history.reader import pair, read_files
from simulator.history.writer import Recorder, Writer

GOLDEN = Path(__file__).parent / "golden" / "version-1.jsonl"
COMMIT = Commit(group="g", log=Log("orders", 0), offset=1)
HEADER = '{"history":1}\n'


def written_again(operations: list[Operation]) -> list[str]:
    """The lines of the operations, in order of time."""
    events = []
    for number, operation in enumerate(sorted(operations, key=lambda operation_: operation_.start)):
        events.append(
            (operation.start, history_format.invoke(number, operation.start, operation.process, operation.call))
        )
        if operation.end is not None:
            line = history_format.completion(number, operation.end, operation.outcome, operation.answer)
            events.append((operation.end, line))
    return [history_format.header("monotonic_ns"), *(line for _, line in sorted(events))]


def test_the_golden_file_is_read_and_written_unchanged() -> None:
    operations = list(read_files([GOLDEN]))

    assert "".join(written_again(operations)) == GOLDEN.read_text()
    assert {type(operation.call) for operation in operations} == set(CALLS.values())
    assert {operation.outcome for operation in operations} == set(Outcome)


def test_the_golden_file_keeps_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(GOLDEN)]) == 0

    assert "every promise was kept" in capsys.readouterr().out


def test_the_command_shows_the_operations_that_contradict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(GOLDEN.read_text().replace('"t":350,"offset":2', '"t":350,"offset":1'))

    assert main(["check", str(bad)]) == 1

    told = capsys.readouterr().out
    assert told.startswith("OFFSETS g orders/0@x: committed offsets are linearizable")
    assert "bad.jsonl:28" in told


@pytest.mark.parametrize("text", ["nonsense}\n", '{"e":"ok","i":0,"t":1}\n', '{"history":2}\n', HEADER + '{"e":1}\n'])
def test_a_file_that_is_not_a_history_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(text)

    assert main(["check", str(path)]) == 2
    assert "file.jsonl" in capsys.readouterr().err


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(Malformed, match="unknown operation"):
        [events.operation() for events in pair([HEADER, '{"e":"invoke","i":0,"t":1,"p":"p","op":"fly"}\n'], "file")]


def test_operations_of_a_killed_process_are_unknown_and_the_next_process_continues_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    clock = itertools.count().__next__
    writer = Writer(path, clock)
    writer.complete(writer.invoke("p", COMMIT), Outcome.OK)
    writer.invoke("p", COMMIT)
    writer.close()
    with path.open("a") as file:
        file.write('{"e":"invoke","i":2,"t":9,"p":"p","op":"comm')

    again = Writer(path, clock)
    again.complete(again.invoke("p", COMMIT), Outcome.FAIL)
    again.close()

    read = list(read_files([path]))
    assert [operation.outcome for operation in read] == [Outcome.OK, Outcome.UNKNOWN, Outcome.FAIL]
    assert [operation.end for operation in read] == [1, None, 4]


def test_a_writer_and_a_recorder_produce_the_same_history(tmp_path: Path) -> None:
    recorder = Recorder(itertools.count().__next__)
    writer = Writer(tmp_path / "file.jsonl", itertools.count().__next__)
    for history in (recorder, writer):
        first = history.invoke("p", COMMIT)
        second = history.invoke("q", Read(log=Log("orders", 0), start=0))
        history.complete(second, Outcome.OK, Answer(records=(Seen(0, "a"),)))
        history.complete(first, Outcome.UNKNOWN, Answer(is_answered=True))
    writer.close()

    read = list(read_files([tmp_path / "file.jsonl"]))
    assert [(operation_.call, operation_.start, operation_.end, operation_.answer) for operation_ in read] == [
        (operation.call, operation.start, operation.end, operation.answer) for operation in recorder.operations()
    ]


def test_files_are_checked_as_one_history_and_as_in_memory(tmp_path: Path) -> None:
    log = Log("orders", 0, "x")
    clock = itertools.count().__next__
    producer, reader = Writer(tmp_path / "producer", clock), Writer(tmp_path / "reader", clock)
    for number in range(50):
        call = Produce(log=log, producer="p", kind=Kind.IDEMPOTENT, sequence=number, records=(Record(f"{number}"),))
        producer.complete(producer.invoke("p", call), Outcome.OK, Answer(offset=number))
    seen = (*(Seen(number, f"{number}") for number in range(49)), Seen(49, "48"))
    reader.complete(reader.invoke("r", Read(log=log, start=0)), Outcome.OK, Answer(records=seen))
    paths = [tmp_path / "producer", tmp_path / "reader"]

    verdict = check_files(paths)

    assert [str(violation) for violation in verdict.violations] == [
        str(violation) for violation in check(read_files(paths)).violations
    ]
    assert {violation.promise.name for violation in verdict.violations} == {"STORED"}
    producer.close()
    reader.close()


@given(st.text(), st.integers(0), st.booleans(), st.none() | st.integers())
def test_calls_and_answers_are_read_as_they_were_written(
    text: str, number: int, flag: bool, offset: int | None
) -> None:
    call = Commit(group=text, log=Log(text, number, text), offset=offset)
    answer = Answer(offset=offset, why=text, is_answered=flag, incarnation=text, records=(Seen(number, text, text),))
    lines = [HEADER, history_format.invoke(0, 1, text, call), history_format.completion(0, 2, Outcome.OK, answer)]

    (events,) = pair(lines, "file")
    read = events.operation()

    assert (read.process, read.call, read.answer) == (text, call, answer)
    assert read.answer is not NOTHING
