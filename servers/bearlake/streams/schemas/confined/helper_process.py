"""A helper process, from the server's side."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict

from bearlake.streams.schemas.confined import frames
from bearlake.streams.schemas.confined.frames import Answer
from bearlake.streams.schemas.confined.limits import Limits

HELPER = "bearlake.streams.schemas.confined.helper"
"""The helper's module; the server does not import it, to keep the compilers out of its process."""


class HelperProcess:
    """A helper process. Its owner uses it from one thread at a time."""

    def __init__(self, limits: Limits) -> None:
        """Start the process. Raises `OSError`."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", HELPER, json.dumps(asdict(limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,  # its own process group, so that signals of a terminal reach only the server
        )

    def ask(self, kind: int, request: bytes, processor_ms: int, wait_ms: int) -> Answer:
        """Send a request; return the child's answer, or how the child ended. Raises `EOFError`, `TimeoutError`, `OSError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + wait_ms / 1000
        head = frames.REQUEST.pack(kind, processor_ms, len(request))
        frames.Pipe(self._process.stdin.fileno(), deadline).write(head + request)
        answers = frames.Pipe(self._process.stdout.fileno(), deadline)
        status, processor_ms, done_count, size = frames.ANSWER.unpack(answers.read(frames.ANSWER.size))
        return Answer(status, processor_ms, done_count, answers.read(size))

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
