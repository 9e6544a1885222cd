"""Calls get the outcomes of their batches; receive buffers are released when their batches are sealed into an object."""

import pytest

from bearlake.metadata.model import Outcome, OutcomeKind, PartitionKey, ServerRef
from bearlake.streams.append import SERVER_FENCED, UNAVAILABLE, Append, AppendCall
from bearlake.streams.buffer import OpenBuffer, Sealed, seal
from bearlake.streams.writer_settings import WriterSettings

STREAM = bytes(range(16))


class Hold:
    def __init__(self) -> None:
        self.held = 0
        self.calls = 0

    def acquire(self, count: int = 1) -> None:
        self.held += count

    def release(self, count: int = 1) -> None:
        self.held -= count
        self.calls += 1


def append(partition: int, hold: Hold | None = None) -> Append:
    return Append(PartitionKey(partition), STREAM, b"x" * 70, hold, 2, 50, -1, -1, -1, 0)


def call_of(*appends: Append, answered: list[AppendCall] | None = None) -> AppendCall:
    return AppendCall(appends, (answered if answered is not None else []).append, 0)


def sealed(*calls: AppendCall) -> Sealed:
    buffer = OpenBuffer(WriterSettings())
    for call in calls:
        assert buffer.batches.add(call, call.appends, 0, 0) == len(call.appends)
    return seal(buffer, ServerRef(node_id=1, epoch=1))


def test_each_call_gets_its_results_and_is_returned_with_its_last_one() -> None:
    first, second, gone = call_of(append(2), append(1)), call_of(append(3), append(3)), call_of(append(2))
    made = sealed(second, first, gone)
    gone.expire()
    assert [batch.partition for batch in made.batches] == [1, 2, 2, 3, 3]
    results = [Outcome(OutcomeKind.ACCEPTED, at, 0) for at in range(5)]

    assert made.queued.resolve(results) == [first, second]
    assert list(first) == [results[1], results[0]]
    assert (first.waiting, second.waiting, gone.waiting) == (0, 0, 0)
    assert list(gone) == [UNAVAILABLE]


def test_the_number_of_results_must_equal_the_number_of_batches() -> None:
    call = call_of(append(1), append(1))
    made = sealed(call)

    with pytest.raises(ValueError, match="1 results for 2 batches"):
        made.queued.resolve([Outcome(OutcomeKind.ACCEPTED, 0, 0)])

    assert (call.waiting, list(call)) == (2, [UNAVAILABLE, UNAVAILABLE])


def test_a_call_is_answered_once() -> None:
    answered: list[AppendCall] = []
    late, refused = call_of(append(1), answered=answered), call_of(append(1), append(2), answered=answered)

    late.expire()
    late.expire()
    refused.refuse(SERVER_FENCED)
    refused.expire()

    assert answered == [late, refused]
    assert list(refused) == [SERVER_FENCED, SERVER_FENCED]


def test_sealing_releases_every_hold_of_every_batch() -> None:
    first, second = Hold(), Hold()

    sealed(call_of(*(append(1, hold) for hold in (first, first, None, second, first))))

    assert (first.held, first.calls, second.held) == (0, 2, 0)
