"""What access rules cost: the same server without rules, and with a thousand of them, in alternating runs.

    python bench/access_rules.py [--rules 1000] [--repetitions 7] [--only CASE] [--bearlake PROGRAM] [--json FILE]

The rules name other topics and other users, but for a few prefixed ones that allow the load. `access.allow_if_no_rule` is false.
In the tables, `bearlake` is the server with rules. Goal: at most 2 % more CPU seconds for the same bytes.
Exit code 1: a goal was missed. 2: nothing could be measured.
"""

import argparse
import contextlib
import json
import signal
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND
from bench.cases import BY_NAME, Case
from bench.configured_server import ConfiguredServer
from bench.errors import BenchError
from bench.figures import Goal
from bench.report import OURS, Result
from bench.run import MEMORY_ROOT, Effort, measure, note_run, workspace

from bench import figures, loading, processes, report

WITHOUT = "no rules"
CASES = ("produce-64k", "produce-1k", "produce-1000-partitions", "fetch-1m")
GOAL = Goal(cpu_ratio_max=1.02)
RULES_PER_REQUEST = 500
REQUEST_TIMEOUT_S = 30
CALLER = "User:ANONYMOUS"

Rule = Mapping[str, str]


class RuledServer(ConfiguredServer):
    """A server that denies what no rule allows, with rules: they are created anew whenever it starts on an empty folder."""

    def __init__(self, directory: Path, *, command: Path, rules: Iterable[Rule]) -> None:
        super().__init__(directory, command=command, settings={"access.allow_if_no_rule": False})
        self._rules = list(rules)

    def start(self) -> None:
        """Start, and create the rules. Raises BenchError."""
        super().start()
        for first in range(0, len(self._rules), RULES_PER_REQUEST):
            body = json.dumps({"rules": self._rules[first : first + RULES_PER_REQUEST]}).encode()
            request = urllib.request.Request(
                f"{self.admin}/v1/access", body, {"Content-Type": "application/json"}, method="POST"
            )
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S):
                    pass
            except OSError as error:
                raise BenchError(f"the rules were not created: {error}") from error


class PlainServer(ConfiguredServer):
    """The same server without rules."""

    name = WITHOUT


def rules_of(count: int) -> list[Rule]:
    """Return the rules that allow the load, and `count` rules that concern others."""
    allowed = [
        _rule("Topic", "bench-", "Prefixed", CALLER, operation) for operation in ("Read", "Write", "Create", "Delete")
    ]
    allowed.append(_rule("Cluster", "kafka-cluster", "Literal", CALLER, "Create"))
    others = [
        _rule("Topic", f"orders-{number}", "Prefixed" if number % 2 else "Literal", f"User:u{number % 97}", "Write")
        for number in range(count)
    ]
    return allowed + others


def _rule(resource: str, name: str, pattern: str, principal: str, operation: str) -> Rule:
    return {
        "resource": resource, "name": name, "pattern": pattern, "principal": principal, "host": "*",
        "operation": operation, "permission": "Allow",
    }  # fmt: skip


def run(cases: Iterable[Case], effort: Effort, options: argparse.Namespace) -> list[Result]:
    """Measure both servers in turn in each case."""
    loading.build_loader()
    results = [Result(case=replace(case, goal=GOAL)) for case in cases]
    with workspace(MEMORY_ROOT) as root, contextlib.ExitStack() as running:
        servers = (
            PlainServer(root / "plain", command=options.bearlake, settings={}),
            RuledServer(root / "ruled", command=options.bearlake, rules=rules_of(options.rules)),
        )
        for server in servers:
            running.callback(server.stop)
            server.start()
        for result in results:
            case = BY_NAME[result.case.name]
            print(f"{case.name}: {case.title}", flush=True)
            for number in range(effort.discarded + effort.repetitions):
                for server in servers if number % 2 else reversed(servers):
                    note_run(
                        result, server.name, lambda server=server, case=case: measure(server, case, effort, root / "templates"),
                        counts=number >= effort.discarded,
                    )  # fmt: skip
    return results


def main() -> None:
    """Run the command line described at the top."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    effort = replace(Effort(), repetitions=options.repetitions, peer_warmup_s=0)
    try:
        results = run([BY_NAME[name] for name in options.only or CASES], effort, options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
    words = f"{options.rules} rules. Medians of {effort.repetitions} runs of {effort.seconds:g} s, servers in turn."
    print("\n" + report.text(processes.machine(), words, results, peer=WITHOUT))
    if options.json:
        found = report.as_json(processes.machine(), words, results, peer=WITHOUT)
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if all(_is_reached(result) for result in results) else 1)


def _is_reached(result: Result) -> bool:
    found = figures.ratios(result.runs.get(OURS, ()), result.runs.get(WITHOUT, ()))
    return found is not None and not figures.missed(GOAL, found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM", help="default: %(default)s")
    parser.add_argument("--rules", type=int, default=1000, help="rules that concern others; default: %(default)s")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--only", action="append", metavar="CASE", choices=BY_NAME)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


if __name__ == "__main__":
    main()
