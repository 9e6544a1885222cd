"""Builds the source of one generated function, and records which line handles which field.

`names` holds the globals of the generated function: all names that its lines use, except local variables.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any


class Source:
    """The indented lines of a function, each with the path of the field that it handles."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        # Any: globals of generated code, of any type.
        self.names: dict[str, Any] = dict(names)
        self.places: list[str] = []
        self._lines: list[str] = []
        self._path: list[str] = []
        self._depth = 0
        self._labels = 0

    def line(self, text: str) -> None:
        """Add a line to the current block."""
        self._lines.append("    " * self._depth + text)
        self.places.append(".".join(self._path))

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Add `header`, and indent the lines that are added inside."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def field(self, name: str) -> Iterator[None]:
        """Lines added inside handle the field `name` of the enclosing struct."""
        self._path.append(name)
        yield
        self._path.pop()

    def label(self, prefix: str) -> str:
        """Return an unused local name."""
        self._labels += 1
        return f"{prefix}{self._labels}"

    def packed(self, codes: str, method: str) -> str:
        """The global name of `struct.Struct(codes).method` (big-endian)."""
        name = f"{method}_{codes.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def function(self, name: str, title: str) -> Callable[..., Any]:
        """Compile the lines; their first block is `def name(…)`. Tracebacks show `title` as the file name."""
        code = compile("\n".join(self._lines), title, "exec")
        exec(code, self.names)  # noqa: S102 - the source is made from our own schema files
        built = self.names[name]
        assert isinstance(built, FunctionType)
        return built
