"""The list of settings: a walk over frozen dataclasses that are declared next to their users.

A package declares its settings as a dataclass whose fields all have a default and, below them, a docstring of one or two
sentences. The rest follows from the declaration: the unit from the end of the name (`linger_ms`, `bytes_max`), the type from the
annotation, limits from rules by name (`port`: 0 … 65535; `…fraction…`: 0 … 1; `…_max`: at least 1; other numbers: at least 0),
or from the field itself: `field(default=3, metadata={"min": 1, "max": 9})`. `__post_init__` may raise `ValueError` or `Invalid`.

Types: `bool`, `int`, `float`, `str`, `Literal[…]`, `T | None`, `tuple[T, ...]`, `list[T]`, and dataclasses (sections),
also inside a tuple or list.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, get_type_hints

Path = tuple[str, ...]
"""Where a setting is: names of sections, then its own."""

_UNITS = (
    ("_ms", "ms"),
    ("_seconds", "s"),
    ("_bytes", "bytes"),
    ("bytes_max", "bytes"),
    ("bytes_min", "bytes"),
    ("_ms_max", "ms"),
    ("_max_ms", "ms"),
    ("_count", "count"),
    ("_count_max", "count"),
    ("_count_min", "count"),
    ("_fraction", "fraction"),
    ("_fraction_min", "fraction"),
    ("_fraction_max", "fraction"),
    ("_file", "path"),
    ("_dir", "path"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Smallest and largest number that is allowed, both inclusive; None: no limit."""

    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `annotation` is its type as declared, so it can be any of the types that the module names."""

    path: Path
    annotation: Any
    default: object
    limits: Limits
    owner: type

    @property
    def name(self) -> str:
        """Dotted path, as in messages: `kafka.port`."""
        return ".".join(self.path)

    @property
    def unit(self) -> str:
        """Unit from the end of the name; empty if there is none."""
        return next((unit for end, unit in _UNITS if self.path[-1].endswith(end)), "")

    @property
    def doc(self) -> str:
        """The docstring below the field, in one line."""
        return attribute_docs(self.owner).get(self.path[-1], "")


def walk(section: Any, path: Path = ()) -> Iterator[Setting]:
    """Yield all settings of a section (a class, or an instance whose values are the defaults), in order of declaration."""
    defaults = section() if isinstance(section, type) else section
    owner = type(defaults)
    hints = get_type_hints(owner)
    for field in dataclasses.fields(owner):
        here = (*path, field.name)
        default = getattr(defaults, field.name)
        if is_section(hints[field.name]):
            yield from walk(default, here)
        else:
            yield Setting(path=here, annotation=hints[field.name], default=default, limits=_limits(field), owner=owner)


def sections(section: type, path: Path = ()) -> Iterator[tuple[Path, type]]:
    """Yield all sections below a section class, outer sections first."""
    hints = get_type_hints(section)
    for field in dataclasses.fields(section):
        if is_section(hints[field.name]):
            here = (*path, field.name)
            yield here, hints[field.name]
            yield from sections(hints[field.name], here)


def is_section(annotation: Any) -> bool:
    """Return whether the annotation is a dataclass."""
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def section_doc(section: type) -> str:
    """Return the first paragraph of the section's docstring, in one line."""
    return " ".join((inspect.getdoc(section) or "").split("\n\n")[0].split())


@cache
def attribute_docs(section: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases, from their source; empty if a field has none."""
    docs: dict[str, str] = {}
    for owner in reversed(section.__mro__[:-1]):
        docs.update(_own_docs(owner))
    return docs


def _own_docs(owner: type) -> Iterator[tuple[str, str]]:
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return
    body = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)).body
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value.value if isinstance(below.value, ast.Constant) else ""
            yield field.target.id, " ".join(str(text).split())


def _limits(field: dataclasses.Field[Any]) -> Limits:
    name = field.name
    low, high = 0.0, None
    if name == "port" or name.endswith("_port"):
        high = 65535
    elif "fraction" in name:
        high = 1
    elif name.endswith("_max"):
        low = 1
    return Limits(low=field.metadata.get("min", low), high=field.metadata.get("max", high))
