"""The process between a server and its children: imports the compilers once and forks one child per request.

The helper imports the compilers but never runs them, so that a request can harm only its own child. It serves one request at a time. It
exits when its standard input closes, so also if the server crashes. Its only argument is `Limits` as JSON.
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
    """Serve requests until standard input closes."""
    limits = Limits(**json.loads(sys.argv[1]))
    protobuf.known_files()  # fills a cache that all children inherit
    while True:
        try:
            (size,) = frames.SIZE.unpack(frames.read_exactly(0, frames.SIZE.size))
            status, answer = _answer(frames.read_exactly(0, size), limits)
            frames.write_all(1, frames.HEAD.pack(status, len(answer)) + answer)
        except (EOFError, BrokenPipeError):
            return


def _answer(request: bytes, limits: Limits) -> tuple[int, bytes]:
    """Fork a child for the request; returns its wait status and its answer."""
    gc.freeze()  # keeps the child's garbage collector from touching, and so copying, shared pages
    with memory_file() as answer:
        child = os.fork()
        if child == 0:
            _run(request, answer.fileno(), limits)
        _, status = os.waitpid(child, 0)
        answer.seek(0)
        return status, answer.read(limits.answer_bytes_max) if status == 0 else b""


def _run(request: bytes, descriptor: int, limits: Limits) -> None:
    """Run the request in the child; never returns."""
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
