"""Read the settings once: defaults, then the file, then the environment, then the command line; the last value wins.

An unknown name is an error that gives its full path and a similar known name. All problems are reported at once. Environment variables
have the form `BEARLAKE_SECTION__KEY` (`BEARLAKE_KAFKA__PORT=9092`), with two underscores between the names. So neither variables
of the command line (`BEARLAKE_ADMIN`) nor those that Kubernetes sets for a Service called `bearlake` pass for settings.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path as FilePath
from typing import Any, Generic, TypeVar, get_type_hints

from bearlake.errors import Invalid
from bearlake.settings import schema, yaml_text
from bearlake.settings.schema import Path, Setting
from bearlake.settings.values import Unfit, convert, parse_text

PREFIX = "BEARLAKE_"
DEFAULT = "default"
FILE_BYTES_MAX = 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Given:
    """A given value of a setting: a raw value, or text to parse, and its source."""

    raw: object
    source: str
    is_text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[T]):
    """The settings, and the source of each value by path (`default`, `file …`, `environment …`, an option's name)."""

    settings: T
    sources: Mapping[Path, str]


def load(
    document: type[T],
    file: FilePath | None = None,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, tuple[object, str]] | None = None,
    defaults: Mapping[str, tuple[object, str]] | None = None,
) -> Loaded[T]:
    """Read `document` from `file` (YAML) and `environ`.

    `options` maps dotted paths to (value, name of the command-line option) and overrides all other sources; `defaults` maps them to
    (value, source) and is overridden by all.

    Raises:
        Invalid: one line per problem: unknown names, wrong types or ranges, contradictions, unreadable file.
    """
    known = {setting.path: setting for setting in schema.walk(document)}
    problems: list[str] = []
    given: dict[Path, Given] = {}
    for path, value in (
        *_from_program(defaults),
        *_from_file(file, document, problems),
        *_from_environment(environ or {}),
        *_from_program(options),
    ):
        if path in known:
            given[path] = value
        else:
            problems.append(_unknown(path, value.source, known))
    values = _converted(known, given, problems)
    settings = _built(document(), (), values, problems)
    if problems:
        raise Invalid(f"settings: {problems[0]}" if len(problems) == 1 else "\n  ".join(["settings:", *problems]))
    sources = {path: given[path].source if path in given else DEFAULT for path in known}
    return Loaded(settings=settings, sources=sources)


def _from_program(given: Mapping[str, tuple[object, str]] | None) -> Iterator[tuple[Path, Given]]:
    for name, (raw, source) in (given or {}).items():
        yield tuple(name.split(".")), Given(raw, source)


def _from_file(file: FilePath | None, document: type, problems: list[str]) -> Iterator[tuple[Path, Given]]:
    if file is None:
        return
    try:
        with file.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise Invalid(f"settings: {file} has more than {FILE_BYTES_MAX} bytes")
        tree = yaml_text.parse(content)
    except OSError as error:
        raise Invalid(f"settings: cannot read {file}: {error.strerror}") from error
    except yaml_text.NotYaml as error:
        raise Invalid(f"settings: {file} is not YAML: {error}") from error
    if tree is None:
        return
    if not isinstance(tree, dict):
        raise Invalid(f"settings: {file} must be a mapping of sections, not {type(tree).__name__}")
    yield from _flattened(tree, document, (), f"file {file}", problems)


def _flattened(
    tree: Mapping[object, object], section: type, path: Path, source: str, problems: list[str]
) -> Iterator[tuple[Path, Given]]:
    hints = get_type_hints(section)
    for key, value in tree.items():
        here = (*path, str(key))
        inner = hints.get(str(key))
        if not schema.is_section(inner):
            yield here, Given(value, source)
        elif isinstance(value, dict):
            yield from _flattened(value, inner, here, source, problems)  # type: ignore[arg-type]
        elif value is not None:  # a section without content has its defaults
            problems.append(f"{'.'.join(here)} is a section: expected a mapping, not {value!r} ({source})")


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[Path, Given]]:
    for name in sorted(environ):
        if name.startswith(PREFIX) and "__" in name:
            path = tuple(name[len(PREFIX) :].lower().split("__"))
            yield path, Given(environ[name], f"environment {name}", is_text=True)


def _unknown(path: Path, source: str, known: Mapping[Path, Setting]) -> str:
    """Return the message about a setting that does not exist, with the nearest name: the whole one, or the end of one."""
    dotted = ".".join(path)
    names = [setting.name for setting in known.values()]
    sections = sorted({name.rsplit(".", depth)[0] for name in names for depth in range(1, name.count(".") + 1)})
    whole = {name: name for name in [*names, *sections] if not dotted.startswith(f"{name}.")}
    ends = {".".join(name.split(".")[-len(path) :]): name for name in reversed(names)}
    near = difflib.get_close_matches(dotted, ends | whole, n=1, cutoff=0.7)
    hint = f"; did you mean {(ends | whole)[near[0]]}?" if near else ""
    return f"{dotted}: no such setting ({source}){hint}"


def _converted(known: Mapping[Path, Setting], given: Mapping[Path, Given], problems: list[str]) -> dict[Path, object]:
    values: dict[Path, object] = {}
    for path, value in given.items():
        setting = known[path]
        try:
            raw = parse_text(str(value.raw), setting.annotation) if value.is_text else value.raw
            values[path] = convert(raw, setting.annotation, setting.limits)
        except Unfit as error:
            problems.append(f"{setting.name}{error.where}: {error.what} ({value.source})")
    return values


def _built(defaults: T, path: Path, values: Mapping[Path, object], problems: list[str]) -> T:
    """Return the section `defaults` with these values; a section whose own checks fail keeps its defaults, and the failure is reported."""
    changes: dict[str, Any] = {}
    for field in fields(defaults):  # type: ignore[arg-type]
        here = (*path, field.name)
        default = getattr(defaults, field.name)
        if here in values:
            changes[field.name] = values[here]
        elif is_dataclass(default):
            changes[field.name] = _built(default, here, values, problems)
    try:
        return replace(defaults, **changes)  # type: ignore[type-var]
    except (ValueError, Invalid) as error:
        problems.append(f"{'.'.join(path) or 'settings'}: {error}")
        return defaults
