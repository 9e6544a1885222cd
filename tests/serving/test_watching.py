"""When an observer declares a server lapsed: the observer saw no new heartbeat for the server's own timeout."""

from collections.abc import Mapping

from bearlake.metadata.model import Server, ServerRef
from bearlake.serving.watching import Watcher

OWN = ServerRef(node_id=0, epoch=1)
A, B = ServerRef(node_id=1, epoch=1), ServerRef(node_id=2, epoch=1)
TIMEOUT_MS = 6_000
SECONDS = range(1, 7)


def server(ref: ServerRef, count: int, timeout_ms: int = TIMEOUT_MS) -> Server:
    return Server(
        ref=ref,
        name=str(ref.node_id),
        zone=None,
        endpoints={},
        version="",
        is_draining=False,
        heartbeat_count=count,
        timeout_ms=timeout_ms,
    )


class Observer:
    """Reads take 100 ms."""

    def __init__(self, interval_ms: int = 1_000) -> None:
        self.watcher = Watcher(OWN, interval_ms)

    def reads(self, at_s: float, counts: Mapping[ServerRef, int], *, took_ms: int = 100) -> list[ServerRef]:
        """The servers that a read that begins at `at_s` reports as stopped."""
        servers = [server(ref, count) for ref, count in counts.items()]
        return [server.ref for server in self.watcher.saw(at_s * 1000, at_s * 1000 + took_ms, servers)]


def test_a_count_that_does_not_change_for_the_timeout_is_reported() -> None:
    observer = Observer()

    reports = [observer.reads(at_s, {A: 7, B: at_s}) for at_s in range(9)]

    assert reports == [[]] * 7 + [[A]] * 2


def test_the_time_between_the_end_of_the_first_and_the_start_of_the_last_read_counts() -> None:
    observer = Observer()
    for at_s in range(6):
        observer.reads(at_s, {A: 7})

    assert observer.reads(6.09, {A: 7}) == []
    assert observer.reads(6.25, {A: 7}) == [A]


def test_a_heartbeat_restarts_the_time() -> None:
    observer = Observer()
    for at_s in range(6):
        observer.reads(at_s, {A: 7})

    assert [observer.reads(at_s, {A: 8}) for at_s in range(6, 13)] == [[]] * 7
    assert observer.reads(13, {A: 8}) == [A]


def test_an_observer_that_did_not_read_for_a_while_starts_over() -> None:
    observer = Observer()
    for at_s in range(5):
        observer.reads(at_s, {A: 7})

    assert [observer.reads(at_s, {A: 7}) for at_s in range(60, 67)] == [[]] * 7
    assert observer.reads(67, {A: 7}) == [A]


def test_an_observer_whose_read_took_long_starts_over_too() -> None:
    observer = Observer()
    for at_s in range(5):
        observer.reads(at_s, {A: 7})

    assert observer.reads(5, {A: 7}, took_ms=4_000) == []
    assert [observer.reads(at_s, {A: 7}) for at_s in range(9, 16)] == [[]] * 7
    assert observer.reads(16, {A: 7}) == [A]


def test_a_short_pause_of_the_observer_changes_nothing() -> None:
    observer = Observer()
    observer.reads(0, {A: 7})

    assert [observer.reads(at_s, {A: 7}) for at_s in (2.8, 5.6, 8.4)] == [[], [], [A]]


def test_an_observer_with_a_long_interval_still_checks_servers_with_a_short_timeout() -> None:
    watcher = Watcher(OWN, interval_ms=1_000)
    quick = server(A, 7, timeout_ms=1_200)

    assert [len(watcher.saw(at_ms, at_ms + 10, [quick])) for at_ms in (0, 1_000, 2_000)] == [0, 0, 1]


def test_a_new_registration_is_watched_from_its_own_start() -> None:
    observer = Observer()
    for at_s in range(6):
        observer.reads(at_s, {A: 0})

    assert observer.reads(7, {ServerRef(node_id=1, epoch=2): 0}) == []


def test_a_server_does_not_watch_itself() -> None:
    observer = Observer()

    assert [observer.reads(at_s, {OWN: 0}) for at_s in range(20)] == [[]] * 20


def test_a_server_that_revived_after_a_lapse_is_watched_again() -> None:
    observer = Observer()
    for at_s in range(8):
        observer.reads(at_s, {A: 7})
    observer.reads(8, {})

    assert observer.reads(9, {A: 7}) == []


def test_ages_are_those_of_the_last_change_that_was_seen() -> None:
    observer = Observer()
    observer.reads(0, {A: 7, B: 1})
    observer.reads(60, {A: 7, B: 2})

    assert observer.watcher.age_ms(A, 61_000) == 60_900
    assert observer.watcher.age_ms(B, 61_000) == 900
    assert observer.watcher.age_ms(OWN, 61_000) == 0
