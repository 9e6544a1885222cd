"""The process between a server and its children: imports the compilers once and forks one child per request.

It runs no code of the compilers itself beyond importing them, so that a request can hurt its own child only. It serves one request
at a time and ends when its standard input ends, however the server ended. Its only argument is `Limits` as JSON.
"""

import gc
import json
import os
import sys

from bearlake.streams.schemas.confined import frames, work
from bearlake.streams.schemas.confined.limits import EXIT_MEMORY, Limits
from bearlake.streams.schemas.formats import protobuf
from bearlake.streams.schemas.memory_files import memory_file


def main() -> None:
    """Serve until standard input ends."""
    limits = Limits(**json.loads(sys.argv[1]))
    protobuf.known_files()  # later children find it done
    while True:
        try:
            (size,) = frames.SIZE.unpack(frames.read_exactly(0, frames.SIZE.size))
            status, answer = _answer(frames.read_exactly(0, size), limits)
            frames.write_all(1, frames.HEAD.pack(status, len(answer)) + answer)
        except (EOFError, BrokenPipeError):
            return


def _answer(request: bytes, limits: Limits) -> tuple[int, bytes]:
    """Wait status of a new child, and what it wrote."""
    gc.freeze()  # the child shares these pages as long as it does not collect them
    with memory_file() as answer:
        child = os.fork()
        if child == 0:
            _run(request, answer.fileno(), limits)
        _, status = os.waitpid(child, 0)
        answer.seek(0)
        return status, answer.read(limits.answer_bytes_max) if status == 0 else b""


def _run(request: bytes, descriptor: int, limits: Limits) -> None:
    """The child: never returns."""
    code = 1
    try:
        limits.confine()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        frames.write_all(descriptor, work.answer(request))
        code = 0
    except MemoryError:
        code = EXIT_MEMORY
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
