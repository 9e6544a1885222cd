"""What a fuzz target is: an entry that takes bytes of clients, inputs to begin with, and what it promises.

A target's function takes an input, raises only its declared errors, and returns what tells one kind of answer from another (any value
with a short `repr`, or None). Inputs that lead to a new answer, or to new edges of the kernel, become part of the corpus.
"""

from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from random import Random
from typing import Any

from bearlake.errors import Invalid
from fixtures.depth import DEPTH

Session = Callable[[], AbstractAsyncContextManager[Callable[[bytes], Awaitable[object]]]]
"""Opens what a target needs, such as a server, and returns the function that takes inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One entry under test. Either `run` or `session` is given."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    """Returns inputs of our own encoders, always the same."""
    run: Callable[[bytes], object] | None = None
    session: Session | None = None
    errors: tuple[type[Exception], ...] = (Invalid,)
    """The kinds of errors that callers expect."""
    change: Callable[[Random, bytearray], None] | None = None
    """Changes an input by its structure, beside the changes of its bytes; e.g. repairs a checksum, so that inputs get past it."""
    change_share: float = 0.5
    """How many inputs get the change by structure."""
    is_structured: bool = False
    """Whether inputs are changed by their structure only, because other changes would make no input of them."""
    is_timed: bool = False
    """Whether answers depend on time, as those of servers do: then they choose no inputs, so that a seed still means the same inputs."""
    tokens: Sequence[bytes] = ()
    """Bytes that mean something to the entry."""
    bytes_max: int = 4096
    """Longest input."""
    memory_bytes: int = 256 * 1024
    """Memory (bytes) that an input may take, beside `memory_factor` times its own bytes."""
    memory_factor: int = 64
    processor_s: float = 0.05
    """Processor time of one input (s): rule 1 of docs/security.md."""
    share: float = 1.0
    """Share of this target in the inputs of a run, relative to others; less for targets whose inputs take long."""
    short_inputs: int = 1000
    """Inputs of a run in the tests, at depth 1."""

    @property
    def inputs_in_tests(self) -> int:
        """Inputs of a run in the tests."""
        return self.short_inputs * DEPTH


class Choices:
    """Takes the parameters of a call from the front of an input; the rest of the input is the call's bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def byte(self) -> int:
        """Return the next byte; 0 beyond the end."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def of(self, options: Sequence[Any]) -> Any:
        """Return one of the options (Any: they have any type)."""
        return options[self.byte() % len(options)]

    def number(self) -> int:
        """Return a signed number of one to eight bytes: small ones, and the bounds of int64."""
        width = (1, 1, 1, 2, 4, 8)[self.byte() % 6]
        return int.from_bytes(bytes(self.byte() for _ in range(width)), "big", signed=True)

    def offset(self) -> int:
        """Return an offset of a log: a number from 0 to the largest int64."""
        return self.number() & 2**63 - 1

    @property
    def rest(self) -> bytes:
        """The bytes that are left."""
        return self._data[self._at :]


def exact(data: bytes) -> memoryview:
    """Return the bytes in memory that ends with them: bytes have one byte more, which would hide a read beyond the end."""
    return memoryview(array("B", data)[:])  # a new array has room to grow, and its slice has not


def outcome(errors: tuple[type[Exception], ...], function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `function` returns, or (kind, message) of a declared error."""
    try:
        return function(*arguments)
    except errors as error:
        return type(error), str(error)


def signed(error: Exception) -> str:
    """Return an error's kind and message without numbers: what tells one refusal from another."""
    return f"{type(error).__name__} {str(error)[:80].translate(_NO_DIGITS)}"


_NO_DIGITS = str.maketrans("0123456789", "#" * 10)
