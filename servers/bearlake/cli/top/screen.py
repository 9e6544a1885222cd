"""The terminal of a live display: its size, its keys, and what it showed before.

While the display is on, the terminal shows a second screen without a cursor and without wrapped lines. The first screen comes back at
the end, however the display ends. Source: xterm, "Control Sequences" (modes 7, 25, 1049).
"""

import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

import click

_ON = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_OFF = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME = "\x1b[H"
_CLEAR_REST_OF_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"
_ESCAPE = b"\x1b"
_QUIT_KEYS = b"qQ\x03"


class Screen:
    """`with Screen() as screen`: draws frames, and waits for keys and changes of size. Standard output must be a terminal."""

    def __init__(self, *, has_colours: bool) -> None:
        self._has_colours = has_colours
        self._is_resized = False
        self._keys: int | None = None
        self._former_mode: list[Any] = []  # Any: termios' own
        self._former_handler: Any = None

    def __enter__(self) -> Self:
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._former_handler = signal.signal(signal.SIGWINCH, self._resized)
        if sys.stdin.isatty():
            self._keys = sys.stdin.fileno()
            self._former_mode = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        self._write(_ON)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._write(_OFF)
        if self._keys is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keys, termios.TCSANOW, self._former_mode)
        signal.signal(signal.SIGWINCH, self._former_handler)
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def draw(self, lines: Sequence[str]) -> None:
        """Replace what is shown. Lines beyond the height are left out."""
        _, height = size()
        shown = list(lines)[:height]
        if not self._has_colours:
            shown = [click.unstyle(line) for line in shown]
        self._write(_HOME + f"{_CLEAR_REST_OF_LINE}\n".join(shown) + _CLEAR_REST_OF_LINE + _CLEAR_BELOW)

    def wait(self, seconds: float) -> str:
        """Wait at most `seconds`. Returns `quit` after a key that ends the display, `resize` after a change of size, else an empty text."""
        deadline = time.monotonic() + seconds
        while True:
            if self._is_resized:
                self._is_resized = False
                os.read(self._wake_reader, 4096)
                return "resize"
            sources = [self._wake_reader, *([] if self._keys is None else [self._keys])]
            ready, _, _ = select.select(sources, [], [], max(0.0, deadline - time.monotonic()))
            if self._keys in ready and self._keys is not None:
                pressed = os.read(self._keys, 64)
                if _is_quit(pressed):
                    return "quit"
            elif not ready:
                return ""

    def _resized(self, number: int, stack: FrameType | None) -> None:
        self._is_resized = True
        with suppress(BlockingIOError):
            os.write(self._wake_writer, b"\0")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _is_quit(pressed: bytes) -> bool:
    """Return whether the keys end the display: q, Ctrl-C or Escape alone (arrows begin with it), or a closed terminal."""
    if pressed.startswith(_ESCAPE):
        return pressed == _ESCAPE
    return not pressed or any(key in _QUIT_KEYS for key in pressed)


def size() -> tuple[int, int]:
    """Return width and height of the terminal on standard output, now; 80 and 24 if there is none."""
    with suppress(OSError, ValueError):
        found = os.get_terminal_size(sys.stdout.fileno())
        if found.columns and found.lines:
            return found.columns, found.lines
    fallback = shutil.get_terminal_size()
    return fallback.columns, fallback.lines
