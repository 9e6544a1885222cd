"""The seed determines the schedule of faults, and each kind has its turn."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from nemesis.process_faults import Fault
from nemesis.schedule import AGAIN_MAX, InjectedFault, Schedule


class Time:
    """A clock that the test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def kind(name: str, *resources: str, fails: bool = False) -> type[Fault]:
    """A fault whose only effect is its proof."""

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


def injected_faults(seed: int, kinds: tuple[type[Fault], ...] = KINDS, steps: int = 3_000) -> list[InjectedFault]:
    """Return the faults of the first five minutes."""
    clock = Time()
    cluster: Any = SimpleNamespace(seed=seed)
    schedule = Schedule(cluster, kinds, clock=clock)
    for _ in range(steps):
        schedule.step()
        clock.now_s += 0.1
    schedule.end_all()
    return schedule.injected_faults


def test_a_seed_draws_the_same_faults_again() -> None:
    assert injected_faults(1) == injected_faults(1)
    assert injected_faults(1) != injected_faults(2)


def test_every_kind_happens_once_before_any_kind_happens_again() -> None:
    counts = Counter(fault.kind for fault in injected_faults(3))

    assert set(counts) == set("abcde")
    assert max(counts.values()) - min(counts.values()) <= 1


def test_faults_with_a_common_resource_never_overlap() -> None:
    needs = {kind.name: kind.resources for kind in KINDS}
    found = injected_faults(4)
    pairs = [
        (first, second)
        for first in found
        for second in found
        if first is not second and first.begun <= second.begun < first.ended
    ]

    assert pairs
    assert [(first.kind, second.kind) for first, second in pairs if needs[first.kind] & needs[second.kind]] == []


def test_a_fault_that_cannot_begin_is_recorded_and_the_others_continue() -> None:
    found = injected_faults(5, (kind("broken", fails=True), kind("sound")))

    assert {injected_fault.error for injected_fault in found if injected_fault.kind == "broken"} == {
        "RuntimeError: not now"
    }
    assert all(injected_fault.proof == "seen" for injected_fault in found if injected_fault.kind == "sound")


def test_a_kind_that_took_no_effect_is_repeated_before_the_next_round() -> None:
    class Unseen(Fault):
        name = "unseen"

        def begin(self) -> str:
            return "something"

        def end(self) -> str | None:
            return None

    found = [fault.kind for fault in injected_faults(6, (Unseen, kind("sound"), kind("steady")))]

    assert found[:4].count("unseen") == 2  # its turn, and once again
    assert found.count("unseen") - found.count("sound") in (AGAIN_MAX - 1, AGAIN_MAX)
