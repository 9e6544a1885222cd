"""A short run of every fuzz target, always with the same inputs. `tests/fuzz/run.py --inputs` runs as many as you like."""

import os

import pytest

from fuzz import groups, sanitized
from fuzz.run import run_group

SEED = 1
RUN_S = 540
MODULES = [(group, module) for group, modules in groups.GROUPS.items() for module in modules]
"""A test each: one for a whole group would compute for minutes, and longer on a busy machine."""
EDGES_MIN = 100
"""Least number of places in the sanitized kernel that the targets of a module reach."""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(RUN_S)
@pytest.mark.parametrize(("group", "module"), MODULES)
def test_no_input_breaks_a_promise(group: str, module: str) -> None:
    inputs = {target.name: target.inputs_in_tests for target in groups.targets_of(module)}
    if group in groups.SANITIZED:
        needs_sanitizers()

    done = run_group(group, inputs, SEED)

    findings = [finding for figures in done for finding in figures.findings]
    assert [f"{finding.target}: {finding.what}\n{finding.data}\n{finding.details}" for finding in findings] == []
    assert {figures.target: figures.inputs for figures in done} == inputs
    if group in groups.SANITIZED:
        assert sum(figures.edges for figures in done) > EDGES_MIN, "the kernel is not measured"


def needs_sanitizers() -> None:
    """Build the sanitized kernel; skips if there is no compiler with sanitizers, unless BEARLAKE_KERNEL=require."""
    try:
        sanitized.build()
    except sanitized.CompilerMissing as error:
        if os.environ.get("BEARLAKE_KERNEL") == "require":
            raise
        pytest.skip(f"the kernel was NOT run under sanitizers: {error}")
