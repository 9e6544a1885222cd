"""`python -m simulator.model [--part NAME] [--size SIZE] [--bound N] [--guard-off NAME]… [--all-guards]`.

Explores the parts and prints a summary; exits with 1 if a promise was broken. `--guard-off` first deletes a rule and prints the shortest
trace to the violation. `--all-guards` deletes each rule in turn, prints a table (Markdown), and exits with 1 if a deleted rule causes no
violation and is not known to be redundant.
"""

import argparse
import sys
from collections.abc import Sequence

from simulator.model.explorer import Report
from simulator.model.families import FAMILIES, REDUNDANT, SIZES, explore_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 0: as expected, 1: not as expected."""
    parser = argparse.ArgumentParser(prog="python -m simulator.model", description=__doc__)
    parser.add_argument("--part", choices=sorted(FAMILIES), action="append", help="explore these parts; default: all")
    parser.add_argument("--size", choices=SIZES, default="small", help="the parts' bounds")
    parser.add_argument("--bound", type=int, default=1_000_000_000, help="most states of one exploration")
    parser.add_argument("--guard-off", action="append", default=[], metavar="NAME", help="delete this rule")
    parser.add_argument("--all-guards", action="store_true", help="delete each rule in turn, and print a table")
    chosen = parser.parse_args(arguments)
    parts = chosen.part or list(FAMILIES)
    if chosen.all_guards:
        return _delete_all(parts, chosen.size, chosen.bound)
    holds = True
    for name in parts:
        off = [guard for guard in chosen.guard_off if guard in FAMILIES[name].rules]
        if chosen.guard_off and not off:
            continue
        for report in explore_all(name, chosen.size, *off, state_count_max=chosen.bound):
            _print(str(report))
            if report.violation is not None:
                holds = False
                _print(str(report.violation))
    return int(not holds)


def _delete_all(parts: Sequence[str], size: str, bound: int) -> int:
    _print("| part | deleted guard | promise that is broken | steps | states |")
    _print("|---|---|---|--:|--:|")
    harmless = 0
    for name in parts:
        for guard in FAMILIES[name].rules:
            found = explore_all(name, size, guard, state_count_max=bound)[-1]
            harmless += found.violation is None and guard not in REDUNDANT
            _print(_row(name, guard, found))
    _print(f"\n{harmless} deleted rules break no promise")
    return int(harmless > 0)


def _row(name: str, guard: str, report: Report) -> str:
    if report.violation is None:
        return f"| {name} | {guard} | none: {REDUNDANT.get(guard, 'NOT FOUND')} | | {report.state_count:,} |"
    length = len(report.violation.trace)
    return f"| {report.part} | {guard} | {report.violation.promise} | {length} | {report.state_count:,} |"


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
