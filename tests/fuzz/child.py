"""Runs targets of one group in this process, and writes their figures to a file as JSON lines.

    python tests/fuzz/child.py --group sanitized --seed 1 --folder FOLDER --inputs NAME=1000 --inputs NAME=1000

`run.py` starts it, in an environment of its own, and reads what is left when it has died.
"""

import argparse
import asyncio
import ctypes
import json
import logging
import resource
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:1] = [str(HERE.parents[1]), *(str(HERE.parents[2] / part) for part in ("servers", "operator"))]

from fuzz import sanitized  # noqa: E402 - the path comes first

SLOWDOWN = 6.0
"""How much longer an input may take with sanitizers."""
MEMORY_BYTES = 1024 * 1024 * 1024
"""Address space that a run may take beyond what it has after its start."""
PR_SET_PDEATHSIG = 1
"""As in Linux' `sys/prctl.h`."""
NOTE_BYTES = 1024 * 1024


def main() -> None:
    """Run the targets of the command line, in order."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--group", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kernel", type=Path)
    parser.add_argument("--inputs", action="append", required=True)
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # when the run is killed
    logging.disable(logging.WARNING)
    coverage = sanitized.load(arguments.kernel) if arguments.kernel else None
    from fuzz import engine, groups

    edges = coverage or engine.NoEdges()
    found = {target.name: target for target in groups.targets(arguments.group)}
    note = engine.Note(arguments.folder / "input", NOTE_BYTES)
    if coverage is None:  # AddressSanitizer reserves terabytes of addresses, and has a limit of its own
        limit_memory()
    with (arguments.folder / "figures").open("a") as out, asyncio.Runner() as runner:
        for argument in arguments.inputs:
            name, _, count = argument.rpartition("=")
            target = found[name]
            closing = AsyncExitStack()
            run = target.run
            if target.session is not None:
                ask = runner.run(closing.enter_async_context(target.session()))
                run = lambda data, ask=ask: runner.run(ask(data))  # noqa: E731
            assert run is not None, name
            this = engine.Run(target, run, arguments.seed, note, edges, slowdown=SLOWDOWN if arguments.kernel else 1.0)
            figures = this.all(int(count))
            runner.run(closing.aclose())
            out.write(json.dumps(figures.plain()) + "\n")
            out.flush()
            print(f"{name}: {figures.inputs:,} inputs, {len(figures.findings)} findings", flush=True)


def limit_memory() -> None:
    """Bound the address space: an input that wants more gets MemoryError, which no target declares."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
