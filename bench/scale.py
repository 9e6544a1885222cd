"""How far Bearlake scales on one machine: connections of a server, partitions of a store, servers on one metadata store.

    python bench/scale.py connections [--idle 10000] [--busy 10 100 1000] [--requests 1000] [--seconds 5]
    python bench/scale.py partitions [--partitions 1000 10000 100000] [--slices 5] [--limit-s 300] [--cpu]
    python bench/scale.py servers [--servers 1 2 4 8 16] [--requests 20] [--seconds 5] [--postgresql-connections 400]
    python bench/scale.py stores [--servers 4] [--seconds 3] [--repetitions 3]

Each part has its own file, which says what it measures: `scale_connections.py`, `metadata_scale.py`, `scale_servers.py`, `scale_stores.py`.
All is on loopback, with data in `/dev/shm`. There is no peer. Exit code 1: a later step failed, and the table has the steps before it.
2: nothing could be measured.
"""

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND
from bench.errors import BenchError
from bench.run import MEMORY_ROOT, touch_memory, workspace

from bench import metadata_scale, processes, scale_connections, scale_servers, scale_stores


def main() -> None:
    """Run the command line described at the top."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parts = {"connections": _connections, "partitions": _partitions, "servers": _servers, "stores": _stores}
    try:
        text, failure = parts[options.part](options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
    if text:
        print("\n" + "; ".join(f"{name}: {value}" for name, value in processes.machine().items()))
        print(f"\n{text}")
    if failure:
        print(f"bench: {failure}", file=sys.stderr)
        sys.exit(1 if text else 2)


def _connections(options: argparse.Namespace) -> tuple[str, str | None]:
    with workspace(MEMORY_ROOT) as directory:
        rows = scale_connections.measure(
            directory, command=options.bearlake, idle_count=options.idle, busy_counts=sorted(options.busy),
            requests_per_s=options.requests, seconds=options.seconds,
        )  # fmt: skip
    return scale_connections.table(rows), None


def _partitions(options: argparse.Namespace) -> tuple[str, str | None]:
    clock = time.process_time if options.cpu else time.perf_counter
    found, failure = asyncio.run(
        metadata_scale.measure_all(
            str(MEMORY_ROOT), options.partitions, options.slices, clock, options.limit_s
        )
    )  # fmt: skip
    return metadata_scale.table(found) if found else "", failure


def _servers(options: argparse.Namespace) -> tuple[str, str | None]:
    with workspace(MEMORY_ROOT) as directory:
        rows, failure = scale_servers.measure(
            directory, command=options.bearlake, server_counts=options.servers, requests_per_s=options.requests,
            seconds=options.seconds, postgresql_connections=options.postgresql_connections,
        )  # fmt: skip
    text = f"{scale_servers.table(rows)}\n\n{scale_servers.sessions_text(rows)}" if rows else ""
    return text, failure


def _stores(options: argparse.Namespace) -> tuple[str, str | None]:
    with workspace(MEMORY_ROOT) as directory:
        touch_memory(directory)
        rows, failure = scale_stores.measure_all(
            directory, command=options.bearlake, server_count=options.servers, seconds=options.seconds,
            repetitions=options.repetitions,
        )  # fmt: skip
    return scale_stores.table(rows) if rows else "", failure


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("connections")
    part.add_argument("--idle", type=int, default=scale_connections.IDLE_COUNT)
    part.add_argument("--busy", type=int, nargs="+", default=scale_connections.BUSY_COUNTS)
    part.add_argument("--requests", type=float, default=scale_connections.REQUESTS_PER_S, help="per second, of all")
    _add_server_options(part)
    part = parts.add_parser("partitions")
    part.add_argument("--partitions", type=int, nargs="+", default=metadata_scale.PARTITION_COUNTS)
    part.add_argument("--slices", type=int, default=metadata_scale.SLICE_COUNT, help="in every partition")
    part.add_argument("--limit-s", type=float, default=metadata_scale.LIMIT_S, help="longest time (s) of one store")
    part.add_argument("--cpu", action="store_true", help="CPU time instead of wall time")
    part = parts.add_parser("servers")
    part.add_argument("--servers", type=int, nargs="+", default=scale_servers.SERVER_COUNTS)
    part.add_argument("--requests", type=float, default=scale_servers.REQUESTS_PER_S, help="per second and server")
    part.add_argument("--postgresql-connections", type=int, default=400, help="PostgreSQL's max_connections")
    _add_server_options(part)
    part = parts.add_parser("stores")
    part.add_argument("--servers", type=_at_least_one, default=scale_stores.SERVER_COUNT)
    part.add_argument("--repetitions", type=_at_least_one, default=3)
    _add_server_options(part)
    return parser


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


def _add_server_options(part: argparse.ArgumentParser) -> None:
    part.add_argument("--seconds", type=float, default=5, help="measured window of each step")
    part.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM", help="default: %(default)s")


if __name__ == "__main__":
    main()
