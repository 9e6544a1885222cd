"""The request bill: requests to the object store and metadata commits per GB written, and what they cost.

    python bench/request_bill.py simulate [--gb-per-s 0.1 1 5] [--servers 1 3 16] [--put-ms 80] [PRICES]
    python bench/request_bill.py measure [--seconds 30] [--servers 1] [--compaction] [PRICES]

`simulate` runs the server's own flush policy on simulated time (`flush_simulation.py`) for the WAL objects, and adds one request for
each thing that happens to such an object later, as the options say. It leaves out the requests that follow time and not bytes: commits
of tables, sweeps, and deletions of fewer than 1,000 keys. `measure` starts servers on PostgreSQL and an S3 server, writes with
a paced load, and counts the lines of the S3 server's access log (`request_log.py`).

A GB is 10^9 bytes of batches. Cross-zone traffic is none if every zone has a server: clients talk to servers in their zone (`zone_id` in
the client id), servers send each other no records, and a region's object store is reached from every zone.

PRICES: `--put-price`, `--get-price`, `--list-price`, `--delete-price` per 1,000 requests, in any one currency. Without them there is
no cost column: prices depend on provider, region and day. Exit code 2: nothing could be measured.
"""

import argparse
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND
from bench.errors import BenchError
from bench.flush_simulation import FlushSimulation
from bench.run import MEMORY_ROOT, workspace

from bearlake.streams.writer_settings import WriterSettings
from bench import processes, report, request_log

OPERATIONS = ("PUT", "GET", "LIST", "DELETE")
GB = 1e9
SIMULATED_S = 20.0
DELETED_AT_ONCE = 1000
"""Keys in one DELETE request of the sweep, at most (S3's DeleteObjects)."""
SIMULATED_HEADS = (
    "GB/s", "servers", "objects/s", "MB/object", "p50 ms", "PUT/GB", "GET/GB", "GB read/GB", "DELETE/GB", "commits/GB",
)  # fmt: skip
MEASURED_HEADS = ("objects", "PUT/GB", "GET/GB", "HEAD/GB", "LIST/GB", "DELETE/GB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A deployment under a load, in what the bill depends on."""

    bytes_per_s: float
    server_count: int
    zone_count: int = 3
    is_read_in_every_zone: bool = True
    """Whether consumers of every zone read every record at the tail; else only the consumers of the producer's zone do."""
    compaction_reads: float = 3.0
    """GETs of compaction for a WAL object: one for each task that takes slices of it. README.md has measured ones."""
    data_file_bytes: float = 64e6
    """Mean size of the Parquet files that compaction puts (compressed)."""
    compression: float = 2.0
    """Bytes of batches for a byte of Parquet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Requests by operation, bytes read and commits of servers, per GB."""

    requests: Mapping[str, float]
    read_bytes: float
    commits: float
    objects_per_s: float
    object_bytes: float
    p50_ms: float


def bill_of(
    shape: Shape, settings: WriterSettings, *, batch_bytes: int, put_ms: float, commit_ms: float
) -> Bill | None:
    """Simulate the load, spread evenly over the servers; None if their upload slots do not sustain it."""
    flushes = FlushSimulation(
        settings, bytes_per_s=shape.bytes_per_s / shape.server_count, batch_bytes=batch_bytes, put_ms=put_ms,
        commit_ms=commit_ms,
    ).run(SIMULATED_S)  # fmt: skip
    if not flushes.is_sustained:
        return None
    objects = GB / flushes.object_bytes
    data_files = GB / shape.compression / shape.data_file_bytes
    return Bill(
        requests={
            "PUT": objects + data_files,
            "GET": objects * (shape.compaction_reads + tail_reads(shape)),
            "DELETE": objects / DELETED_AT_ONCE,
        },
        read_bytes=GB * (1 + tail_reads(shape)),
        commits=objects,
        objects_per_s=flushes.objects_per_s * shape.server_count,
        object_bytes=flushes.object_bytes,
        p50_ms=flushes.p50_ms,
    )


def tail_reads(shape: Shape) -> float:
    """How often an object is read at the tail: by every server of the other zones, whole and once (`cache/objects.py`).

    The servers of the producer's zone share its partitions, so their consumers are served from the writer's memory.
    """
    if not shape.is_read_in_every_zone:
        return 0.0
    return shape.server_count * (1 - 1 / min(shape.zone_count, shape.server_count))


def cost(requests: Mapping[str, float], prices: Mapping[str, float]) -> float:
    """Price of `requests`; `prices` are per 1,000 requests."""
    return sum(prices.get(operation, 0.0) * number / 1000 for operation, number in requests.items())


def simulated_table(options: argparse.Namespace, prices: Mapping[str, float]) -> str:
    """The table of `simulate`: a row for each rate and number of servers."""
    settings = WriterSettings(linger_ms=options.linger_ms, flush_when_idle=False)
    rows = []
    for gb_per_s in options.gb_per_s:
        for server_count in options.servers:
            shape = Shape(
                bytes_per_s=gb_per_s * GB, server_count=server_count, zone_count=options.zones,
                is_read_in_every_zone=not options.read_in_one_zone, compaction_reads=options.compaction_reads,
                data_file_bytes=options.data_file_mb * 1e6, compression=options.compression,
            )  # fmt: skip
            bill = bill_of(
                shape, settings, batch_bytes=options.batch_bytes, put_ms=options.put_ms, commit_ms=options.commit_ms
            )
            rows.append([report.short(gb_per_s), str(server_count), *_cells(bill, gb_per_s, prices)])
    costs = ("cost/GB", "cost/hour") if prices else ()
    return report.table((*SIMULATED_HEADS, *costs), rows, left=())


def _cells(bill: Bill | None, gb_per_s: float, prices: Mapping[str, float]) -> list[str]:
    width = len(SIMULATED_HEADS) - 2 + (2 if prices else 0)
    if bill is None:
        return ["too few", "servers", *[""] * (width - 2)]
    figures = (
        bill.objects_per_s, bill.object_bytes / 1e6, bill.p50_ms, bill.requests["PUT"], bill.requests["GET"],
        bill.read_bytes / GB, bill.requests["DELETE"], bill.commits,
    )  # fmt: skip
    cells = [report.short(figure) for figure in figures]
    if prices:
        per_gb = cost(bill.requests, prices)
        cells += [f"{per_gb:.5f}", f"{per_gb * gb_per_s * 3600:.2f}"]
    return cells


def measured_table(measured: request_log.Measured, prices: Mapping[str, float]) -> str:
    """The table of `measure`: a row for each kind of object, and their sum."""
    gigabytes = measured.payload_bytes / GB
    rows = []
    for kind, counts in (*sorted(measured.requests.items()), ("all", request_log.total(measured.requests))):
        per_gb = {operation: number / gigabytes for operation, number in counts.items()}
        cells = [report.short(per_gb.get(operation, 0.0)) for operation in ("PUT", "GET", "HEAD", "LIST", "DELETE")]
        if prices:  # providers bill HEAD like GET
            reads = per_gb.get("GET", 0.0) + per_gb.get("HEAD", 0.0)
            cells.append(f"{cost({**per_gb, 'GET': reads}, prices):.5f}")
        rows.append([kind, *cells])
    return report.table((*MEASURED_HEADS, *(("cost/GB",) if prices else ())), rows)


def main() -> None:
    """Run the command line described at the top."""
    options = _parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    given = {operation: getattr(options, f"{operation.lower()}_price") for operation in OPERATIONS}
    prices = {operation: price for operation, price in given.items() if price is not None}
    if options.part == "simulate":
        print(
            f"Simulated for {SIMULATED_S:g} s: linger {options.linger_ms:g} ms, {options.batch_bytes:,} B batches, "
            f"PUT {options.put_ms:g} ms, commit {options.commit_ms:g} ms, {options.zones} zones.\n"
        )
        print(simulated_table(options, prices))
        return
    try:
        with workspace(MEMORY_ROOT) as directory:
            measured = request_log.measure(
                directory, command=options.bearlake, server_count=options.servers, seconds=options.seconds,
                has_compaction=options.compaction,
            )  # fmt: skip
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
    print("\n" + "; ".join(f"{name}: {value}" for name, value in processes.machine().items()))
    print(
        f"Measured: {measured.payload_bytes / GB:.2f} GB at {measured.mb_per_s:.1f} MB/s, p50 {measured.p50_ms:.0f} ms, "
        f"{measured.commits / (measured.payload_bytes / GB):.0f} commits/GB, other cores {measured.other_cores:.1f}. "
        f"Requests for tables and sweeps follow time: one stream, {measured.seconds:.0f} s.\n"
    )
    print(measured_table(measured, prices))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("simulate")
    part.add_argument("--gb-per-s", type=float, nargs="+", default=[0.1, 1, 5], help="GB/s of all servers")
    part.add_argument("--servers", type=int, nargs="+", default=[1, 3, 16, 64])
    part.add_argument("--linger-ms", type=float, default=250, help="streams.writer.linger_ms")
    part.add_argument("--batch-bytes", type=int, default=65_536, help="size of the producers' batches")
    part.add_argument("--put-ms", type=float, default=80, help="duration of a PUT")
    part.add_argument("--commit-ms", type=float, default=3, help="duration of a commit")
    part.add_argument("--zones", type=int, default=3, help="availability zones, with as many servers each")
    part.add_argument("--read-in-one-zone", action="store_true", help="consumers are in their producers' zone")
    part.add_argument("--compaction-reads", type=float, default=3, help="GETs of compaction per WAL object")
    part.add_argument("--data-file-mb", type=float, default=64, help="mean size of Parquet files")
    part.add_argument("--compression", type=float, default=2, help="bytes of batches per byte of Parquet")
    _add_prices(part)
    part = parts.add_parser("measure")
    part.add_argument("--seconds", type=float, default=30, help="duration of the load")
    part.add_argument("--servers", type=int, default=1)
    part.add_argument("--compaction", action="store_true", help="with a compaction worker (Spark)")
    part.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM", help="default: %(default)s")
    _add_prices(part)
    return parser


def _add_prices(part: argparse.ArgumentParser) -> None:
    for operation in OPERATIONS:
        part.add_argument(f"--{operation.lower()}-price", type=float, help=f"price of 1,000 {operation} requests")


if __name__ == "__main__":
    main()
