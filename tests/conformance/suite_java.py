"""Kafka's own tools: the commands of operators and of Kafka's system tests, with checks of their output.

Every case is one function that drives a tool through a flow and raises `CheckFailed` at the first wrong answer. The
checks hold for any Kafka server: no node ids, no times, no versions.
"""

import time
import uuid
from collections.abc import Callable, Iterator

from conformance import (
    java_access_cases,
    java_admin_cases,
    java_data_cases,
    java_login_cases,
    java_quota_cases,
    java_transaction_cases,
)
from conformance.java_checks import Case, CheckFailed
from conformance.java_tools import JavaTools
from conformance.outcomes import Context, Outcome

CASES: dict[str, Callable[[Case], None]] = {
    **java_data_cases.CASES,
    **java_admin_cases.CASES,
    **java_access_cases.CASES,
    **java_login_cases.CASES,
    **java_quota_cases.CASES,
    **java_transaction_cases.CASES,
}


def run(context: Context) -> Iterator[Outcome]:
    """Run the selected cases one after the other, each with its own topic and group name."""
    for name in context.selected():
        yield _run_one(name, context)


def _run_one(name: str, context: Context) -> Outcome:
    logs = context.logs / "java" / name
    case = Case(
        tools=JavaTools(bootstrap=context.bootstrap, logs=logs),
        name=f"conformance-{name}-{uuid.uuid4().hex[:8]}",
        sasl_bootstrap=context.sasl_bootstrap,
    )
    begin = time.monotonic()
    try:
        CASES[name](case)
    except CheckFailed as error:
        return Outcome(test=name, state="fail", seconds=time.monotonic() - begin, note=f"{error} (see {logs})")
    return Outcome(test=name, state="pass", seconds=time.monotonic() - begin)
