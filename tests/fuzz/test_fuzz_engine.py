"""A run finds each kind of fault, and is the same for the same seed."""

from pathlib import Path
from typing import Any

import pytest

from bearlake.errors import Corrupt, Invalid
from fuzz import groups, sanitized
from fuzz.engine import Figures, NoEdges, Note, Run
from fuzz.run import run_group
from fuzz.target import Target
from fuzz.targets.broken import SEEDS


def run(folder: Path, target: Target, inputs: int = 200, seed: int = 1) -> Figures:
    assert target.run is not None
    return Run(target, target.run, seed, Note(folder / "input", 1 << 16), NoEdges(), slowdown=1.0).all(inputs)


def target(function: Any, **options: Any) -> Target:
    return Target(name="test", seeds=lambda: [b"seed"], run=function, **options)


def test_an_undeclared_error_is_found_with_its_input(tmp_path: Path) -> None:
    def raises(data: bytes) -> None:
        if data != b"seed":
            raise KeyError(data)

    found = run(tmp_path, target(raises)).findings

    assert [finding.what.split(" ")[0] for finding in found] == ["KeyError"]
    assert bytes.fromhex(found[0].data) != b"seed"


def test_a_declared_error_is_an_answer(tmp_path: Path) -> None:
    def refuses(data: bytes) -> None:
        raise Corrupt("always")

    figures = run(tmp_path, target(refuses, errors=(Invalid,)))

    assert (figures.inputs, figures.accepted, figures.answers, figures.findings) == (200, 0, 1, [])


def test_an_input_that_takes_long_is_found(tmp_path: Path) -> None:
    found = run(tmp_path, target(lambda data: sum(range(10**6)), processor_s=1e-4), inputs=1).findings

    assert [finding.what for finding in found] == ["time"]


def test_an_input_that_takes_memory_is_found(tmp_path: Path) -> None:
    found = run(tmp_path, target(lambda data: len(bytes(1 << 20)), memory_bytes=1000), inputs=1).findings

    assert [finding.what for finding in found] == ["memory"]


def test_the_same_seed_takes_the_same_inputs(tmp_path: Path) -> None:
    taken: list[bytes] = []
    recorder = target(lambda data: taken.append(data))

    runs = []
    for seed in (7, 7, 8):
        taken.clear()
        run(tmp_path, recorder, seed=seed)
        runs.append(list(taken))

    assert runs[0] == runs[1] != runs[2]


def test_inputs_with_a_new_answer_are_changed_further(tmp_path: Path) -> None:
    """A word that random bytes do not find is found letter by letter."""

    def prefix(data: bytes) -> int:
        return next((at for at, byte in enumerate(b"ABC") if data[at : at + 1] != bytes([byte])), 3)

    figures = run(tmp_path, Target(name="test", seeds=lambda: [b"xyz"], run=prefix), inputs=20_000)

    assert figures.answers == 4


def test_a_crash_is_found_and_does_not_end_the_run() -> None:
    inputs = {name: len(SEEDS) for name in ("dies", "takes memory", "is well")}

    done = {figures.target: figures for figures in run_group(groups.BROKEN, inputs, 1)}

    assert [finding.what for finding in done["dies"].findings] == ["the process ended with -11"]
    assert [finding.what.split(" ")[0] for finding in done["takes memory"].findings] == ["MemoryError"]
    assert done["dies"].findings[0].data == SEEDS[1].hex()
    assert (done["is well"].inputs, done["is well"].findings) == (2, [])


@pytest.mark.parametrize(
    ("name", "report"),
    [("reads beyond", "AddressSanitizer: heap-buffer-overflow"), ("overflows", "signed integer overflow")],
)
def test_a_fault_in_c_is_found(name: str, report: str) -> None:
    try:
        sanitized.build()
    except sanitized.CompilerMissing as error:
        pytest.skip(f"sanitizers were NOT tested: {error}")

    (figures,) = run_group(groups.BROKEN, {name: len(SEEDS)}, 1, is_sanitized=True)

    (finding,) = figures.findings
    assert report in finding.details
    assert finding.data == SEEDS[1].hex()
