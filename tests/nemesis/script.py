"""The context of every client process: its plan, its history, its random source, and its end."""

import faulthandler
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nemesis.recording import Recording

STREAM = "main"
ODD_STREAM = "odd"
PULSAR_TOPIC = "pulsar"
TRANSACTIONAL_TOPIC = "transactional"
COPIES_TOPIC = "copies"
CLEANED_TOPIC = "cleaned"
"""A topic with key compaction."""


HUNG = 75
"""Exit code of a client whose library does not return from a call."""
BURST_COUNT = 24
BURST_S = 0.008


class Script:
    """See the module. SIGTERM sets `is_running` to false, SIGUSR1 ends `sleep`, SIGUSR2 writes the stacks of all threads to stderr."""

    def __init__(self, kind: str, plan: dict[str, Any]) -> None:
        self.kind = kind
        self.name: str = plan["name"]
        self.life = f"{plan['name']}-{plan['start']}"
        """The unique name of this process."""
        self.random = random.Random(plan["seed"])
        self.folder = Path(plan["folder"])
        self.partition_count: int = plan["partition_count"]
        self.per_second: int = plan["per_second"]
        self.sql_config: str = plan["sql_config"]
        self._addresses: dict[str, list[str]] = plan["addresses"]
        self.history = Recording(self.folder / f"{self.name}.jsonl", self.life)
        self._over = threading.Event()
        self._wakers: list[Callable[[], None]] = []
        self._woken = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        signal.signal(signal.SIGUSR1, lambda *_: self._woken.set())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        faulthandler.register(signal.SIGUSR2)

    @property
    def is_running(self) -> bool:
        """Whether the client shall continue."""
        return not self._over.is_set()

    def end(self) -> None:
        """End the client, and wake its waiting parts."""
        self._over.set()
        for wake in self._wakers:
            wake()

    def on_end(self, wake: Callable[[], None]) -> None:
        """Call `wake` when the client must end."""
        self._wakers.append(wake)

    def pause(self, seconds: float) -> None:
        """Wait, at most until the client must end."""
        self._over.wait(seconds)

    def sleep(self, seconds: float) -> None:
        """Wait until the run wakes this client (SIGUSR1), at most this long, and at most until the client must end."""
        self._woken.clear()
        end_s = time.monotonic() + seconds
        while self.is_running and not self._woken.wait(0.2) and time.monotonic() < end_s:
            pass

    def addresses(self, protocol: str) -> list[str]:
        """Return `host:port` of the protocol's servers, in a random order."""
        found = list(self._addresses.get(protocol, []))
        self.random.shuffle(found)
        return found

    def pace(self) -> "Pace":
        """Return a pace at the plan's rate."""
        return Pace(self)

    def lifetime_s(self) -> float:
        """Draw how long a producer lives until the next producer replaces it: mostly seconds."""
        return self.random.choice((1.0, 2.0, 3.0, 5.0, 10.0, 60.0))


class Pace:
    """Waits so that steps follow the script's rate; steps that were missed during a delay are not made up for."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._next_s = time.monotonic()
        self._burst = 0

    def burst(self) -> None:
        """Do the next steps fast, so that a new producer's first records are in several requests and objects at once."""
        self._burst = BURST_COUNT

    def step(self) -> None:
        """Wait until the next step is due."""
        now_s = time.monotonic()
        if self._burst:
            self._burst -= 1
            self._next_s = now_s
            self._script.pause(BURST_S)
            return
        self._next_s = max(self._next_s + 1 / self._script.per_second, now_s - 0.5)
        self._script.pause(max(0.0, self._next_s - now_s))
