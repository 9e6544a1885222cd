"""The server's side: compiles and compares schemas, and writes costly values, in a few child processes with a bounded queue.

If a child exceeds a limit on its work, its schema is invalid. If a child ends for another reason, a helper cannot start, or the queue is
full, the schema may be valid: the caller can try again.

Helpers start at first use. A thread waits for each helper; the event loop never does.
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
"""The helper's module; the server does not import it, to keep the compilers out of its process."""
ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""Largest answer (bytes): a schema of the default `schema_bytes_max` in all its stored forms, as JSON."""
GRACE_MS = 5_000
"""Longest time for a helper to start, and to answer after the kernel should have killed its child."""
ATTEMPT_COUNT = 2
"""Attempts per request: if the helper dies, the request is retried once with a new helper."""

_REFUSALS = {kind.__name__: kind for kind in (InvalidSchema, SchemaTooLarge)}
_TIME = (signal.SIGPROF, signal.SIGXCPU)
_MEMORY = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT)


class Pool:
    """Compiles and compares schemas. Use it from the event loop's thread; its creator closes it."""

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
        self._helpers: set[_ParserProcess] = set()
        self._idle: list[_ParserProcess] = []
        self._is_closed = False
        metrics.REGISTRY_COMPILES.set_function(lambda: len(self._requests))
        metrics.REGISTRY_COMPILES_MAX.set(self._request_count_max)

    def close(self) -> None:
        """Kill the helpers and their children; their requests fail with `Unavailable`."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for one in list(self._helpers):
            one.kill()
        self._threads.shutdown()
        for one in list(self._helpers):
            self._end(one)

    async def compiled(self, type_name: str, text: str, references: Mapping[str, str]) -> Compiled:
        """Compile `text`. `references` has the texts of referenced schemas by name; each comes after the schemas that it references.

        Raises:
            InvalidSchema: the text or a reference is invalid; the message says why.
            SchemaTooLarge: the schema needs more time or memory than the limits allow.
            Overloaded, Unavailable: the schema was not judged; try again.
        """
        request = {"work": "compile", "type": type_name, "text": text, "references": dict(references)}
        return Compiled.from_json(await self._result(request))

    async def incompatibilities(self, reader: Compiled, writer: Compiled) -> list[str]:
        """Return why `reader` cannot read data written with `writer`; empty: compatible.

        Raises as `compiled`.
        """
        found: list[str] = await self._result(
            {"work": "compare", "reader": reader.as_json(), "writer": writer.as_json()}
        )
        return found

    async def written(self, schema: Compiled, values: Sequence[Any]) -> list[bytes | Unfit | None]:
        """Serialize JSON values; `Unfit` stands for a value that does not fit, and None stays None. Raises as `compiled`."""
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
        """Return the result in an answer; raises the child's error, or the error for the way that it died."""
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
        """Return the child's wait status and answer. Raises `Unavailable`."""
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

    def _started(self) -> "_ParserProcess":
        try:
            one = _ParserProcess(self._limits)
        except OSError as error:
            metrics.REGISTRY_COMPILE_FAILURES.labels("helper").inc()
            raise Unavailable(f"the process that compiles schemas cannot be started: {error.strerror}") from error
        self._helpers.add(one)
        if self._is_closed:  # `close` may have missed this helper
            one.kill()
        return one

    def _end(self, one: "_ParserProcess") -> None:
        self._helpers.discard(one)
        one.close()


def _written(answer: Any) -> bytes | Unfit | None:  # Any: JSON, see `work`
    return Unfit(*answer) if isinstance(answer, list) else None if answer is None else base64.b64decode(answer)


class _ParserProcess:
    """A helper process."""

    def __init__(self, limits: Limits) -> None:
        """Start the process. Raises `OSError`."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", HELPER, json.dumps(asdict(limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join(one for one in sys.path if one), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # its own process group, so that signals of a terminal reach only the server
        )

    def ask(self, request: bytes, wait_ms: int) -> tuple[int, bytes]:
        """Send a request; returns the child's wait status and answer. Raises `EOFError`, `OSError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + wait_ms / 1000
        frames.Pipe(self._process.stdin.fileno(), deadline).write(frames.SIZE.pack(len(request)) + request)
        answers = frames.Pipe(self._process.stdout.fileno(), deadline)
        status, size = frames.HEAD.unpack(answers.read(frames.HEAD.size))
        return status, answers.read(size)

    def kill(self) -> None:
        """Kill the process and its child."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # the process has just ended
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and free its resources."""
        self.kill()
        with self._process:  # closes the pipes and waits
            pass
