"""The loop over one target's inputs, and what it checks of every input.

errors       only declared kinds leave the target
time         no input takes more processor time than the target allows, in the best of five tries
memory       traced for new kinds of answers and for every 256th input; all others run under a limit of the whole process
crashes      the input under test is in a file (`Note`), which the process that started this one reads when it has died
"""

import mmap
import signal
import struct
import time
import traceback
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from fuzz.mutation import Mutator
from fuzz.target import Target, signed

FINDINGS_MAX = 20
"""Findings of one target, after which its run ends."""
TRACED_EVERY = 256
TRIES = 5
STUCK_S = 60
"""Processor time after which an input's process is ended."""
CORPUS_MAX = 2000


class Edges(Protocol):
    """Coverage of the kernel."""

    def reset(self) -> None:
        """Forget which edges the last input took."""

    def new_edges(self) -> int:
        """Return how many edges the last input took first."""

    def edge_count(self) -> int:
        """Return how many edges all inputs took."""


class NoEdges:
    """Stands for the coverage of an ordinary kernel."""

    def reset(self) -> None:
        """Do nothing: there is nothing to forget."""

    def new_edges(self) -> int:
        """Return 0."""
        return 0

    def edge_count(self) -> int:
        """Return 0."""
        return 0


class Note:
    """The input under test, in a file that outlives the process."""

    _SIZES = struct.Struct(">HI")

    def __init__(self, path: Path, size: int) -> None:
        path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)

    def write(self, name: str, data: bytes) -> None:
        """Replace the input under test by `data` for the target `name`."""
        head = name.encode()
        self._map[: 6 + len(head) + len(data)] = self._SIZES.pack(len(head), len(data)) + head + data

    @classmethod
    def read(cls, path: Path) -> tuple[str, bytes]:
        """Return the target's name and the input."""
        content = path.read_bytes()
        head, size = cls._SIZES.unpack_from(content)
        return content[6 : 6 + head].decode(), content[6 + head : 6 + head + size]


@dataclass(slots=True)
class Finding:
    """An input that broke a promise."""

    target: str
    what: str
    data: str
    """The input in hexadecimal."""
    details: str = ""


@dataclass(slots=True)
class Figures:
    """What a run of one target did."""

    target: str
    inputs: int = 0
    accepted: int = 0
    """Inputs that raised no error."""
    answers: int = 0
    """Kinds of answers."""
    edges: int = 0
    """Edges of the kernel that no target before it has taken."""
    corpus: int = 0
    processor_s: float = 0.0
    slowest_ms: float = 0.0
    memory_bytes: int = 0
    """Largest traced memory of an input."""
    findings: list[Finding] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return asdict(self)


class Run:
    """One run of one target."""

    def __init__(
        self, target: Target, run: Callable[[bytes], object], seed: int, note: Note, edges: Edges, *, slowdown: float
    ) -> None:
        """`slowdown`: how much longer than usual an input may take, e.g. under sanitizers."""
        self._target = target
        self._run = run
        self._note = note
        self._edges = edges
        self._edges_before = edges.edge_count()
        self._limit_s = target.processor_s * slowdown
        self._random = Random(f"{target.name} {seed}")
        self._mutator = Mutator(self._random, target.tokens, target.bytes_max)
        self._answers: set[str] = set()
        self._known: set[str] = set()
        self.figures = Figures(target.name)

    def all(self, inputs: int) -> Figures:
        """Take this many inputs, the seeds first."""
        target, figures = self._target, self.figures
        corpus: list[bytes] = list(target.seeds())
        seeds: Sequence[bytes] = tuple(corpus)
        begun = time.process_time()
        for number in range(inputs):
            data = seeds[number] if number < len(seeds) else self._next(corpus)
            is_new = self.check(data)
            if is_new and number >= len(seeds) and not target.is_timed:
                if len(corpus) < CORPUS_MAX:
                    corpus.append(data)
                else:
                    corpus[self._random.randrange(len(seeds), CORPUS_MAX)] = data
            if len(figures.findings) >= FINDINGS_MAX:
                break
        signal.setitimer(signal.ITIMER_PROF, 0)
        figures.processor_s = time.process_time() - begun
        figures.answers, figures.corpus = len(self._answers), len(corpus)
        figures.edges = self._edges.edge_count() - self._edges_before
        return figures

    def _next(self, corpus: Sequence[bytes]) -> bytes:
        target, random = self._target, self._random
        if target.change is None or random.random() >= target.change_share:
            return self._mutator.next(corpus)
        keeps_structure = target.is_structured or random.random() < 0.3
        data = bytearray(self._mutator.chosen(corpus) if keeps_structure else self._mutator.next(corpus))
        target.change(random, data)
        return bytes(data[: target.bytes_max])

    def check(self, data: bytes) -> bool:
        """Take one input; returns whether its answer is new."""
        figures = self.figures
        figures.inputs += 1
        self._note.write(self._target.name, data)
        signal.setitimer(signal.ITIMER_PROF, STUCK_S)  # its signal ends the process
        self._edges.reset()
        start = time.process_time()
        answer, is_accepted = self._answer(data)
        figures.accepted += is_accepted
        taken = time.process_time() - start
        is_new = self._edges.new_edges() > 0
        if answer not in self._answers:
            self._answers.add(answer)
            is_new = True
        if taken > figures.slowest_ms / 1000:
            figures.slowest_ms = 1000 * taken
        if taken > self._limit_s:
            self._check_time(data)
        if self._target.run is not None and (is_new or figures.inputs % TRACED_EVERY == 0):
            self._check_memory(data)
        return is_new

    def _answer(self, data: bytes) -> tuple[str, bool]:
        """Return the kind of the answer, and whether it is not an error."""
        try:
            return repr(self._run(data))[:200], True
        except self._target.errors as error:
            return signed(error), False
        except Exception as error:  # noqa: BLE001 - the finding
            self._found(_place(error), data, "".join(traceback.format_exception(error)))
            return signed(error), False

    def _check_time(self, data: bytes) -> None:
        """Report an input that takes too long at every try."""
        best = float("inf")
        for _ in range(TRIES):
            start = time.process_time()
            self._answer(data)
            best = min(best, time.process_time() - start)
            if best <= self._limit_s:
                return
        self._found("time", data, f"{len(data)} bytes took {best:.3f} s; the limit is {self._limit_s:.3f} s")

    def _check_memory(self, data: bytes) -> None:
        """Report an input that takes too much memory, and again when it is repeated: some other table may have grown meanwhile."""
        limit = self._target.memory_bytes + self._target.memory_factor * len(data)
        peak = self._traced(data)
        if peak > limit:
            peak = self._traced(data)
        self.figures.memory_bytes = max(self.figures.memory_bytes, peak)
        if peak > limit:
            self._found("memory", data, f"{len(data)} bytes took {peak} bytes; the limit is {limit} bytes")

    def _traced(self, data: bytes) -> int:
        tracemalloc.start(1)
        try:
            self._answer(data)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def _found(self, what: str, data: bytes, details: str) -> None:
        if what not in self._known:
            self._known.add(what)
            self.figures.findings.append(Finding(self._target.name, what, data.hex(), details[-6000:]))


def _place(error: Exception) -> str:
    """Return the kind of the error and where it was raised: the last line of our own code."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/fuzz/engine" not in frame.filename and "/bearlake/" in frame.filename]
    last = (ours or frames)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
