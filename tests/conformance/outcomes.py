"""What the tests of a suite did, what they are expected to do, and the difference.

`expected/SUITE.toml`:

    pass = ["name", …]               must pass
    quick = ["name", …]              the part of `pass` that `--quick` runs
    [skip]                           runs, but the test itself skips: name = "reason"
    [fail]                           runs and must fail: name = "reason"
    [exclude]                        is not run: name or pattern = "reason"
    [variant.name]                   how to run a test, for the suite's own runner

Every difference counts: a test that fails, one that passes although it is listed to fail or skip, one that did not run,
and one that nobody listed.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

State = Literal["pass", "fail", "skip"]
EXPECTED = Path(__file__).resolve().parent / "expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one test did: `note` is one line for people (why it failed, that it needed a second attempt)."""

    test: str
    state: State
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected list of one suite; `states` covers every test that runs, `reasons` every one that does not pass."""

    states: Mapping[str, State]
    quick: frozenset[str]
    reasons: Mapping[str, str]
    excluded: Mapping[str, str]
    variants: Mapping[str, Mapping[str, object]]

    def selected(self, *, is_quick: bool) -> list[str]:
        """Names of the tests to run, in the order of the list."""
        return [name for name in self.states if not is_quick or name in self.quick]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a suite's runner gets: where the server is, how much to run, where logs go, what is expected."""

    bootstrap: str
    is_quick: bool
    logs: Path
    expected: Expected

    def selected(self) -> list[str]:
        """Names of the tests to run, in the order of the list."""
        return self.expected.selected(is_quick=self.is_quick)


def load(suite: str) -> Expected:
    """Read `expected/SUITE.toml`; raises ValueError when a test is listed twice or has no reason."""
    document = tomllib.loads((EXPECTED / f"{suite}.toml").read_text(encoding="utf-8"))
    states: dict[str, State] = {}
    reasons: dict[str, str] = {}
    for name in document["pass"]:
        _enter(states, name, "pass")
    for state in ("skip", "fail"):
        for name, reason in document.get(state, {}).items():
            _enter(states, name, "skip" if state == "skip" else "fail")
            reasons[name] = reason
    excluded = document.get("exclude", {})
    for name, reason in {**reasons, **excluded}.items():
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"{suite}: {name} has no reason")
    quick = frozenset(document.get("quick", []))
    if strangers := [name for name in quick if states.get(name) != "pass"] + [
        name for name in excluded if name in states
    ]:
        raise ValueError(f"{suite}: quick or excluded tests that the list of passes contradicts: {strangers}")
    variants = document.get("variant", {})
    return Expected(states=states, quick=quick, reasons=reasons, excluded=excluded, variants=variants)


def differences(context: Context, outcomes: Iterable[Outcome]) -> list[str]:
    """One line per test that did something else than the list says; empty when all is as expected."""
    lines = []
    seen = set()
    for outcome in outcomes:
        seen.add(outcome.test)
        wanted = context.expected.states.get(outcome.test)
        if outcome.state != wanted:
            expectation = "is not listed" if wanted is None else f"expected {wanted}"
            lines.append(f"{outcome.test}: {outcome.state}, {expectation}. {outcome.note}".rstrip())
    lines += [f"{name}: did not run" for name in context.selected() if name not in seen]
    return lines


def _enter(states: dict[str, State], name: str, state: State) -> None:
    if name in states:
        raise ValueError(f"{name} is listed twice")
    states[name] = state
