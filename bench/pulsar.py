"""The Pulsar benchmark: Bearlake and Apache Pulsar under the same load, in alternating runs.

    python bench/pulsar.py                      every case, three repetitions (about 10 minutes)
    python bench/pulsar.py --quick              one short repetition: does it work?
    python bench/pulsar.py --only produce-64k --only move-python --repetitions 5
    python bench/pulsar.py --side bearlake --only produce-unbatched     no peer: for work on a profile
    python bench/pulsar.py --list

Both servers stay up; each run has its own topic, which is deleted afterwards. README.md, "Pulsar", describes the comparison.
"""

import argparse
import contextlib
import itertools
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bearlake_server import COMMAND
from bench.errors import BenchError
from bench.figures import Run
from bench.loading import Load
from bench.peer_pulsar import PulsarPeer
from bench.pulsar_cases import BY_NAME, CASES, EXTRA, MOVES, PulsarCase
from bench.pulsar_moves import Movable, MoveResult, Unloading
from bench.pulsar_server import BearlakePulsar
from bench.report import OURS, Result
from bench.run import MEMORY_ROOT, note_run, touch_memory, workspace

from bench import loading, processes, pulsar_frames, pulsar_moves, pulsar_topics, report, templates

PEER = "pulsar"
RUN_BYTES_MAX = 2 << 30
"""Payload of one produce run, warm-up included; a faster server gets a shorter window, not more space."""
FILL_DEPTH = 64
CONSUME_S_MAX = 60
WARMUP_NAMES = ("produce-64k", "produce-100b", "produce-unbatched", "consume-1k-exclusive", "consume-100b-shared")

_NUMBERS = itertools.count(1)  # a topic name is never reused, since its deletion may still be in progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long to measure."""

    seconds: float = 3
    warmup_s: float = 1
    consume_warmup_s: float = 0.2
    repetitions: int = 3
    discarded: int = 1
    """Discarded runs of each case and server before the first one that counts."""
    backlog_share: float = 1
    """Bytes of a case's backlog for consumers."""
    peer_warmup_s: float = 20
    """Duration of the produce load; the consume load is additional."""

    def __str__(self) -> str:
        words = (
            f"Medians of {self.repetitions} runs of {self.seconds:g} s after {self.warmup_s:g} s warm-up (consumers: of a whole backlog "
            f"but its first {self.consume_warmup_s:g} s), servers in turn; peer warmed by {self.peer_warmup_s:g} s of produce load and "
            f"two backlogs at its start, {self.discarded} run of each case thrown away."
        )
        return words if self.discarded else f"{words} The peer is cold: this only shows that everything works."


QUICK = Effort(
    seconds=0.8, warmup_s=0.3, consume_warmup_s=0.05, repetitions=1, discarded=0, backlog_share=0.1, peer_warmup_s=2,
)  # fmt: skip


class PulsarServer(loading.Server, Protocol):
    """A server under measurement: the peer or Bearlake."""

    @property
    def http(self) -> str:
        """Base URL of the admin API."""


def main() -> None:
    """Command line: see the head of the file. Exit code 1 if a case failed, 2 if nothing could be measured."""
    options = _parser().parse_args()
    if options.list:
        for case in (*CASES, *EXTRA):
            print(f"{case.name:28} {case.title}{'' if case in CASES else '   (only when named)'}")
        for name, client in MOVES.items():
            print(f"{name:28} a drain moves a producer and a consumer of the {client} client")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are stopped and data is wiped
    effort = QUICK if options.quick else Effort()
    effort = replace(effort, repetitions=options.repetitions or effort.repetitions)
    chosen = [BY_NAME[name] for name in options.only or [case.name for case in CASES] if name in BY_NAME]
    moves = [name for name in options.only or MOVES if name in MOVES]
    try:
        machine = processes.machine()
        results, moved = run_suite(chosen, moves, effort, options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        sys.exit(2)
    has_verdict = not options.quick
    text = report.text(machine, str(effort), results, has_verdict=has_verdict, peer=PEER)
    if moved:
        text += "\n" + pulsar_moves.text(moved, has_verdict=has_verdict)
    found = report.as_json(machine, str(effort), results, peer=PEER) | {"moves": pulsar_moves.as_json(moved)}
    report.publish(text, found, options)
    failures = [result.failures for result in results] + [result.failures for result in moved]
    sys.exit(1 if any(failures) else 0)


def run_suite(
    chosen: Sequence[PulsarCase], moves: Sequence[str], effort: Effort, options: argparse.Namespace
) -> tuple[list[Result], list[MoveResult]]:
    """Measure the chosen cases and moves, in this order."""
    command = options.bearlake.resolve()
    if options.side != PEER and not command.exists():
        raise BenchError(f"{command} does not exist: install Bearlake, or name the program with --bearlake")
    results = [Result(case=case) for case in chosen]
    moved = [MoveResult(name=name, client=MOVES[name]) for name in moves]
    with workspace(MEMORY_ROOT) as directory, contextlib.ExitStack() as running:
        if options.side is None and not options.quick:
            touch_memory(directory)
        peer = PulsarPeer(directory / PEER)
        servers: list[PulsarServer] = [] if options.side == OURS else [peer]
        if options.side != PEER and chosen:
            servers.append(BearlakePulsar(directory / OURS, command=command))
        for server in servers:
            running.callback(server.stop)
            server.start()
            print(f"{server.name} serves at {server.address}", flush=True)
        if peer in servers and chosen:
            _warm(peer, effort, directory)
        for result in results:
            print(f"{result.case.name}: {result.case.title}", flush=True)
            for number in range(effort.discarded + effort.repetitions):
                for server in servers:
                    once = partial(measure, server, BY_NAME[result.case.name], effort, directory / "templates")
                    note_run(result, server.name, once, counts=number >= effort.discarded)
        sides: list[Movable] = [] if options.side == OURS else [Unloading(peer)]
        if options.side != PEER and moved:
            sides.append(running.enter_context(pulsar_moves.pair(directory / "moves", command=command)))
        for move in moved:
            print(f"{move.name}: the {move.client} client at a drain", flush=True)
            for side in sides * effort.repetitions:
                _move_once(side, move, directory)
    return results, moved


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument("--only", action="append", metavar="CASE", choices=(*BY_NAME, *MOVES), help="may be repeated")
    parser.add_argument("--side", choices=(PEER, OURS), help="measure one server only")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--bearlake", type=Path, default=COMMAND, metavar="PROGRAM", help="default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run with every figure")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the printed tables")
    parser.add_argument("--list", action="store_true", help="name the cases")
    return parser


def _move_once(side: Movable, result: MoveResult, directory: Path) -> None:
    """Run one move and add it to `result`, with any failure; the suite continues."""
    if side.name in result.failures:
        return
    try:
        move = pulsar_moves.measure(side, result.client, directory)
    except BenchError as error:
        result.failures[side.name] = str(error)
        result.moves.pop(side.name, None)
        print(f"  {side.name:8} failed: {error}", flush=True)
    else:
        result.moves.setdefault(side.name, []).append(move)
        print(pulsar_moves.line(side.name, move), flush=True)


def measure(server: PulsarServer, case: PulsarCase, effort: Effort, directory: Path) -> Run:
    """Run `case` once on its own topic, which is deleted afterwards. Template files go to `directory`."""
    server.prepare_next_run()
    topic = f"bench-{case.name}-{next(_NUMBERS)}"
    pulsar_topics.create(server.http, topic)
    try:
        if case.kind == "produce":
            return loading.run_loader(server, _producing(case, effort, topic, directory))
        count = int(case.message_count * effort.backlog_share)
        entry_count = -(-count // case.entry.message_count)
        filling = replace(case, depth=FILL_DEPTH, pause_us=0)
        load = _producing(filling, replace(effort, seconds=CONSUME_S_MAX, warmup_s=0), topic, directory)
        loading.run_loader(server, replace(load, requests_max=entry_count))
        return loading.run_loader(server, _consuming(case, effort, topic, entry_count, directory))
    finally:
        with contextlib.suppress(BenchError):  # the original failure of the run is more useful
            pulsar_topics.delete(server.http, topic)
        shutil.rmtree(directory, ignore_errors=True)


def _producing(case: PulsarCase, effort: Effort, topic: str, directory: Path) -> Load:
    """Write the producer's template; returns the load options."""
    templates.write_templates(directory, [pulsar_frames.producer(topic, case.entry)])
    return Load(
        program="pulsar", templates=directory, connections=1, depth=case.depth, seconds=effort.seconds,
        warmup_s=effort.warmup_s, pause_us=case.pause_us, requests_max=RUN_BYTES_MAX // case.entry.payload_bytes,
        payload_bytes=case.entry.payload_bytes,
    )  # fmt: skip


def _consuming(case: PulsarCase, effort: Effort, topic: str, entry_count: int, directory: Path) -> Load:
    """Write the consumers' templates; returns the load options. The window ends when the backlog is consumed."""
    consumers = [pulsar_frames.consumer(topic, number, case.subscription) for number in range(case.consumer_count)]
    templates.write_templates(directory, consumers)
    return Load(
        program="pulsar", templates=directory, connections=case.consumer_count, depth=case.depth, seconds=CONSUME_S_MAX,
        warmup_s=effort.consume_warmup_s, requests_max=entry_count * case.entry.message_count,
        payload_bytes=case.entry.message_bytes,
    )  # fmt: skip


def _warm(peer: PulsarPeer, effort: Effort, directory: Path) -> None:
    """Mixed load to warm the peer's just-in-time compiler; its figures are discarded."""
    print(f"warming {peer.name} for {effort.peer_warmup_s:g} s of produce load, and consumers", flush=True)
    produced = [name for name in WARMUP_NAMES if BY_NAME[name].kind == "produce"]
    warmup = replace(effort, warmup_s=0, seconds=effort.peer_warmup_s / len(produced))
    for name in WARMUP_NAMES:
        measure(peer, BY_NAME[name], warmup, directory / "templates")


if __name__ == "__main__":
    main()
