"""franz-go's `kgo` tests: a strict Go client that checks every record, offset and group transition that it sees.

The tests are part of the Go module, compiled to one program. It is run once with the listed top-level tests; what the
list excludes by pattern (`Test/sub/sub`) is left out with `-test.skip`. Its tests of SCRAM log in at the server's listener
for SASL, as a user that is created for the run; without such a listener they skip themselves.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from conformance import packages, processes, scram_users
from conformance.outcomes import Context, Outcome, State

TIMEOUT_S = 600
RECORD_COUNT = 10_000
"""Records per data test; the suite's own default of 500,000 takes an hour on two cores and checks nothing else."""

STATES: dict[str, State] = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip"}
RESULT = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)", re.MULTILINE)


def run(context: Context) -> Iterator[Outcome]:
    """Run the selected tests in one process; yields an outcome for every test and sub-test that ended."""
    program, directory = packages.obtain_kgo_tests()
    names = sorted({name.split("/")[0] for name in context.selected()})
    skipped = [pattern for pattern in context.expected.excluded if "/" in pattern]
    command: list[str | Path] = [
        program,
        f"-test.timeout={TIMEOUT_S - 20}s",
        "-test.v",
        f"-test.run=^({'|'.join(names)})$",
    ]
    command.append(f"-test.skip={'|'.join(skipped)}")
    finished = processes.run(
        command,
        log=context.logs / "kgo.log",
        timeout_s=TIMEOUT_S,
        cwd=directory,
        env={
            "KGO_SEEDS": context.bootstrap,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(RECORD_COUNT),
            "KGO_LOG_LEVEL": "none",
            **_scram(context),
        },
    )
    for result, name, seconds in RESULT.findall(finished.text()):
        note = f"see {finished.log}" if result == "FAIL" else ""
        yield Outcome(test=name, state=STATES[result], seconds=float(seconds), note=note)


def _scram(context: Context) -> dict[str, str]:
    """The variables by which the suite finds a listener with SCRAM and a user."""
    if not context.sasl_bootstrap:
        return {}
    user = scram_users.create(context.bootstrap, "kgo")
    return {"KGO_TEST_SCRAM_SEEDS": context.sasl_bootstrap, "KGO_TEST_SCRAM": f"{user.name}:{user.password}:512"}
