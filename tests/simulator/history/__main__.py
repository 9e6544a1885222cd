"""`python -m simulator.history check FILE...`: prints the checked counts and each violation; exit code 1 if there is a violation."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simulator.history.check import Options, check_files
from simulator.history.format import Malformed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 0: every promise was kept, 1: a promise was broken, 2: the files are not a history."""
    parser = argparse.ArgumentParser(prog="python -m simulator.history", description=__doc__)
    commands = parser.add_subparsers(required=True)
    check = commands.add_parser("check", help="check the history in these files")
    check.add_argument("files", nargs="+", type=Path)
    check.add_argument("--strict", action="store_true", help="a given-up operation cannot outlive its session")
    check.add_argument("--slack", type=int, default=0, help="overlap of assignments (ns) that is accepted")
    check.add_argument("--violations", type=int, default=20, help="print at most so many")
    chosen = parser.parse_args(arguments)
    options = Options(is_strict=chosen.strict, slack=chosen.slack)
    try:
        verdict = check_files(chosen.files, options)
    except (Malformed, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for violation in verdict.violations[: chosen.violations]:
        sys.stdout.write(f"{violation}\n\n")
    sys.stdout.write(f"{verdict}\n")
    return int(bool(verdict.violations))


if __name__ == "__main__":
    sys.exit(main())
