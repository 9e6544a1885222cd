"""Progress of a command that takes long: a line on standard error with count, rate and remaining time.

It is shown only on a terminal, and only after two seconds: a quick command stays quiet, and so does a script.
"""

import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

T = TypeVar("T")

AFTER_S = 2.0
"""Commands that end sooner show nothing."""

INTERVAL_S = 0.5


class Progress:
    """The line of one command. `show` may be called as often as there is news."""

    def __init__(
        self,
        verb: str,
        unit: str = "records",
        *,
        is_quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        after_s: float = AFTER_S,
    ) -> None:
        """`is_quiet`: never show anything, because the terminal shows records. `clock` returns seconds."""
        self._verb = verb
        self._unit = unit
        self._clock = clock
        self._is_shown = sys.stderr.isatty() and not is_quiet
        self._start = clock()
        self._next = self._start + after_s
        self._width = 0

    def show(self, count: int, fraction: float | None = None) -> None:
        """Show the count, at most twice a second. `fraction` of the work that is done (0 to 1) adds the remaining time; None: unknown."""
        now = self._clock()
        if self._is_shown and now >= self._next:
            self._next = now + INTERVAL_S
            self._write(progress_text(self._verb, self._unit, count, now - self._start, fraction))

    def wait(self, fraction: float | None = None) -> None:
        """Show the time that has passed, for work that counts nothing; `fraction` as in `show`."""
        now = self._clock()
        if self._is_shown and now >= self._next:
            self._next = now + INTERVAL_S
            elapsed = now - self._start
            self._write(", ".join([self._verb, duration_text(elapsed), *remaining(elapsed, fraction)]))

    def end(self, count: int) -> None:
        """Replace the line by the final count, if there is a line."""
        if self._width:
            self._write(progress_text(self._verb, self._unit, count, self._clock() - self._start, None))
            click.echo(err=True)

    def clear(self) -> None:
        """Remove the line, so that other output begins at the left."""
        if self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)
            self._width = 0

    def _write(self, text: str) -> None:
        click.echo("\r" + text.ljust(self._width), err=True, nl=False)
        self._width = len(text)


def progress_text(verb: str, unit: str, count: int, elapsed_s: float, fraction: float | None) -> str:
    """Return the line: `produced 1,200 records, 400/s, 25 %, 9 s left`."""
    parts = [f"{verb} {count:,} {unit}", f"{count / max(elapsed_s, 1e-3):,.0f}/s"]
    return ", ".join([*parts, *remaining(elapsed_s, fraction)])


def remaining(elapsed_s: float, fraction: float | None) -> list[str]:
    """Return the part that is done and the remaining time, if the fraction is known: `25 %`, `9 s left`."""
    if fraction is None or fraction <= 0:
        return []
    done = min(fraction, 1.0)
    return [f"{done * 100:.0f} %", f"{duration_text(elapsed_s * (1 - done) / done)} left"]


async def shown_while(
    work: Coroutine[Any, Any, T], verb: str, fraction: Callable[[], float | None] = lambda: None
) -> T:
    """Await `work`, and show meanwhile how long it has taken; returns and raises as the work does."""
    import asyncio

    progress = Progress(verb)
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=INTERVAL_S))[0]:
            progress.wait(fraction())
    finally:
        task.cancel()  # no effect if it has ended
        progress.clear()
    return await task


def duration_text(seconds: float) -> str:
    """Return a time for people: `9 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
