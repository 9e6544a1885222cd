"""The server's side: compiles and compares schemas, and writes costly values, in children, a few at once, the others in a bounded queue.

A child that exceeds a limit of its own work makes its schema invalid. A child that ends for any other reason, a helper that cannot be
started and a queue that is full say nothing about the schema: the caller can try again.

Helpers start at first use. Each has a thread that waits for it; the event loop never does.
"""

import asyncio
import base64
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from bearlake.errors import Overloaded, Unavailable
from bearlake.streams.schemas.compiled import Compiled
from bearlake.streams.schemas.confined import frames
from bearlake.streams.schemas.confined.limits import EXIT_MEMORY, Limits
from bearlake.streams.schemas.problems import InvalidSchema, SchemaTooLarge
from bearlake.streams.schemas.settings import SchemasSettings
from bearlake.streams.schemas.values.model import Unfit
from bearlake.telemetry import metrics

log = logging.getLogger(__name__)

HELPER = "bearlake.streams.schemas.confined.helper"
"""The module, which the server itself does not import: the compilers stay out of its process."""
ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""A schema of the default `schema_bytes_max` in every form that is kept, as JSON."""
GRACE_MS = 5_000
"""How long a helper may take to start, and to answer after the kernel should have ended its child."""
ATTEMPT_COUNT = 2
"""A helper that somebody killed is replaced once per request."""

_REFUSALS = {kind.__name__: kind for kind in (InvalidSchema, SchemaTooLarge)}
_TIME = (signal.SIGPROF, signal.SIGXCPU)
_MEMORY = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)


class Pool:
    """Compiles and compares. Used from the event loop's thread; whoever made it closes it."""

    def __init__(self, settings: SchemasSettings, *, answer_bytes_max: int = ANSWER_BYTES_MAX) -> None:
        self._settings = settings
        self._limits = Limits(
            memory_bytes_max=settings.compile_memory_bytes_max,
            processor_ms_max=settings.compile_time_ms_max,
            wall_ms_max=settings.compile_wait_ms_max,
            answer_bytes_max=answer_bytes_max,
        )
        self._threads = ThreadPoolExecutor(settings.compile_count_max, thread_name_prefix="schema-helper")
        self._requests: set[Future[tuple[int, bytes]]] = set()
        self._helpers: set[_Helper] = set()
        self._idle: list[_Helper] = []
        self._is_closed = False
        metrics.REGISTRY_COMPILES.set_function(lambda: len(self._requests))
        metrics.REGISTRY_COMPILES_MAX.set(self._request_count_max)

    def close(self) -> None:
        """End the helpers and their children; what they were asked fails with `Unavailable`."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in list(self._helpers):
            one.kill()
        self._threads.shutdown()
        for one in list(self._helpers):
            self._end(one)

    async def compiled(self, type_name: str, text: str, references: Mapping[str, str]) -> Compiled:
        """Compile `text`; `references` are the texts of what it names, by name, what they name themselves before them.

        Raises:
            InvalidSchema: with what is wrong.
            SchemaTooLarge: it needs more time or memory than the limits allow.
            Overloaded, Unavailable: this says nothing about the schema.
        """
        request = {"work": "compile", "type": type_name, "text": text, "references": dict(references)}
        return Compiled.from_json(await self._result(request))

    async def incompatibilities(self, reader: Compiled, writer: Compiled) -> list[str]:
        """What keeps `reader` from reading what was written with `writer`; empty: nothing.

        Raises as `compiled`.
        """
        found: list[str] = await self._result(
            {"work": "compare", "reader": reader.as_json(), "writer": writer.as_json()}
        )
        return found

    async def written(self, schema: Compiled, values: Sequence[Any]) -> list[bytes | Unfit | None]:
        """The bytes of JSON values by the schema, or what is wrong with them, one by one; None stays None. Raises as `compiled`."""
        found = await self._result({"work": "write", "schema": schema.as_json(), "values": values})
        return [_written(one) for one in found]

    @property
    def _request_count_max(self) -> int:
        return self._settings.compile_count_max + self._settings.compile_queue_count_max

    async def _result(self, request: Mapping[str, object]) -> Any:  # Any: by the work
        if self._is_closed:
            raise Unavailable("the schema registry of this server is closed")
        if len(self._requests) >= self._request_count_max:
            metrics.REGISTRY_COMPILE_FAILURES.labels("queue").inc()
            raise Overloaded(f"{len(self._requests)} schemas wait to be compiled already, come back later")
        started = time.monotonic()
        status, answer = await self._answer(json.dumps(request).encode("ascii"))
        metrics.REGISTRY_COMPILE_SECONDS.observe(time.monotonic() - started)
        return self._judged(status, answer)

    async def _answer(self, request: bytes) -> tuple[int, bytes]:
        waiting = self._threads.submit(self._ask, request)
        self._requests.add(waiting)
        waiting.add_done_callback(self._requests.discard)
        try:
            async with asyncio.timeout(self._settings.compile_wait_ms_max / 1000):
                return await asyncio.wrap_future(waiting)
        except TimeoutError as error:
            metrics.REGISTRY_COMPILE_FAILURES.labels("wait").inc()
            raise Overloaded("the server has too many schemas to compile, come back later") from error

    def _judged(self, status: int, answer: bytes) -> Any:  # Any: by the work
        """The result in an answer; raises what else the child, or its death, says."""
        if status == 0:
            content = json.loads(answer)
            if "result" in content:
                return content["result"]
            if "refused" in content:
                kind, message = content["refused"]
                raise _REFUSALS[kind](message)
            raise AssertionError(f"a compiler of schemas failed: {content['fault']}")
        reason, error = self._death(os.waitstatus_to_exitcode(status))
        metrics.REGISTRY_COMPILE_FAILURES.labels(reason).inc()
        log.warning("a child that compiled a schema was ended", extra={"reason": reason, "status": status})
        raise error

    def _death(self, code: int) -> tuple[str, InvalidSchema | SchemaTooLarge | Unavailable]:
        limits = self._limits
        if -code in _TIME:
            seconds = f"{limits.processor_ms_max / 1000:g} s"
            return "time", SchemaTooLarge(f"The schema needs more than {seconds} of processor time")
        if -code in _MEMORY or code == EXIT_MEMORY:
            size = f"{limits.memory_bytes_max / 1024 / 1024:g} MiB"
            return "memory", SchemaTooLarge(f"The schema needs more than {size} of memory, or is nested too deeply")
        if -code == signal.SIGXFSZ:
            size = f"{limits.answer_bytes_max / 1024 / 1024:g} MiB"
            return "size", SchemaTooLarge(f"The schema becomes larger than {size}")
        return "other", Unavailable("the process that compiled the schema ended early, try again")

    # -- on a thread ---------------------------------------------------------------------------------------------

    def _ask(self, request: bytes) -> tuple[int, bytes]:
        """Wait status of the child and its answer. Raises `Unavailable`."""
        failure: Exception | None = None
        for _ in range(ATTEMPT_COUNT):
            if self._is_closed:
                break
            one = self._idle.pop() if self._idle else self._started()
            try:
                found = one.ask(request, self._limits.wall_ms_max + GRACE_MS)
            except TimeoutError as error:
                self._end(one)
                failure = error
                break
            except (EOFError, OSError) as error:
                self._end(one)
                failure = error
            except BaseException:
                self._end(one)
                raise
            else:
                self._idle.append(one)
                return found
        metrics.REGISTRY_COMPILE_FAILURES.labels("helper").inc()
        raise Unavailable("the process that compiles schemas ended early") from failure

    def _started(self) -> "_Helper":
        try:
            one = _Helper(self._limits)
        except OSError as error:
            metrics.REGISTRY_COMPILE_FAILURES.labels("helper").inc()
            raise Unavailable(f"the process that compiles schemas cannot be started: {error.strerror}") from error
        self._helpers.add(one)
        if self._is_closed:  # `close` may have missed it
            one.kill()
        return one

    def _end(self, one: "_Helper") -> None:
        self._helpers.discard(one)
        one.close()


def _written(answer: Any) -> bytes | Unfit | None:  # Any: JSON, see `work`
    return Unfit(*answer) if isinstance(answer, list) else None if answer is None else base64.b64decode(answer)


class _Helper:
    """A helper process."""

    def __init__(self, limits: Limits) -> None:
        """Start it. Raises `OSError`."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", HELPER, json.dumps(asdict(limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join(one for one in sys.path if one), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # a group of its own: signals of a terminal are for the server
        )

    def ask(self, request: bytes, wait_ms: int) -> tuple[int, bytes]:
        """Wait status of a child and its answer. Raises `EOFError`, `OSError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + wait_ms / 1000
        frames.Pipe(self._process.stdin.fileno(), deadline).write(frames.SIZE.pack(len(request)) + request)
        answers = frames.Pipe(self._process.stdout.fileno(), deadline)
        status, size = frames.HEAD.unpack(answers.read(frames.HEAD.size))
        return status, answers.read(size)

    def kill(self) -> None:
        """End it, with its child."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it and free what belongs to it."""
        self.kill()
        with self._process:  # closes the pipes and waits
            pass
