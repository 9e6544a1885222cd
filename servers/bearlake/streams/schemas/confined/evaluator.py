"""Reads and writes values in a child that keeps schemas from request to request, because a fork per request costs too much.

The time limit applies to each request: the child starts a timer of processor time before a request and stops it before the answer. A
schema that the child does not know yet has a time limit of its own. The memory limit applies to the child with all its schemas. So if a
child that has served earlier requests runs out of memory, the request runs again in a new child, and only the second failure counts.
"""

import gc
import math
import mmap
import os
import struct
import time
from collections.abc import Callable

from bearlake.streams.schemas.confined import frames, value_work
from bearlake.streams.schemas.confined.frames import Answer
from bearlake.streams.schemas.confined.limits import EXIT_MEMORY, VALUES_NICENESS, Limits, is_memory

_COUNT = struct.Struct(">I")


class Evaluator:
    """The helper's side: starts the child, passes requests on, and replaces a child that ended."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._done = mmap.mmap(-1, _COUNT.size)
        """Shared with the child: the number of finished values of the current request."""
        self._child: _Child | None = None

    def ask(self, request: bytes, processor_ms: int) -> Answer:
        """Return the child's answer, or how it ended."""
        while True:
            child = self._child = self._child or _Child(self._limits, self._done)
            is_first = child.request_count == 0
            try:
                return child.ask(request, processor_ms)
            except (EOFError, BrokenPipeError, ConnectionResetError):
                self._child = None
                status, used_ms = child.ended()
            if is_first or not is_memory(os.waitstatus_to_exitcode(status)):
                return Answer(status, used_ms, _COUNT.unpack_from(self._done)[0], b"")


class _Child:
    def __init__(self, limits: Limits, done: mmap.mmap) -> None:
        gc.freeze()  # keeps the garbage collector from touching, and so copying, shared pages
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self.request_count = 0
        self._used_ms = 0
        self._id = os.fork()
        if self._id == 0:
            os.close(self._requests)
            os.close(self._answers)
            _serve(requests, answers, limits, done)
        os.close(requests)
        os.close(answers)

    def ask(self, request: bytes, processor_ms: int) -> Answer:
        """Return the answer. Raises `EOFError`, `OSError`: the child has ended."""
        head = frames.REQUEST.pack(frames.EVALUATE, processor_ms, len(request))
        frames.write_all(self._requests, head + request)
        head = frames.read_exactly(self._answers, frames.ANSWER.size)
        status, used_ms, done_count, size = frames.ANSWER.unpack(head)
        answer = Answer(status, used_ms, done_count, frames.read_exactly(self._answers, size))
        self.request_count += 1
        self._used_ms += answer.processor_ms
        return answer

    def ended(self) -> tuple[int, int]:
        """Wait for the end of the child; return its wait status and the processor time of its last request, in milliseconds."""
        os.close(self._requests)
        os.close(self._answers)
        _, status, used = os.wait4(self._id, 0)
        return status, max(0, math.ceil((used.ru_utime + used.ru_stime) * 1000) - self._used_ms)


def _serve(requests: int, answers: int, limits: Limits, done: mmap.mmap) -> None:
    """Serve requests in the child until the helper ends; never returns."""
    code = 1
    try:
        limits.confine(VALUES_NICENESS)
        known = value_work.Known()
        while True:
            _, processor_ms, size = frames.REQUEST.unpack(frames.read_exactly(requests, frames.REQUEST.size))
            _COUNT.pack_into(done, 0, 0)
            request = frames.read_exactly(requests, size)
            before = time.process_time()
            limits.start_request(processor_ms)
            message = value_work.answer(request, known, limits.start_request, _counting(done))
            limits.end_request()
            used_ms = math.ceil((time.process_time() - before) * 1000)
            frames.write_all(answers, frames.ANSWER.pack(0, used_ms, 0, len(message)) + message)
    except EOFError:
        code = 0
    except MemoryError:
        code = EXIT_MEMORY
    finally:
        os._exit(code)


def _counting(done: mmap.mmap) -> Callable[[int], None]:
    return lambda count: _COUNT.pack_into(done, 0, count)
