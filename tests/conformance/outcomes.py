"""The outcomes of a suite's tests, the expected outcomes, and the differences.

`expected/SUITE.toml`:

    pass = ["name", …]               must pass
    quick = ["name", …]              the part of `pass` that `--quick` runs
    [skip]                           runs, but skips itself: name = "reason"
    [fail]                           runs and must fail: name = "reason"
    [exclude]                        is not run: name or pattern = "reason"
    [variant.name]                   how to run a test, for the suite's own runner

Every difference counts: a test that fails, a test that passes although it is listed to fail or skip, a test that did not run,
and a test that is not listed.
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
    """The outcome of one test: `note` is one line for people (why it failed, or that it needed a second attempt)."""

    test: str
    state: State
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected list of one suite; `states` has every test that runs, `reasons` every test that does not pass."""

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
    """The input of a suite's runner: the server's addresses, the tests to run, the folder for logs, the expected outcomes.

    Clients of `sasl_bootstrap` log in; it is empty if the server has no such listener. `catalog` is the URL of the Iceberg REST
    catalog, or empty.
    """

    bootstrap: str
    sasl_bootstrap: str
    is_quick: bool
    logs: Path
    expected: Expected
    catalog: str = ""

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
    """One line per test whose outcome differs from the list; empty if all outcomes are as expected."""
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
