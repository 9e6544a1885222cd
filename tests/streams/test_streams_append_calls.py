"""Calls get the outcomes of their batches; receive buffers are released when their batches are sealed into an object."""

import pytest

from bearlake.metadata.model import Outcome, OutcomeKind, PartitionKey, ServerRef
from bearlake.streams.append import UNAVAILABLE, Append, AppendCall, resolve
from bearlake.streams.buffer import WriteBuffer, seal

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


def call_of(*appends: Append) -> AppendCall:
    return AppendCall(appends, lambda _: None, 0)


def test_each_call_gets_its_results_and_is_returned_with_its_last_one() -> None:
    first, second, gone = call_of(append(1), append(2)), call_of(append(1), append(1)), call_of(append(2))
    gone.expire()
    entries = [(call, place, append(1)) for call, place in [(first, 1), (second, 0), (gone, 0), (first, 0)]]
    results = [Outcome(OutcomeKind.ACCEPTED, at, 0) for at in range(4)]

    assert resolve(entries, results) == [first]
    assert first.results == [results[3], results[0]]
    assert (first.waiting, second.waiting, gone.waiting) == (0, 1, -1)
    assert gone.results == [UNAVAILABLE]


def test_the_number_of_results_must_equal_the_number_of_batches() -> None:
    call = call_of(append(1), append(1))

    with pytest.raises(ValueError, match="1 results for 2 batches"):
        resolve([(call, 0, append(1)), (call, 1, append(1))], [Outcome(OutcomeKind.ACCEPTED, 0, 0)])

    assert (call.waiting, call.results) == (2, [UNAVAILABLE, UNAVAILABLE])


def test_sealing_releases_every_hold_of_every_batch() -> None:
    first, second = Hold(), Hold()
    buffer = WriteBuffer(0.0)
    items = [append(1, hold) for hold in (first, first, None, second, first)]
    call = call_of(*items)
    buffer.partitions[PartitionKey(1)] = [(call, at, item) for at, item in enumerate(items)]

    seal(buffer, ServerRef(node_id=1, epoch=1))

    assert (first.held, first.calls, second.held) == (-3, 2, -1)
