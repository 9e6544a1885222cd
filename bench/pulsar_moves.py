"""How long a producer and a consumer wait while they move to another server, and whether a message is lost or delivered twice.

An unmodified client (`movers/`: Python's, based on the C++ client, and Java's) sends a message each millisecond and consumes
them on a Shared subscription. Of two Bearlake servers on the same stores, the one that serves the topic gets SIGTERM. Pulsar
standalone has no second broker: its topic is unloaded, after which clients look it up again.
"""

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Protocol

from bench.errors import BenchError
from bench.java_peer import LOGGING
from bench.peer_pulsar import JARS, PulsarPeer, fetch_jars
from bench.pulsar_cases import MOVE_GOAL_MS
from bench.pulsar_server import BearlakePulsar
from bench.report import OURS, table

from bench import pulsar_topics

MOVERS = Path(__file__).resolve().parent / "movers"
BEFORE_S = {"python": 1.5, "java": 4.0}
"""Time before the move, in which Java's compiler warms up."""
AFTER_S = 2.0
TIMEOUT_S = 90
PEER = "pulsar"
HEADS = (
    "client", "server", "no receipt ms [min-max]", "no message ms [min-max]", "goal", "before the move", "lost", "twice", "result",
)  # fmt: skip

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One move as observed by a client program."""

    sent: int
    failures: list[str]
    lost: int
    duplicates: int
    receipt_gap_ms: float
    """Longest time between two receipts, from the start of the move on."""
    message_gap_ms: float
    receipt_gap_before_ms: float
    """The same before the move: the gaps that the client and the machine cause."""
    message_gap_before_ms: float


@dataclass(slots=True, kw_only=True)
class MoveResult:
    """Moves of one client by server, and the failures of each server."""

    name: str
    client: str
    moves: dict[str, list[Move]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class Movable(Protocol):
    """A side whose clients can be moved."""

    name: str

    def urls(self) -> str:
        """Service URL for clients."""

    def http(self) -> str:
        """Base URL of the admin API."""

    def move(self, topic: str) -> None:
        """Start to move the clients of `topic` to another server; returns at once."""

    def prepare_next_move(self) -> None:
        """Prepare for the next move."""


class Pair:
    """Two Bearlake servers on the same stores; a stopped server is restarted."""

    name = OURS

    def __init__(self, directory: Path, *, command: Path) -> None:
        stores = directory / "data"
        self.servers = [BearlakePulsar(directory / name, command=command, stores=stores) for name in ("one", "other")]
        self._stopped: BearlakePulsar | None = None

    def start(self) -> None:
        """Start both."""
        for server in self.servers:
            server.start()

    def stop(self) -> None:
        """Stop both."""
        for server in self.servers:
            server.stop()

    def urls(self) -> str:
        """See `Movable`."""
        return "pulsar://" + ",".join(server.address for server in self.servers)

    def http(self) -> str:
        """See `Movable`."""
        return self.servers[0].http

    def move(self, topic: str) -> None:
        """See `Movable`."""
        holder = pulsar_topics.served_by(self.http(), topic)
        self._stopped = next(server for server in self.servers if holder.endswith(server.address))
        self._stopped.terminate()

    def prepare_next_move(self) -> None:
        """See `Movable`."""
        if self._stopped is not None:
            self._stopped.stop()  # the server may still be draining
            self._stopped.start()
            self._stopped = None


class Unloading:
    """The peer, whose topic is unloaded."""

    name = PEER

    def __init__(self, peer: PulsarPeer) -> None:
        self._peer = peer

    def urls(self) -> str:
        """See `Movable`."""
        return f"pulsar://{self._peer.address}"

    def http(self) -> str:
        """See `Movable`."""
        return self._peer.http

    def move(self, topic: str) -> None:
        """See `Movable`."""
        pulsar_topics.unload(self.http(), topic)

    def prepare_next_move(self) -> None:
        """See `Movable`: the peer stays up."""


@contextlib.contextmanager
def pair(directory: Path, *, command: Path) -> Iterator[Pair]:
    """Two servers that run, and are stopped at the end."""
    both = Pair(directory, command=command)
    try:
        both.start()
        yield both
    finally:
        both.stop()


def measure(side: Movable, client: str, directory: Path) -> Move:
    """One move of one client. Raises BenchError if the program fails or reports an error."""
    side.prepare_next_move()
    topic = f"move-{client}-{next(_NUMBERS)}"
    pulsar_topics.create(side.http(), topic)
    words = [*_program(client, directory), side.urls(), topic, str(BEFORE_S[client]), str(AFTER_S)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=directory) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if line == "steady\n":
                side.move(topic)
            out, complaints = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise BenchError(f"the {client} client did not end within {TIMEOUT_S} s") from error
        except BaseException:
            process.kill()
            raise
    if line != "steady\n" or process.returncode != 0:
        raise BenchError(f"the {client} client ended with {process.returncode}: {complaints.strip()[-300:]}")
    found = Move(**json.loads(out.splitlines()[-1]))
    if found.failures:
        raise BenchError(f"the {client} client got an error: {found.failures[0]}")
    return found


def text(results: Sequence[MoveResult], *, has_verdict: bool = True) -> str:
    """A Markdown table of medians with their spread, with verdicts against the goals, followed by the failures."""
    rows = [
        _row(result.client, server, moves, has_verdict=has_verdict)
        for result in results
        for server, moves in result.moves.items()
    ]
    failures = [f"- {r.name}, {server}: {why}" for r in results for server, why in r.failures.items()]
    parts = [table(HEADS, rows, left=(0, 1, len(HEADS) - 1))] if rows else []
    return "\n\n".join([*parts, *(["Failed:\n\n" + "\n".join(failures)] if failures else [])]) + "\n"


def line(server: str, move: Move) -> str:
    """One move in one line, to show progress."""
    return (
        f"  {server:8} no receipt for {move.receipt_gap_ms:.1f} ms, no message for {move.message_gap_ms:.1f} ms"
        f"  lost {move.lost}, twice {move.duplicates} of {move.sent}"
    )


def as_json(results: Sequence[MoveResult]) -> list[dict[str, object]]:
    """Every move with every figure."""
    return [asdict(result) for result in results]


def missed(client: str, moves: Sequence[Move]) -> list[str]:
    """Describe the parts of the goal that were missed."""
    goal_ms = MOVE_GOAL_MS[client]
    out = []
    if median(move.receipt_gap_ms for move in moves) > goal_ms:
        out.append("producer")
    if median(move.message_gap_ms for move in moves) > goal_ms:
        out.append("consumer")
    if any(move.duplicates for move in moves):
        out.append("twice")
    if any(move.lost for move in moves):
        out.append("lost")
    return out


def _row(client: str, server: str, moves: Sequence[Move], *, has_verdict: bool) -> list[str]:
    def spread(values: Sequence[float]) -> str:
        return f"{median(values):.1f} [{min(values):.1f}-{max(values):.1f}]"

    verdict = "" if server != OURS else ", ".join(missed(client, moves)) or "reached"
    before = median(max(move.receipt_gap_before_ms, move.message_gap_before_ms) for move in moves)
    return [
        client,
        server if server == OURS else f"{server}, topic unloaded",
        spread([move.receipt_gap_ms for move in moves]),
        spread([move.message_gap_ms for move in moves]),
        f"<= {MOVE_GOAL_MS[client]:g}",
        f"{before:.1f}",
        str(sum(move.lost for move in moves)),
        str(sum(move.duplicates for move in moves)),
        (f"missed: {verdict}" if verdict not in ("", "reached") else verdict) if has_verdict else "no verdict",
    ]


def _program(client: str, directory: Path) -> list[str | Path]:
    if client == "python":
        return [sys.executable, MOVERS / "move.py"]
    fetch_jars()
    logging = directory / "log4j2.properties"
    logging.write_text(LOGGING + "appender.console.target = SYSTEM_ERR\n")
    return ["java", "-Xmx256m", f"-Dlog4j2.configurationFile={logging}", "-cp", f"{JARS}/*", MOVERS / "Move.java"]
