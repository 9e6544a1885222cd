"""The microbenchmark of the write path, which calls inner functions of it."""

import argparse
import asyncio
from pathlib import Path

import pytest
from bench.micro import writing


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_each_step_of_an_object_is_measured(tmp_path: Path, is_idempotent: bool) -> None:
    options = argparse.Namespace(rounds=2, objects=2)

    line = asyncio.run(writing.measure(str(tmp_path), (3, 2), options, is_idempotent=is_idempotent))

    *_, kind, seal, commit, apply, answer, total = line.split()
    assert kind == ("idempotent" if is_idempotent else "plain")
    steps = [float(step) for step in (seal, commit, apply, answer)]
    assert all(step > 0 for step in steps)
    assert float(total) == pytest.approx(sum(steps), abs=0.01)
