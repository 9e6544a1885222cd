"""Run real servers on real stores, inject faults, and check what the clients saw against the promises of the product.

    python tests/nemesis/run.py --seconds 600 --seed 1 [--size whole] [--faults kill-server,partition] [--report FILE] [--keep FOLDER]

Exit code 0: every gate passed; 1: a gate failed; 2: a tool is missing. README.md describes what runs and what is checked.
"""

import argparse
import logging
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:1] = [str(HERE.parents[1]), *(str(HERE.parents[2] / part) for part in ("servers", "operator"))]

from conformance.packages import ObtainFailed, ToolMissing  # noqa: E402 - the path comes first
from nemesis import checking, finishing  # noqa: E402
from nemesis.plan import SIZES  # noqa: E402
from nemesis.report import render  # noqa: E402

LIMIT_S = 900
"""Time limit for starting, healing and finishing together."""


def limit_s(load_s: float) -> int:
    """Return the time limit of the whole run."""
    return int(1.25 * load_s + LIMIT_S + checking.limit_s(load_s))


def too_late(*_: object) -> None:
    """End the run as Ctrl-C does."""
    raise TimeoutError("the run did not end within its limit")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=300, help="of load and faults; starting, healing and checking come on top"
    )
    parser.add_argument("--seed", type=int, default=None, help="drawn, if not given")
    parser.add_argument("--size", choices=sorted(SIZES), default="whole")
    parser.add_argument("--per-second", type=int, default=10, help="records of each producer")
    parser.add_argument("--faults", default="", help="names, separated by commas; all, if not given; `none`")
    parser.add_argument("--report", type=Path, default=None, help="a Markdown file; standard output, if not given")
    parser.add_argument("--keep", type=Path, default=None, help="where logs and histories are copied to")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: end all processes and delete their files
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(limit_s(options.seconds))
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    names = [] if not options.faults else options.faults.split(",")
    run_options = finishing.RunOptions(
        size=options.size,
        per_second=options.per_second,
        seconds=options.seconds,
        seed=seed,
        faults=names,
        keep=options.keep,
    )
    try:
        run = finishing.run(run_options)
    except (ToolMissing, ObtainFailed) as missing:
        print(f"nemesis: {missing}", file=sys.stderr)
        return 2
    text = render(run)
    print(text) if options.report is None else options.report.write_text(text, encoding="utf-8")
    return 0 if run.is_passed else 1


if __name__ == "__main__":
    sys.exit(main())
