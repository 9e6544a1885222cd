"""Waits with a bound, for tests that drive other processes."""

import threading
import time
from collections.abc import Callable

POLL_S = 0.02
_gone = threading.Event()  # never set: only a pause that ends early when the test run is interrupted


def until(is_so: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Seconds until `is_so()`; fails with `what` as text after `timeout_s`."""
    start = time.monotonic()
    while not is_so():
        passed_s = time.monotonic() - start
        assert passed_s < timeout_s, f"not within {timeout_s:g} s: {what}"
        _gone.wait(POLL_S)
    return time.monotonic() - start


def pause(seconds: float) -> None:
    """Let the load run on for so long."""
    _gone.wait(seconds)
