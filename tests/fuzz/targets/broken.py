"""Targets that break their promises, to see that a run notices: they are in no run of their own."""

import ctypes
import os
import signal
from array import array

from fuzz import sanitized
from fuzz.target import Target, exact

SEEDS = [b"good", b"bad!"]


def beyond(data: bytes) -> object:
    """Read one byte beyond the end of a buffer in C."""
    view = exact(data)
    buffer = view.obj
    assert isinstance(buffer, array)
    address, size = buffer.buffer_info()
    return _probe().fuzz_sum(ctypes.c_void_p(address), size + (data == SEEDS[1]))


def overflow(data: bytes) -> object:
    """Add beyond the largest int in C."""
    return _probe().fuzz_next(2**31 - 1 if data == SEEDS[1] else 5)


def _probe() -> ctypes.PyDLL:
    return ctypes.PyDLL(str(sanitized.build()))


def killed(data: bytes) -> object:
    """End the process."""
    if data == SEEDS[1]:
        os.kill(os.getpid(), signal.SIGSEGV)
    return len(data)


def hungry(data: bytes) -> object:
    """Take more address space than a run may."""
    return len(bytearray(1 << 36)) if data == SEEDS[1] else 0


TARGETS = [
    Target(name="reads beyond", seeds=lambda: SEEDS, run=beyond),
    Target(name="overflows", seeds=lambda: SEEDS, run=overflow),
    Target(name="dies", seeds=lambda: SEEDS, run=killed),
    Target(name="takes memory", seeds=lambda: SEEDS, run=hungry),
    Target(name="is well", seeds=lambda: SEEDS, run=len),
]
