"""Show settings to people (as a commented YAML file that is itself a valid settings file) and to programs.

Secrets do not appear: they are never values of settings (only `…_file` paths are), and a password inside a URL is masked.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from textwrap import wrap
from typing import Any

from bearlake.settings import schema, yaml_text
from bearlake.settings.load import DEFAULT, Loaded
from bearlake.settings.schema import Path, Setting

COMMENT_WIDTH = 110
_URL_PASSWORD = re.compile(r"(?<=://)([^/@:\s]*):\S*@")
"""Up to the last @, because a password may contain / and @."""
_QUERY_PASSWORD = re.compile(
    r"(?i)([?&;][^=&;#\s]*(?:password|passwd|pwd|secret|token|credential|access_?key|sas|sig)[^=&;#\s]*=)[^&;#\s]*"
)


def as_rows(loaded: Loaded[Any]) -> list[dict[str, object]]:
    """Return one mapping per setting, ready for JSON: `setting`, `value`, `default`, `unit`, `source`, `doc`."""
    return [
        {
            "setting": setting.name,
            "value": _plain(value_at(loaded.settings, setting.path)),
            "default": _plain(setting.default),
            "unit": setting.unit,
            "source": loaded.sources[setting.path],
            "doc": setting.doc,
        }
        for setting in schema.walk(type(loaded.settings))
    ]


def as_yaml(loaded: Loaded[Any], *, only_changed: bool = False) -> str:
    """Return a settings file with all current values, each below its doc and beside its unit and source."""
    shown = [
        setting
        for setting in schema.walk(type(loaded.settings))
        if not only_changed or loaded.sources[setting.path] != DEFAULT
    ]
    docs = {path: schema.section_doc(section) for path, section in schema.sections(type(loaded.settings))}
    lines: list[str] = []
    open_sections: Path = ()
    for setting in shown:
        lines.extend(_section_heads(open_sections, setting.path[:-1], docs))
        open_sections = setting.path[:-1]
        lines.extend(_setting_lines(setting, loaded))
    return "\n".join(lines) + "\n" if lines else ""


def as_tree(loaded: Loaded[Any]) -> dict[str, Any]:
    """Return all current values as nested mappings, ready for JSON."""
    tree: dict[str, Any] = {}
    for setting in schema.walk(type(loaded.settings)):
        branch = tree
        for name in setting.path[:-1]:
            branch = branch.setdefault(name, {})
        branch[setting.path[-1]] = _plain(value_at(loaded.settings, setting.path))
    return tree


def value_at(settings: object, path: Path) -> object:
    """Return the value under a path."""
    for name in path:
        settings = getattr(settings, name)
    return settings


def _section_heads(before: Path, now: Path, docs: Mapping[Path, str]) -> Iterator[str]:
    common = 0
    while common < min(len(before), len(now)) and before[common] == now[common]:
        common += 1
    for depth in range(common, len(now)):
        indent = "  " * depth
        if depth == 0 and before:
            yield ""
        yield from _comment(docs[now[: depth + 1]], indent)
        yield f"{indent}{now[depth]}:"


def _setting_lines(setting: Setting, loaded: Loaded[Any]) -> Iterator[str]:
    indent = "  " * (len(setting.path) - 1)
    value = _plain(value_at(loaded.settings, setting.path))
    source = loaded.sources[setting.path]
    remarks = [setting.unit] if setting.unit else []
    if source == DEFAULT:
        remarks.append(DEFAULT)
    else:
        remarks.append(f"{source}; default {yaml_text.flow(_plain(setting.default))}")
    yield from _comment(setting.doc, indent)
    yield f"{indent}{setting.path[-1]}: {yaml_text.flow(value)}  # {', '.join(remarks)}"


def _comment(text: str, indent: str) -> Iterator[str]:
    for line in wrap(text, COMMENT_WIDTH - len(indent)):
        yield f"{indent}# {line}"


def _plain(value: Any) -> Any:
    """Return the value in a form that JSON and YAML can hold, without passwords."""
    if isinstance(value, str):
        return without_password(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(item) for name, item in asdict(value).items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def without_password(url: str) -> str:
    """Return the text with `***` for the password of a URL in it, also in the URL's query."""
    return _QUERY_PASSWORD.sub(r"\1***", _URL_PASSWORD.sub(r"\1:***@", url))


def as_json(loaded: Loaded[Any]) -> str:
    """Return `as_rows` as JSON text."""
    return json.dumps(as_rows(loaded), indent=2, ensure_ascii=False)
