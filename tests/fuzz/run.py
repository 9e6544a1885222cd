"""Fuzz every decoder and every HTTP route.

    python tests/fuzz/run.py                                          # the short run of the tests
    python tests/fuzz/run.py --inputs 10000000 --report fuzz.md       # all targets, shared out by their `share`
    python tests/fuzz/run.py --target "kernel produce" --inputs 100000 --seed 7

Inputs that broke a promise are in the folder `--findings` (default: `.cache/fuzz`). The same seed makes the same inputs. Exit code 0:
no findings; 1: findings.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
sys.path[:1] = [str(HERE.parents[1]), *(str(ROOT / part) for part in ("servers", "operator"))]

from fuzz import groups, sanitized  # noqa: E402 - the path comes first
from fuzz.engine import Figures, Finding, Note  # noqa: E402
from fuzz.target import Target  # noqa: E402

CRASHES_MAX = 5
"""Crashes of one group, after which its other targets do not run."""
INPUT_S = 0.05
"""Time limit of a run (s) for each of its inputs, beside `START_S`."""
START_S = 300


def run_group(group: str, inputs: Mapping[str, int], seed: int, *, is_sanitized: bool | None = None) -> list[Figures]:
    """Run targets of one group in child processes: a new one after each crash, for the targets that are left.

    `is_sanitized`: whether the group gets the sanitized kernel; None: as `groups.SANITIZED` says.

    Raises:
        CompilerMissing: the sanitized kernel is needed and cannot be built here.
    """
    kernel = sanitized.build() if (group in groups.SANITIZED if is_sanitized is None else is_sanitized) else None
    environment = {**os.environ, "PYTHONHASHSEED": "0", **(sanitized.environment() if kernel else {})}
    left = dict(inputs)
    done: list[Figures] = []
    for _ in range(CRASHES_MAX):
        if not left:
            break
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            ended = _start(group, left, seed, Path(folder), kernel, environment)
            figures = [_figures(line) for line in _lines(Path(folder) / "figures")]
            done += figures
            for target_figures in figures:
                del left[target_figures.target]
            if ended.returncode == 0:
                break
            crashed = _crash(ended, Path(folder) / "input", left)
            done.append(crashed)
            left.pop(crashed.target, None)
    return done


def _start(
    group: str, inputs: Mapping[str, int], seed: int, folder: Path, kernel: Path | None, environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    command = [
        sys.executable,
        str(HERE.with_name("child.py")),
        "--group",
        group,
        "--seed",
        str(seed),
        "--folder",
        str(folder),
    ]
    command += ["--kernel", str(kernel)] if kernel else []
    for name, count in inputs.items():
        command += ["--inputs", f"{name}={count}"]
    limit_s = START_S + INPUT_S * sum(inputs.values())
    errors = folder / "errors"
    with errors.open("w") as out:
        try:
            code = subprocess.run(command, env=environment, stderr=out, timeout=limit_s, check=False).returncode
        except subprocess.TimeoutExpired:
            code = -signal.SIGALRM
    return subprocess.CompletedProcess(command, code, "", errors.read_text(errors="replace"))


def _crash(ended: "subprocess.CompletedProcess[str]", note: Path, left: Mapping[str, int]) -> Figures:
    name, data = Note.read(note) if note.exists() else ("", b"")
    name = name if name in left else next(iter(left))
    text = ended.stderr
    at = max(text.find("ERROR: AddressSanitizer"), text.find("runtime error:"))
    what = f"the process ended with {ended.returncode}"
    return Figures(
        name, findings=[Finding(name, what, data.hex(), text[max(at - 200, 0) :][:6000] if at >= 0 else text[-6000:])]
    )


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _figures(line: str) -> Figures:
    fields = json.loads(line)
    fields["findings"] = [Finding(**finding) for finding in fields["findings"]]
    return Figures(**fields)


def shared_out(total: int | None, wanted: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the inputs of each target by group; `total` None: as in the tests. `wanted` empty: all targets."""
    found = {
        group: [target for target in groups.targets(group) if not wanted or target.name in wanted]
        for group in groups.GROUPS
    }
    shares = {target.name: _share(group, target) for group, targets in found.items() for target in targets}
    per_share = (total or 0) / sum(shares.values()) if shares else 0
    return {
        group: {
            target.name: target.inputs_in_tests if total is None else int(per_share * shares[target.name]) + 1
            for target in targets
        }
        for group, targets in found.items()
        if targets
    }


def _share(group: str, target: Target) -> float:
    return target.share * (groups.SANITIZED_SHARE if group in groups.SANITIZED else 1.0)


def table(figures: Sequence[Figures]) -> str:
    """Return the figures as a table in Markdown."""
    rows = [
        "| target | inputs | accepted | kinds of answers | edges | processor (s) | slowest (ms) | memory (KiB) | findings |",
        "|---|" + "---:|" * 8,
    ]
    for row in figures:
        edges = str(row.edges) if row.edges else ""
        rows.append(
            f"| {row.target} | {row.inputs:,} | {row.accepted:,} | {row.answers:,} | {edges} | {row.processor_s:.0f} "
            f"| {row.slowest_ms:.1f} | {row.memory_bytes // 1024:,} | {len(row.findings)} |"
        )
    total = sum(row.inputs for row in figures)
    rows.append(
        f"| all | {total:,} | {sum(row.accepted for row in figures):,} | | | {sum(row.processor_s for row in figures):.0f} | | "
        f"| {sum(len(row.findings) for row in figures)} |"
    )
    return "\n".join(rows)


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, help="inputs of all targets together; default: the short run")
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--findings", type=Path, default=ROOT / ".cache" / "fuzz")
    arguments = parser.parse_args()
    done: list[Figures] = []
    for group, inputs in shared_out(arguments.inputs, arguments.target).items():
        if arguments.group and group not in arguments.group:
            continue
        done += run_group(group, inputs, arguments.seed)
        print(table(done), flush=True)
        if arguments.report:
            arguments.report.write_text(table(done) + "\n")
    findings = [finding for figures in done for finding in figures.findings]
    for number, finding in enumerate(findings):
        arguments.findings.mkdir(parents=True, exist_ok=True)
        path = arguments.findings / f"{finding.target.replace(' ', '-').replace('/', '-')}-{number}"
        path.with_suffix(".input").write_bytes(bytes.fromhex(finding.data))
        path.with_suffix(".txt").write_text(f"{finding.target}: {finding.what}\n{finding.data}\n{finding.details}\n")
        print(f"\n{finding.target}: {finding.what}\n{finding.data[:400]}\n{finding.details[-2500:]}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
