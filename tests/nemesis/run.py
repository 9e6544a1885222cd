"""Run real servers on real stores, break them in every way that is known here, and hold what clients saw against what they were promised.

    python tests/nemesis/run.py --seconds 600 --seed 1 [--size whole] [--faults kill-server,partition] [--report FILE] [--keep FOLDER]

The exit code is 0 when every gate was passed, 1 when one was not, 2 when a tool is missing. README.md says what is run and judged.
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
from nemesis import judging, settling  # noqa: E402
from nemesis.plan import SIZES  # noqa: E402
from nemesis.report import written  # noqa: E402

LIMIT_S = 900
"""What starting, healing and settling may take beside the load, at most."""


def limit_s(load_s: float) -> int:
    """What the whole run may take, at most; on a busy machine, everything takes longer."""
    return int(1.25 * load_s + LIMIT_S + judging.limit_s(load_s))


def too_late(*_: object) -> None:
    """The run is ended as by Ctrl-C."""
    raise TimeoutError("the run did not end within its limit")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=300, help="of load and faults; starting, healing and judging come on top"
    )
    parser.add_argument("--seed", type=int, default=None, help="drawn, if not given")
    parser.add_argument("--size", choices=sorted(SIZES), default="whole")
    parser.add_argument("--per-second", type=int, default=10, help="records of each producer")
    parser.add_argument("--faults", default="", help="names, separated by commas; all, if not given; `none`")
    parser.add_argument("--report", type=Path, default=None, help="a Markdown file; standard output, if not given")
    parser.add_argument("--keep", type=Path, default=None, help="where logs and histories are copied to")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: everything is ended and deleted
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(limit_s(options.seconds))
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    names = [] if not options.faults else options.faults.split(",")
    wish = settling.Wish(
        size=options.size,
        per_second=options.per_second,
        seconds=options.seconds,
        seed=seed,
        faults=names,
        keep=options.keep,
    )
    try:
        run = settling.run(wish)
    except (ToolMissing, ObtainFailed) as missing:
        print(f"nemesis: {missing}", file=sys.stderr)
        return 2
    text = written(run)
    print(text) if options.report is None else options.report.write_text(text, encoding="utf-8")
    return 0 if run.is_passed else 1


if __name__ == "__main__":
    sys.exit(main())
