"""The pace of a connection: when its socket is read, and when a client that stalls is disconnected."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from bearlake.serving.pacing import ConnectionMeters, PacedConnection
from bearlake.serving.slabs import SlabPool, SlabSettings
from bearlake.serving.slow_readers import SlowReaders
from bearlake.telemetry.meters import Counter, Families, Family, Gauge

STALL_MS = 1_000


class Clock:
    """The part of an event loop that connections read the time from."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """A timer that the test runs itself."""
        return asyncio.TimerHandle(self.now + delay_s, callback, (), self)  # type: ignore[arg-type]  # a loop's clock

    def call_soon(self, callback: Callable[[], None]) -> None:
        """The next turn: no test has one."""

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing is kept of a timer."""


class Register:
    """Takes `most` connections."""

    def __init__(self, most: int = 10) -> None:
        self.loop = Clock()
        self.slabs = SlabPool(SlabSettings())
        self.slow_readers = SlowReaders(1000)
        self.meters = ConnectionMeters(
            open=Gauge(),
            opened=Counter(),
            closed=Family(Families(), "closed", "", Counter, ("reason",)),
            paused=Gauge(),
            malformed=Counter(),
            received_bytes=Counter(),
            sent_bytes=Counter(),
            receive_buffer_bytes=Gauge(),
            receive_buffer_bytes_max=Gauge(),
        )
        self.open: set[PacedConnection] = set()
        self._most = most

    def add(self, connection: PacedConnection) -> bool:
        if len(self.open) >= self._most:
            return False
        self.open.add(connection)
        return True

    def remove(self, connection: PacedConnection) -> None:
        self.open.discard(connection)

    def run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        return asyncio.ensure_future(work)


class Seen:
    """The log position that the server has seen."""

    position = 0


class Budget:
    """Over its limit as long as a test says so."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.is_over_budget = False
        self.waiting: list[Callable[[], None]] = []

    def on_relief(self, resume: Callable[[], None]) -> None:
        self.waiting.append(resume)

    def leave_relief(self, resume: Callable[[], None]) -> None:
        self.waiting = [waiting for waiting in self.waiting if waiting != resume]

    def relieve(self) -> None:
        self.is_over_budget = False
        self.waiting.pop()()


class Transport:
    """A socket's other side, as far as a connection sees it."""

    def __init__(self) -> None:
        self.is_read = True
        self.is_aborted = False
        self.is_closed = False
        self.unsent_bytes = 0

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 5) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def abort(self) -> None:
        self.is_aborted = True
        self.unsent_bytes = 0


class Connection(PacedConnection):
    """Takes frames of four bytes, none of them while the budget is exceeded."""

    def __init__(self, register: Register, budget: Budget) -> None:
        super().__init__(register, budget, "test", STALL_MS)
        self.taken: list[bytes] = []

    def _process(self) -> None:
        first = self._low
        while self._high - self._low >= 4 and not self._must_wait():
            if self._budget.is_over_budget:
                self._wait_for_budget()
                break
            self.taken.append(bytes(self._slab.view[self._low : self._low + 4]))
            self._low += 4
        self._processed(first)

    def _must_wait(self) -> bool:
        return self._waits_for_budget or self._is_write_paused or self.quota_wait is not None

    def check(self, now: float) -> None:
        self._close_if_stalled(now)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._resume()


class Scene:
    """One open connection."""

    def __init__(self, most: int = 10) -> None:
        self.register, self.budget, self.transport = Register(most), Budget(), Transport()
        self.connection = Connection(self.register, self.budget)
        self.connection.connection_made(self.transport)

    def receive(self, sent: bytes) -> None:
        view = self.connection.get_buffer(-1)
        view[: len(sent)] = sent
        self.connection.buffer_updated(len(sent))

    def pass_time(self, ms: int) -> None:
        """Let time pass, then check the connection."""
        self.register.loop.now += ms / 1000
        self.connection.check(self.register.loop.now)

    def closed(self, reason: str) -> float:
        return self.register.meters.closed.labels(reason).value


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_connection_with_a_bug_is_closed_and_the_other_connections_resume(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("a bug")

    scene.budget.is_over_budget = True
    scene.receive(b"abcd")
    monkeypatch.setattr(scene.connection, "_process", broken)

    scene.budget.relieve()

    assert scene.transport.is_aborted
    assert scene.closed("internal_error") == 1


def test_a_socket_is_not_read_while_the_write_path_is_over_its_budget(scene: Scene) -> None:
    scene.budget.is_over_budget = True

    scene.receive(b"aaaabbbb")

    assert not scene.transport.is_read
    assert scene.register.meters.paused.value == 1
    assert scene.connection.taken == []


def test_frames_that_waited_for_the_budget_are_taken_when_there_is_room(scene: Scene) -> None:
    scene.budget.is_over_budget = True
    scene.receive(b"aaaabbbb")

    scene.budget.relieve()

    assert scene.connection.taken == [b"aaaa", b"bbbb"]
    assert scene.transport.is_read
    assert scene.register.meters.paused.value == 0


def test_a_client_that_begins_a_frame_and_sends_no_more_is_disconnected(scene: Scene) -> None:
    scene.receive(b"aaaabb")
    scene.pass_time(STALL_MS)
    assert not scene.transport.is_aborted

    scene.pass_time(1)

    assert scene.transport.is_aborted
    assert scene.closed("slow_request") == 1


def test_a_client_that_begins_no_frame_may_be_silent(scene: Scene) -> None:
    scene.receive(b"aaaa")

    scene.pass_time(10 * STALL_MS)

    assert not scene.transport.is_aborted


def test_the_time_in_which_the_server_does_not_read_does_not_count_against_a_client(scene: Scene) -> None:
    scene.receive(b"aa")
    scene.transport.unsent_bytes = 100
    scene.connection.pause_writing()
    scene.transport.unsent_bytes = 50
    scene.pass_time(STALL_MS)

    scene.connection.resume_writing()
    scene.pass_time(STALL_MS)

    assert not scene.transport.is_aborted
    scene.pass_time(1)
    assert scene.closed("slow_request") == 1


def test_a_client_that_reads_part_of_its_responses_in_time_stays_connected(scene: Scene) -> None:
    scene.transport.unsent_bytes = 100
    scene.connection.pause_writing()
    for left in (99, 98, 97):
        scene.transport.unsent_bytes = left
        scene.pass_time(STALL_MS)

    assert not scene.transport.is_aborted
    assert not scene.transport.is_read


def test_much_that_a_client_has_not_read_counts_before_its_transport_is_full(scene: Scene) -> None:
    scene.register.slow_readers.bytes_max = 1024 * 1024
    scene.transport.unsent_bytes = 100_000
    scene.pass_time(1)
    assert scene.register.slow_readers.unread_bytes == 100_000

    scene.transport.unsent_bytes = 1_000
    scene.pass_time(1)

    assert scene.register.slow_readers.unread_bytes == 0
    assert not scene.transport.is_aborted


def test_a_client_that_reads_none_of_its_responses_is_disconnected(scene: Scene) -> None:
    scene.transport.unsent_bytes = 100
    scene.connection.pause_writing()

    scene.pass_time(STALL_MS + 1)

    assert scene.transport.is_aborted
    assert scene.closed("slow_reader") == 1


def test_a_connection_over_the_limit_is_closed_at_once() -> None:
    scene = Scene(most=0)

    assert scene.transport.is_aborted
    assert scene.closed("connections_max") == 1


def test_a_connection_that_is_lost_gives_its_memory_back(scene: Scene) -> None:
    scene.receive(b"aa")
    assert scene.register.slabs.used_bytes > 0

    scene.connection.connection_lost(None)

    assert scene.register.slabs.used_bytes == 0
    assert scene.register.open == set()


async def test_a_request_that_fails_closes_its_connection(scene: Scene) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    await asyncio.wait([scene.connection.start(fail())])
    await asyncio.sleep(0)

    assert scene.transport.is_aborted
    assert scene.closed("internal_error") == 1


# -- what had been seen when bytes arrived ---------------------------------------------------------------------------


def test_bytes_that_arrive_at_an_empty_socket_count_as_arrived_after_it_was_emptied() -> None:
    scene = Scene()
    scene.receive(b"0000")
    assert scene.connection.arrived == 0
    scene.budget.seen.position = 7
    scene.receive(b"1111")
    assert scene.connection.arrived == 0
    scene.receive(b"2222")

    assert scene.connection.arrived == 7


def test_bytes_after_a_full_read_count_as_arrived_before_the_socket_was_emptied() -> None:
    """A full read does not show that the socket is empty: later bytes may have waited there."""
    scene = Scene()
    scene.receive(b"0000")
    scene.budget.seen.position = 7
    space = len(scene.connection.get_buffer(-1))
    scene.receive(b"1111" * (space // 4))
    scene.budget.seen.position = 9
    scene.receive(b"2222")
    assert scene.connection.arrived == 0
    scene.receive(b"3333")

    assert scene.connection.arrived == 9


def test_a_frame_arrives_when_its_first_byte_arrives() -> None:
    scene = Scene()
    scene.receive(b"0000")
    scene.budget.seen.position = 7
    scene.receive(b"1111")
    scene.receive(b"22")
    scene.budget.seen.position = 9
    scene.receive(b"2")
    scene.receive(b"2")
    assert scene.connection.arrived == 7
    scene.receive(b"3333")

    assert scene.connection.arrived == 9


def test_frames_that_wait_in_the_slab_do_not_become_younger() -> None:
    scene = Scene()
    scene.receive(b"0000")
    scene.receive(b"1111")
    scene.budget.is_over_budget = True
    scene.receive(b"2222")
    scene.budget.seen.position = 7
    scene.receive(b"3333")
    scene.receive(b"4444")
    scene.budget.relieve()

    assert scene.connection.taken[-3:] == [b"2222", b"3333", b"4444"]
    assert scene.connection.arrived == 0


def test_a_throttled_connection_is_not_read_until_its_time_is_over(scene: Scene) -> None:
    assert scene.connection.throttle(2.0)
    assert not scene.transport.is_read

    scene.receive(b"abcd")
    assert scene.connection.taken == []
    scene.connection.end_quota_wait()
    assert scene.connection.taken == [b"abcd"]
    assert scene.transport.is_read
    assert not scene.connection.throttle(0.0)


def test_the_longer_of_two_throttles_counts(scene: Scene) -> None:
    scene.connection.throttle(2.0)
    longer = scene.connection.quota_wait
    scene.connection.throttle(1.0)
    assert scene.connection.quota_wait is longer

    scene.connection.throttle(3.0)
    assert longer is not None
    assert longer.cancelled()
    assert scene.connection.quota_wait is not None
    assert scene.connection.quota_wait.when() == scene.register.loop.now + 3.0


def test_throttled_time_does_not_count_as_a_stall_of_the_client(scene: Scene) -> None:
    scene.receive(b"ab")
    scene.connection.throttle(60.0)
    scene.pass_time(10 * STALL_MS)

    assert not scene.transport.is_aborted


def test_a_closed_connection_is_not_throttled(scene: Scene) -> None:
    scene.connection.throttle(2.0)
    timer = scene.connection.quota_wait
    scene.connection.connection_lost(None)

    assert timer is not None
    assert timer.cancelled()


def test_a_connection_that_closes_behind_unread_bytes_has_a_time_limit(scene: Scene) -> None:
    """The client has closed its end, so the event loop closes the transport once it is empty."""
    scene.receive(b"aa")
    scene.transport.is_closed = True
    scene.transport.unsent_bytes = 100
    scene.pass_time(1)
    scene.transport.unsent_bytes = 99
    scene.pass_time(STALL_MS)
    assert not scene.transport.is_aborted

    scene.pass_time(STALL_MS + 1)

    assert scene.transport.is_aborted
    assert scene.closed("slow_reader") == 1


def test_a_connection_that_closes_behind_unread_bytes_can_be_given_up(scene: Scene) -> None:
    scene.register.slow_readers.bytes_max = 1_000
    scene.transport.unsent_bytes = 900
    scene.connection.pause_writing()
    scene.transport.is_closed = True
    scene.transport.unsent_bytes = 1_001

    scene.pass_time(1)

    assert scene.transport.is_aborted
    assert scene.register.slow_readers.unread_bytes == 0
    assert scene.closed("slow_reader") == 1


def test_a_client_that_is_sent_more_while_it_reads_does_not_stall(scene: Scene) -> None:
    scene.transport.unsent_bytes = 100
    scene.connection.pause_writing()

    for _ in range(3):
        scene.connection._written_bytes += 60  # noqa: SLF001 - an answer to an earlier request
        scene.transport.unsent_bytes += 10
        scene.pass_time(STALL_MS)

    assert not scene.transport.is_aborted


def test_answers_that_are_held_back_count_as_unread(scene: Scene) -> None:
    scene.register.slow_readers.bytes_max = 1024 * 1024
    scene.transport.unsent_bytes = 100
    scene.connection._ready_bytes = 500_000  # noqa: SLF001 - set by a protocol that answers in order
    scene.connection.pause_writing()
    assert scene.register.slow_readers.unread_bytes == 500_100

    scene.transport.abort()

    assert scene.connection.unread_bytes == 0
