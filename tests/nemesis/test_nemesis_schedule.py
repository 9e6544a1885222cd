"""Which faults happen when follows from the seed, and each kind gets its turn."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from nemesis.process_faults import Fault
from nemesis.schedule import AGAIN_MAX, Happening, Schedule


class Time:
    """A clock that the test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def kind(name: str, *resources: str, fails: bool = False) -> type[Fault]:
    """A fault that only says that it was there."""

    class Named(Fault):
        def begin(self) -> str:
            if fails:
                raise RuntimeError("not now")
            return f"something {self.random.random():.6f}"

        def end(self) -> str | None:
            return "seen"

    Named.name = name
    Named.resources = frozenset(resources)
    return Named


KINDS = (kind("a"), kind("b", "store"), kind("c", "store"), kind("d", "network"), kind("e", "network", "store"))


def happenings(seed: int, kinds: tuple[type[Fault], ...] = KINDS, steps: int = 3_000) -> list[Happening]:
    """What happens in the first five minutes."""
    clock = Time()
    world: Any = SimpleNamespace(seed=seed)
    schedule = Schedule(world, kinds, clock=clock)
    for _ in range(steps):
        schedule.step()
        clock.now_s += 0.1
    schedule.end_all()
    return schedule.happenings


def test_a_seed_draws_the_same_faults_again() -> None:
    assert happenings(1) == happenings(1)
    assert happenings(1) != happenings(2)


def test_each_kind_has_happened_before_one_comes_again() -> None:
    counts = Counter(one.kind for one in happenings(3))

    assert set(counts) == set("abcde")
    assert max(counts.values()) - min(counts.values()) <= 1


def test_faults_with_a_common_resource_never_overlap() -> None:
    needs = {one.name: one.resources for one in KINDS}
    found = happenings(4)
    pairs = [(one, two) for one in found for two in found if one is not two and one.begun <= two.begun < one.ended]

    assert pairs
    assert [(one.kind, two.kind) for one, two in pairs if needs[one.kind] & needs[two.kind]] == []


def test_a_fault_that_cannot_begin_is_noted_and_the_others_go_on() -> None:
    found = happenings(5, (kind("broken", fails=True), kind("sound")))

    assert {one.error for one in found if one.kind == "broken"} == {"RuntimeError: not now"}
    assert all(one.proof == "seen" for one in found if one.kind == "sound")


def test_a_kind_that_was_not_seen_comes_again_before_the_next_round_a_few_times() -> None:
    class Unseen(Fault):
        name = "unseen"

        def begin(self) -> str:
            return "something"

        def end(self) -> str | None:
            return None

    found = [one.kind for one in happenings(6, (Unseen, kind("sound"), kind("steady")))]

    assert found[:4].count("unseen") == 2  # its turn, and once more
    assert found.count("unseen") - found.count("sound") in (AGAIN_MAX - 1, AGAIN_MAX)
