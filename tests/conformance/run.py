#!/usr/bin/env python3
"""Run third-party suites against a Kafka server and compare the outcomes with the expected lists.

    python tests/conformance/run.py [--suite SUITE] [--quick] [--bootstrap HOST:PORT [--sasl-bootstrap HOST:PORT]] [--json FILE]

SUITE: kgo, java, junit, connect, streams, librdkafka, librdkafka-groups, librdkafka-shares, iceberg, iceberg-sink,
flink or all.
Without `--bootstrap` (or BEARLAKE_TEST_BOOTSTRAP) it starts Bearlake itself. Exit code 0: every outcome as listed;
1: a difference (an unexpected pass is one), or the server did not start or stop cleanly; 2: a suite could not be
obtained. With `--quick` a suite whose tools are missing, or cannot be fetched, is left out, and the last line names it.
See README.md in this folder.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance import (
    outcomes,
    packages,
    server,
    suite_connect,
    suite_flink,
    suite_iceberg,
    suite_iceberg_sink,
    suite_java,
    suite_junit,
    suite_kgo,
    suite_librdkafka,
    suite_streams,
)
from conformance.outcomes import Context, Outcome

SUITES: dict[str, Callable[[Context], Iterator[Outcome]]] = {
    "kgo": suite_kgo.run,
    "java": suite_java.run,
    "junit": suite_junit.run,
    "connect": suite_connect.run,
    "streams": suite_streams.run,
    "librdkafka": suite_librdkafka.run,
    "librdkafka-groups": suite_librdkafka.run,
    "librdkafka-shares": suite_librdkafka.run,
    "iceberg": suite_iceberg.run,
    "iceberg-sink": suite_iceberg_sink.run,
    "flink": suite_flink.run,
}
SETTINGS = {
    "librdkafka-groups": {"BEARLAKE_STREAMS__GROUPS__INITIAL_REBALANCE_DELAY_MS": "3000"},
    "librdkafka-shares": {"BEARLAKE_STREAMS__GROUPS__SHARE__RECORD_LOCK_DURATION_MIN_MS": "1000"},
    "iceberg": {"BEARLAKE_CATALOG__WAREHOUSE__FOREIGN_ROOTS": '["file:///tmp/newdb", "file:///tmp/ns"]'},
}
"""Settings of a suite's server that differ from the common defaults."""
OWN_SERVERS = frozenset({"junit", "streams"})
"""Suites whose tests start servers of their own, with the settings that each test asks for."""
OURS_ONLY = OWN_SERVERS | {"iceberg", "iceberg-sink"}
"""Suites that cannot use a Kafka server that is up already."""
QUICK = ("kgo", "java", "junit", "connect")
"""Suites of `--quick --suite all`: building librdkafka's tests alone takes longer than all of these."""

Result = tuple[list[dict[str, object]], list[str]]
"""Outcomes of one suite, ready for JSON, and its differences from the list."""


def main() -> int:
    """Parse the command line, run, print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=[*SUITES, "all"], default="all")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a server that is up already")
    parser.add_argument("--sasl-bootstrap", metavar="HOST:PORT", default="", help="its listener for SASL without TLS")
    parser.add_argument("--quick", action="store_true", help="the part that fits into four minutes")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every outcome and difference there")
    arguments = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # so that a terminated run also ends the processes that it started
    suites = QUICK if arguments.quick else tuple(SUITES)
    chosen = suites if arguments.suite == "all" else (arguments.suite,)
    try:
        results = _run_suites(chosen, arguments.bootstrap, arguments.sasl_bootstrap, is_quick=arguments.quick)
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    except (packages.BuildFailed, server.ServerFailed) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    count = sum(len(lines) for _, lines in results.values())
    left_out = [suite for suite in chosen if suite not in results]
    verdict = "everything as expected" if count == 0 else f"{count} differences"
    print(verdict + (f"; NOT RUN: {', '.join(left_out)}" if left_out else ""))
    return 1 if count else 0


def _run_suites(
    chosen: Sequence[str], bootstrap: str | None, sasl_bootstrap: str, *, is_quick: bool
) -> dict[str, Result]:
    """Run the suites in turn, each against a fresh server of its own unless one is up already.

    A quick run omits suites whose tools are missing, and any run omits `OURS_ONLY` if a server is up already, with a message.
    """
    results = {}
    for suite in chosen:
        settings = {**server.SETTINGS, **SETTINGS.get(suite, {})}
        log = packages.LOGS / f"bearlake-{suite}.log"
        if suite in OURS_ONLY and server.address(bootstrap):
            print(f"== {suite}: NOT RUN: it needs servers that it starts itself", flush=True)
            continue
        none = server.Server(bootstrap="", sasl_bootstrap="", name="a Bearlake per test", log=None)
        running = server.running(bootstrap, sasl_bootstrap=sasl_bootstrap, log=log, settings=settings)
        try:
            with nullcontext(none) if suite in OWN_SERVERS else running as target:
                print(f"== {suite} against {target.name}", flush=True)
                results[suite] = _run_suite(suite, target, is_quick=is_quick)
        except (packages.ToolMissing, packages.ObtainFailed) as error:
            if not is_quick:
                raise
            print(f"== {suite}: NOT RUN: {error}", flush=True)
    return results


def _run_suite(suite: str, target: server.Server, *, is_quick: bool) -> Result:
    """Run one suite, printing each outcome; returns its outcomes and its differences."""
    expected = outcomes.load(suite)
    context = Context(
        bootstrap=target.bootstrap,
        sasl_bootstrap=target.sasl_bootstrap,
        is_quick=is_quick,
        logs=packages.LOGS,
        expected=expected,
        catalog=target.catalog,
    )
    print(f"== {suite}: {len(context.selected())} tests", flush=True)
    begin = time.monotonic()
    collected = []
    for outcome in SUITES[suite](context):
        print(f"   {outcome.state} {outcome.seconds:7.1f} s  {outcome.test}  {outcome.note}".rstrip(), flush=True)
        collected.append(outcome)
    differences = outcomes.differences(context, collected)
    passed = sum(outcome.state == "pass" for outcome in collected)
    print(f"== {suite}: {passed} of {len(collected)} pass, {time.monotonic() - begin:.0f} s, differences:", flush=True)
    print("".join(f"   {line}\n" for line in differences) or "   none\n", end="", flush=True)
    return [asdict(outcome) for outcome in collected], differences


if __name__ == "__main__":
    sys.exit(main())
