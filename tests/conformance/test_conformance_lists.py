"""The expected lists are complete and consistent, and every kind of difference counts."""

from pathlib import Path

import pytest

from conformance import outcomes, suite_java, suite_junit
from conformance.outcomes import Context, Expected, Outcome

SUITES = (
    "kgo",
    "librdkafka",
    "librdkafka-groups",
    "java",
    "junit",
    "connect",
    "streams",
    "iceberg",
    "iceberg-sink",
    "flink",
)


@pytest.mark.parametrize("suite", SUITES)
def test_every_list_loads_and_has_a_reason_for_every_exception(suite: str) -> None:
    expected = outcomes.load(suite)

    assert expected.states
    assert all(reason.strip() for reason in expected.excluded.values())


@pytest.mark.parametrize("suite", SUITES)
def test_a_variant_belongs_to_a_test_that_runs(suite: str) -> None:
    expected = outcomes.load(suite)

    assert set(expected.variants) <= set(expected.states)


def test_the_java_list_names_exactly_the_cases_that_exist() -> None:
    assert set(outcomes.load("java").states) == set(suite_java.CASES)


def test_the_junit_list_names_classes_that_the_suite_runs() -> None:
    expected = outcomes.load("junit")

    assert {name.partition(".")[0] for name in (*expected.states, *expected.excluded)} == set(suite_junit.CLASSES)


def test_a_junit_report_gives_each_test_its_outcome_and_a_failure_its_reason() -> None:
    report = """<testsuite>
        <testcase name="good(ClusterInstance)[1]" classname="org.apache.kafka.Tests" time="1.5"><system-out/></testcase>
        <testcase name="bad()[1]" classname="org.apache.kafka.Tests" time="2"><failure message="wrong offset">at</failure></testcase>
        <testcase name="broken()[1]" classname="org.apache.kafka.Tests" time="0"><error message="no server">at</error></testcase>
        <testcase name="aborted()[1]" classname="org.apache.kafka.Tests" time="3"><skipped
            >org.opentest4j.TestAbortedException: no translation
            at</skipped></testcase>
        <testcase name="twice()[1]" classname="org.apache.kafka.Tests" time="4"><system-out/></testcase>
        <testcase name="twice()[2]" classname="org.apache.kafka.Tests" time="5"><system-out/></testcase>
    </testsuite>"""

    assert list(suite_junit.read_report(report, Path("a.log"))) == [
        Outcome(test="Tests.good", state="pass", seconds=1.5),
        Outcome(test="Tests.bad", state="fail", seconds=2, note="wrong offset (see a.log)"),
        Outcome(test="Tests.broken", state="fail", seconds=0, note="no server (see a.log)"),
        Outcome(test="Tests.aborted", state="skip", seconds=3, note="no translation"),
        Outcome(test="Tests.twice[1]", state="pass", seconds=4),
        Outcome(test="Tests.twice[2]", state="pass", seconds=5),
    ]


def test_expected_outcomes_are_not_a_difference() -> None:
    context = _context(passes=["a"], skips={"b": "old brokers only"})

    assert outcomes.differences(context, [_outcome("a", "pass"), _outcome("b", "skip")]) == []


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Outcome(test="a", state="fail", seconds=1, note="wrong offset"), "a: fail, expected pass. wrong offset"),
        (Outcome(test="a", state="skip", seconds=1), "a: skip, expected pass."),
        (Outcome(test="new", state="pass", seconds=1), "new: pass, is not listed."),
    ],
)
def test_any_other_outcome_is_a_difference(outcome: Outcome, text: str) -> None:
    assert text in outcomes.differences(_context(passes=["a"]), [outcome])


def test_an_unexpected_pass_is_a_difference() -> None:
    context = _context(passes=[], fails={"a": "needs three brokers"})

    assert outcomes.differences(context, [_outcome("a", "pass")]) == ["a: pass, expected fail."]


def test_a_test_that_did_not_run_is_a_difference() -> None:
    assert outcomes.differences(_context(passes=["a"]), []) == ["a: did not run"]


def _outcome(test: str, state: outcomes.State) -> Outcome:
    return Outcome(test=test, state=state, seconds=1)


def _context(passes: list[str], *, skips: dict[str, str] | None = None, fails: dict[str, str] | None = None) -> Context:
    states: dict[str, outcomes.State] = dict.fromkeys(passes, "pass")
    states.update(dict.fromkeys(skips or {}, "skip"))
    states.update(dict.fromkeys(fails or {}, "fail"))
    reasons = {**(skips or {}), **(fails or {})}
    expected = Expected(states=states, quick=frozenset(), reasons=reasons, excluded={}, variants={})
    return Context(bootstrap="127.0.0.1:1", sasl_bootstrap="", is_quick=False, logs=Path("unused"), expected=expected)
