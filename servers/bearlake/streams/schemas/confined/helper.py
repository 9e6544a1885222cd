"""The process between a server and its children: imports the compilers once and forks children.

The helper imports the compilers but never runs them. It forks one child for each schema to compile or to compare, so that a schema can
harm only its own child. It forks one child for all values, which keeps schemas; the helper replaces that child when the kernel has killed
it. The helper serves one request at a time. It exits when its standard input closes, so also if the server crashes. Its only argument is
`Limits` as JSON.
"""

import gc
import json
import math
import os
import sys

from bearlake.streams.schemas.confined import evaluator, frames, work
from bearlake.streams.schemas.confined.frames import Answer
from bearlake.streams.schemas.confined.limits import COMPILING_NICENESS, EXIT_MEMORY, Limits
from bearlake.streams.schemas.formats import protobuf
from bearlake.streams.schemas.memory_files import memory_file


def main() -> None:
    """Serve requests until standard input closes."""
    limits = Limits(**json.loads(sys.argv[1]))
    protobuf.known_files()  # fills a cache that all children inherit
    values = evaluator.Evaluator(limits)
    while True:
        try:
            kind, processor_ms, size = frames.REQUEST.unpack(frames.read_exactly(0, frames.REQUEST.size))
            request = frames.read_exactly(0, size)
            ask = values.ask if kind == frames.EVALUATE else _Compiling(limits).ask
            answer = ask(request, processor_ms)
            head = frames.ANSWER.pack(answer.status, answer.processor_ms, answer.done_count, len(answer.message))
            frames.write_all(1, head + answer.message)
        except (EOFError, BrokenPipeError):
            return


class _Compiling:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def ask(self, request: bytes, processor_ms: int) -> Answer:
        """Fork a child for the request; return its answer, or how it ended."""
        gc.freeze()  # keeps the child's garbage collector from touching, and so copying, shared pages
        with memory_file() as answer:
            child = os.fork()
            if child == 0:
                self._run(request, answer.fileno(), processor_ms)
            _, status, used = os.wait4(child, 0)
            answer.seek(0)
            message = answer.read(self._limits.answer_bytes_max) if status == 0 else b""
            return Answer(status, math.ceil((used.ru_utime + used.ru_stime) * 1000), 0, message)

    def _run(self, request: bytes, descriptor: int, processor_ms: int) -> None:
        """Run the request in the child; never returns."""
        code = 1
        try:
            self._limits.confine(COMPILING_NICENESS)
            self._limits.start_request(processor_ms)
            frames.write_all(descriptor, work.answer(request))
            code = 0
        except MemoryError:
            code = EXIT_MEMORY
        finally:
            os._exit(code)


if __name__ == "__main__":
    main()
