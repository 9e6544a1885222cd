"""Memory of batches: kept until the object is joined, and not longer; and callbacks that use the buffer or the call that called them."""

import array
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bearlake.errors import Corrupt
from bearlake.kernel import Append, PartitionKey
from bearlake.records.codec import Record, encode
from fixtures.produces import Memory, Reads, Story

BATCH = encode([Record(value=b"v" * 500)])
LEAD = b"\0\1c"
STREAM = bytes(16)
RULES = (STREAM, 0, 100, 1 << 20, -1, 2**62, 1)
WAITING = (8, -1, -1)
DONE = (0, 7, 3)


def frame(partitions: int = 1, correlation_id: int = 1) -> bytes:
    """A Produce request, version 3, with one batch for each of the first partitions of a topic."""
    body = b"\xff\xff\xff\xff\0\0\x75\x30\0\0\0\1\0\5topic" + partitions.to_bytes(4, "big")
    for index in range(partitions):
        body += index.to_bytes(4, "big") + len(BATCH).to_bytes(4, "big") + BATCH
    content = b"\0\0\0\3" + correlation_id.to_bytes(4, "big") + LEAD + body
    return len(content).to_bytes(4, "big") + content


def append(batch: Any = BATCH, hold: Any = None, partition: int = 0) -> Append:
    return Append(PartitionKey(partition), STREAM, batch, hold, 1, 5, -1, -1, -1, 0)


class Hold:
    """Runs a callback once, when it is acquired or released."""

    def __init__(
        self, *, acquired: Callable[[], object] | None = None, released: Callable[[], object] | None = None
    ) -> None:
        self.acquired, self.released = acquired, released
        self.holders = 0

    def acquire(self, count: int = 1) -> None:
        callback, self.acquired = self.acquired, None
        if callback is not None:
            callback()
        self.holders += count

    def release(self, count: int = 1) -> None:
        self.holders -= count
        callback, self.released = self.released, None
        if callback is not None:
            callback()


class Admission:
    """Admits everything, and runs a callback once, when it is asked."""

    def __init__(self, rules: Callable[[], object] | None = None, flags: Callable[[], object] | None = None) -> None:
        self._rules, self._flags = rules, flags

    def rules(self, topic: str | bytes) -> tuple[Any, ...]:
        callback, self._rules = self._rules, None
        if callback is not None:
            callback()
        return RULES if self._flags is None else (*RULES[:3], 0, *RULES[4:])

    def flags(self, entry: Any) -> int:
        assert self._flags is not None
        self._flags()
        return 1


def take(
    kernel: ModuleType, buffer: Any, call: Any, memory: Any, hold: Any = None, admission: Any = None
) -> tuple[int, bool, int]:
    found: tuple[int, bool, int] = kernel.take_produces(
        buffer, call, memory, hold, 0, len(memory), 3, LEAD, 1 << 20, 64, 0, admission or Admission(), 0
    )
    return found


def buffer_with(kernel: ModuleType, count: int) -> Any:
    buffer = kernel.WriteBuffer(1 << 20)
    if count:
        buffer.add(kernel.Results(count, WAITING), [append()] * count, 0, 0)
    return buffer


def stored(buffer: Any) -> list[Any]:
    """The batches, which all of them find in the object; and all of them get outcomes."""
    target = buffer.join(0, 0)
    commits: list[Any] = buffer.commits()
    assert bytes(target) == BATCH * len(commits)
    buffer.resolve([DONE] * len(commits))
    return commits


def resizes(memory: bytearray) -> bool:
    try:
        memory.append(0)
    except BufferError:
        return False
    memory.pop()
    return True


def test_what_follows_the_join_does_not_depend_on_the_receive_memory(kernel: ModuleType) -> None:
    """`Story` overwrites and resizes a read's memory once its hold has no holder."""
    story = Story(
        kernel, Reads((frame(3) + frame(2, 2), frame(4, 3)), 3, LEAD, 1 << 20, 64, 1 << 20, 0, [append(partition=1)], 0)
    )
    target, *_ = (told for told in story.told if isinstance(told, bytes))
    requests = [
        told
        for told in story.told
        if isinstance(told, list) and isinstance(told[0], tuple) and isinstance(told[0][1], list)
    ]

    assert target == BATCH * 10
    assert [(at, places) for at, places, _ in chain(*requests)] == [
        (1, [("topic", 0), ("topic", 1), ("topic", 2)]),
        (2, [("topic", 0), ("topic", 1)]),
        (3, [("topic", at) for at in range(4)]),
    ]


def test_memory_is_kept_until_the_join(kernel: ModuleType) -> None:
    memory, hold, other = bytearray(frame(3)), Hold(), bytearray(BATCH)
    buffer, call = buffer_with(kernel, 1), kernel.ProduceResults(WAITING)
    take(kernel, buffer, call, memory, hold)
    buffer.add(kernel.Results(1, WAITING), [append(other)], 0, 0)

    assert (hold.holders, resizes(memory), resizes(other)) == (3, False, False)
    stored(buffer)

    assert (hold.holders, resizes(memory), resizes(other)) == (0, True, True)


def test_memory_of_a_buffer_that_is_not_joined_goes_with_it(kernel: ModuleType) -> None:
    memory = bytearray(frame(3))
    buffer, call = kernel.WriteBuffer(1 << 20), kernel.ProduceResults(WAITING)
    take(kernel, buffer, call, memory)
    assert not resizes(memory)

    del buffer

    assert resizes(memory)


def test_memory_of_requests_that_are_not_taken_is_not_kept(kernel: ModuleType) -> None:
    memory, hold = bytearray(frame()), Hold()
    buffer = kernel.WriteBuffer(1)

    assert take(kernel, buffer, kernel.ProduceResults(WAITING), memory, hold) == (0, False, 0)
    assert (hold.holders, resizes(memory)) == (0, True)


def test_every_view_is_released_before_the_first_hold(kernel: ModuleType) -> None:
    memories = [bytearray(BATCH) for _ in range(3)]
    free: list[bool] = []
    holds = [Hold(released=lambda: free.extend(map(resizes, memories))) for _ in memories]
    buffer = kernel.WriteBuffer(1 << 20)
    buffer.add(kernel.Results(3, WAITING), [append(*pair) for pair in zip(memories, holds, strict=True)], 0, 0)

    stored(buffer)

    assert free == [True] * 9


def test_a_hold_whose_release_fails_is_reported_and_the_others_are_released(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("not released")

    monkeypatch.setattr(sys, "unraisablehook", lambda args: None)
    holds = [Hold(released=fail), Hold()]
    buffer = kernel.WriteBuffer(1 << 20)
    buffer.add(kernel.Results(2, WAITING), [append(BATCH, hold) for hold in holds], 0, 0)

    assert len(stored(buffer)) == 2
    assert [hold.holders for hold in holds] == [0, 0]


def test_a_hold_that_cannot_be_acquired_changes_nothing(kernel: ModuleType) -> None:
    def fail() -> None:
        raise RuntimeError("no more holders")

    memory = bytearray(frame())
    buffer, call = buffer_with(kernel, 1), kernel.ProduceResults(WAITING)
    with pytest.raises(RuntimeError, match="no more holders"):
        take(kernel, buffer, call, memory, Hold(acquired=fail))
    with pytest.raises(RuntimeError, match="no more holders"):
        buffer.add(kernel.Results(1, WAITING), [append(memory, Hold(acquired=fail))], 0, 0)

    assert resizes(memory)
    assert (call.request_count, len(call), call.frames(), call.requests()) == (0, 0, b"", [])
    assert take(kernel, buffer, call, memory) == (len(memory), False, 0)
    assert len(stored(buffer)) == 2


def test_a_batch_whose_items_are_not_bytes_is_not_kept(kernel: ModuleType) -> None:
    memory, hold = array.array("i", [1, 2]), Hold()
    buffer = kernel.WriteBuffer(1 << 20)

    with pytest.raises(ValueError, match="a batch is a buffer of bytes"):
        buffer.add(kernel.Results(1, WAITING), [append(memory, hold)], 0, 0)

    assert hold.holders == 0
    memory.append(0)  # raises BufferError while a view is held


# -- callbacks that use the buffer or the call -------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["rules", "flags"])
def test_an_admission_may_add_to_the_buffer(kernel: ModuleType, asked: str) -> None:
    buffer, call = buffer_with(kernel, 1), kernel.ProduceResults(WAITING)
    others: list[Any] = []

    def add() -> None:
        others.append(kernel.Results(40, WAITING))
        buffer.add(others[-1], [append(bytearray(BATCH))] * 40, 0, 0)

    take(kernel, buffer, call, frame(2), None, Admission(**{asked: add}))

    assert len(stored(buffer)) == 3 + 40 * len(others)
    assert {tuple(outcome) for results in (call, *others) for outcome in results} == {DONE}


@pytest.mark.parametrize("asked", ["rules", "flags"])
def test_a_buffer_that_an_admission_joins_takes_nothing(kernel: ModuleType, asked: str) -> None:
    buffer, call = buffer_with(kernel, 1), kernel.ProduceResults(WAITING)
    memory, hold = bytearray(frame(60)), Hold()

    def join() -> None:
        if hold.holders == 0:
            hold.holders = 1
            buffer.join(0, 0)

    with pytest.raises(ValueError, match="joined already"):
        take(kernel, buffer, call, memory, hold, Admission(**{asked: join}))

    assert (len(buffer.commits()), buffer.count, call.request_count, hold.holders) == (1, 1, 0, 1)
    assert resizes(memory)


def test_a_buffer_that_a_hold_joins_takes_nothing(kernel: ModuleType) -> None:
    memory = bytearray(frame(60))
    for add in (False, True):
        buffer, call = buffer_with(kernel, 1), kernel.ProduceResults(WAITING)
        hold = Hold(acquired=partial(buffer.join, 0, 0))

        appends = [append(memory, hold)] * 60
        with pytest.raises(ValueError, match="joined already"):
            buffer.add(kernel.Results(60, WAITING), appends, 0, 0) if add else take(kernel, buffer, call, memory, hold)
        del appends

        assert (len(buffer.commits()), buffer.count, hold.holders, call.request_count) == (1, 1, 0, 0)
        assert resizes(memory)


def test_a_hold_may_add_to_the_buffer(kernel: ModuleType) -> None:
    buffer, memories = kernel.WriteBuffer(1 << 20), [bytearray(BATCH), bytearray(BATCH)]
    results = [kernel.Results(1, WAITING) for _ in memories]
    hold = Hold(acquired=lambda: buffer.add(results[1], [append(memories[1])], 0, 0))

    buffer.add(results[0], [append(memories[0], hold)], 0, 0)

    assert [resizes(memory) for memory in memories] == [False, False]
    assert len(stored(buffer)) == 2
    assert [resizes(memory) for memory in memories] == [True, True]
    assert [list(outcomes) for outcomes in results] == [[DONE], [DONE]]


def test_a_hold_may_take_requests_when_it_is_released(kernel: ModuleType) -> None:
    buffer, other = kernel.WriteBuffer(1 << 20), kernel.WriteBuffer(1 << 20)
    memory, call = bytearray(frame(3)), kernel.ProduceResults(WAITING)
    hold = Hold(released=lambda: take(kernel, other, call, memory))
    take(kernel, buffer, kernel.ProduceResults(WAITING), memory, hold)

    assert len(stored(buffer)) == 3
    assert len(stored(other)) == 3
    assert resizes(memory)


def test_a_joined_buffer_takes_nothing_while_it_releases(kernel: ModuleType) -> None:
    refused: list[str] = []

    def again() -> None:
        for attempt in (
            lambda: buffer.add(kernel.Results(1, WAITING), [append()], 0, 0),
            lambda: buffer.join(0, 0),
            lambda: take(kernel, buffer, kernel.ProduceResults(WAITING), frame()),
        ):
            with pytest.raises(ValueError, match="joined already") as error:
                attempt()
            refused.append(str(error.value))

    buffer = kernel.WriteBuffer(1 << 20)
    buffer.add(kernel.Results(1, WAITING), [append(BATCH, Hold(released=again))], 0, 0)

    assert len(stored(buffer)) == 1
    assert len(refused) == 3


@pytest.mark.parametrize("inner", [1, 60])
def test_a_call_has_the_requests_that_were_taken_first(kernel: ModuleType, inner: int) -> None:
    for by_hold in (False, True):
        buffer, call = kernel.WriteBuffer(1 << 20), kernel.ProduceResults(WAITING)
        again = lambda buffer=buffer, call=call: take(kernel, buffer, call, frame(inner))  # noqa: E731 - both use it
        hold, admission = (Hold(acquired=again), None) if by_hold else (None, Admission(again))

        with pytest.raises(ValueError, match="the call has requests"):
            take(kernel, buffer, call, frame(5), hold, admission)

        taken = 0 if by_hold else inner
        assert (buffer.count, len(call), call.request_count) == (taken, taken, min(taken, 1))
        assert len(call.requests()) == min(taken, 1)


def test_results_are_made_once(kernel: ModuleType) -> None:
    buffer, call = kernel.WriteBuffer(1 << 20), kernel.ProduceResults(WAITING)
    take(kernel, buffer, call, frame(60))

    for count in (0, 2, 100):
        with pytest.raises(ValueError, match="has results"):
            kernel.Results.__init__(call, count, DONE)

    assert len(stored(buffer)) == len(call) == 60
    assert call.frames() is not None


class Index:
    """A number that runs a callback when it is read."""

    def __init__(self, read: Callable[[], object]) -> None:
        self._read = read

    def __index__(self) -> int:
        self._read()
        return 0


def test_outcomes_may_change_their_list_and_close_their_call(native: ModuleType) -> None:
    buffer, results = native.WriteBuffer(1 << 20), native.Results(2, WAITING)
    buffer.add(results, [append(), append()], 0, 0)
    buffer.join(0, 0)
    outcomes: list[Any] = []
    outcomes += [(Index(outcomes.clear), 1, 1), (Index(results.close), 2, 2)]

    assert buffer.resolve(outcomes) == []
    assert results.waiting == 0
    assert list(results) == [(0, 1, 1), WAITING]


def test_appends_may_join_the_buffer(kernel: ModuleType) -> None:
    class Joining(Sequence[Append]):
        def __len__(self) -> int:
            return 60

        def __getitem__(self, at: Any) -> Any:
            if not buffer.count == len_before:
                raise IndexError
            if not joined:
                joined.append(buffer.join(0, 0))
            return append()

        def __iter__(self) -> Iterator[Append]:
            return (self[at] for at in range(60))

    buffer = buffer_with(kernel, 1)
    len_before, joined = 1, []  # type: int, list[bytearray]

    with pytest.raises(ValueError, match="joined already"):
        buffer.add(kernel.Results(60, WAITING), Joining(), 0, 0)

    assert len(buffer.commits()) == 1


def test_an_admissions_error_is_not_a_malformed_request(kernel: ModuleType) -> None:
    def fail() -> None:
        raise Corrupt("of the admission")

    for admission in (Admission(fail), Admission(flags=fail)):
        call, memory = kernel.ProduceResults(WAITING), bytearray(frame())
        with pytest.raises(Corrupt, match="of the admission"):
            take(kernel, kernel.WriteBuffer(1 << 20), call, memory, None, admission)

        assert (call.request_count, len(call), resizes(memory)) == (0, 0, True)


def test_a_topic_is_asked_about_once_whatever_its_length_looks_like(kernel: ModuleType) -> None:
    """A varint may have more bytes than it needs."""
    partition = bytes(4) + bytes([len(BATCH) + 1 & 0x7F | 0x80, len(BATCH) + 1 >> 7]) + BATCH + b"\0"
    topics = b"\2t\2" + partition + b"\0" + b"\x82\0t\2" + partition + b"\0"
    content = b"\0\0\0\x09" + bytes(4) + LEAD + b"\0" + b"\0\xff\xff" + bytes(4) + b"\3" + topics + b"\0"
    asked: list[str] = []

    def rules(topic: str) -> tuple[Any, ...]:
        asked.append(topic)
        return RULES

    admission = SimpleNamespace(rules=rules, flags=None)
    memory, call = len(content).to_bytes(4, "big") + content, kernel.ProduceResults(WAITING)

    kernel.take_produces(
        kernel.WriteBuffer(1 << 20), call, memory, None, 0, len(memory), 9, LEAD + b"\0", 1 << 20, 1, 0, admission, 0
    )

    assert (call.request_count, len(call), asked) == (1, 2, ["t"])


def test_a_buffer_has_a_size(kernel: ModuleType) -> None:
    for size in (-1, -(2**63)):
        with pytest.raises(ValueError, match="a buffer has a size"):
            kernel.WriteBuffer(size)


def test_memory_of_a_story_ends_with_its_bytes() -> None:
    memory = Memory(b"abc")
    view = memoryview(memory.bytes)

    assert memory.is_exported
    view.release()
    memory.acquire(2)
    memory.release(2)
    assert bytes(memory.bytes[:3]) == b"\xee" * 3
