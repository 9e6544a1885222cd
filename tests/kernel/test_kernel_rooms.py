"""Kernel folders: C includes follow the layers of `.importlinter`, each C file has a Python counterpart, and both agree on data shapes."""

import configparser
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import bearlake.kernel
from bearlake.kernel import fallback, kafka, log
from bearlake.metadata.model import BatchCommit, Outcome, Slice
from bearlake.streams.append import Append, Appended
from bearlake.streams.subscriptions.model import Delivery

KERNEL = Path(bearlake.kernel.__file__).parent
CONTRACTS = Path(__file__).resolve().parents[2] / ".importlinter"
GROUND = "ground"
"""Name for the files outside of any folder, which every folder may include."""
EXTENSION = "module.c"
"""Name for the files that combine all folders."""
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
FUNCTION = re.compile(r"^KERNEL_FUNCTION\(kernel_(\w+)\)\s*\{", re.MULTILINE)
TYPE = re.compile(r'\.name = "bearlake\.kernel\._native\.(\w+)"')
INSTANCE = {
    "ColumnBuilder": (),
    "OffsetAssignment": (),
    "ProduceResults": (),
    "ProduceTurn": (),
    "Results": (),
    "WriteBuffer": ("count", "flags", "seen", "size"),
}
"""Attributes that Python versions set in their instances."""

SOURCES = {str(path.relative_to(KERNEL)): path.read_text() for path in sorted(KERNEL.rglob("*.[ch]"))}
INCLUDES = {name: INCLUDE.findall(text) for name, text in SOURCES.items()}


def room(name: str) -> str:
    folder = str(Path(name).parent)
    return GROUND if folder == "." else folder


def may_use() -> dict[str, set[str]]:
    """For each folder, the folder itself and the folders of lower layers."""
    contracts = configparser.ConfigParser()
    contracts.read(CONTRACTS)
    layers = contracts["importlinter:contract:kernel-rooms"]["layers"].split("\n")
    below: set[str] = {GROUND}
    allowed = {GROUND: {GROUND}}
    for layer in reversed([layer for layer in layers if layer]):
        rooms = [name.strip() for name in layer.split("|")]
        allowed |= {name: {name, *below} for name in rooms}
        below |= set(rooms)
    return allowed


def test_every_include_names_a_file_of_the_kernel() -> None:
    assert {name for included in INCLUDES.values() for name in included} <= SOURCES.keys()


def test_c_files_include_only_their_own_folder_and_lower_layers() -> None:
    allowed = may_use()

    upward = [
        (name, included)
        for name in SOURCES.keys() - {EXTENSION}
        for included in INCLUDES[name]
        if room(included) not in allowed[room(name)]
    ]

    assert upward == []


def unit(name: str) -> str:
    """A C source and the header of the same name count as one file."""
    return str(Path(name).with_suffix(""))


def test_c_includes_have_no_cycles() -> None:
    uses: dict[str, set[str]] = {}
    for name, included in INCLUDES.items():
        uses.setdefault(unit(name), set()).update({unit(other) for other in included} - {unit(name)})

    while free := [name for name, used in uses.items() if not used]:
        for name in free:
            del uses[name]
        for used in uses.values():
            used.difference_update(free)

    assert uses == {}


def test_every_native_function_and_type_has_its_python_version_in_the_same_folder() -> None:
    functions = {name: path for path, text in SOURCES.items() for name in FUNCTION.findall(text)}
    types = {name: path for path, text in SOURCES.items() for name in TYPE.findall(text) if name in fallback.__all__}

    assert functions == {name: twin_of(getattr(fallback, name).__code__.co_filename) for name in functions}
    assert types == {name: twin_of(inspect.getfile(getattr(fallback, name))) for name in types}
    assert functions.keys() | types.keys() == set(fallback.__all__)


def twin_of(path: str) -> str:
    """The C file next to a Python file."""
    return str(Path(path).relative_to(KERNEL).with_suffix(".c"))


def test_native_types_have_the_public_names_of_their_python_versions(native: ModuleType) -> None:
    for name in ("ColumnBuilder", "OffsetAssignment", "ProduceResults", "ProduceTurn", "Results", "WriteBuffer"):
        ours, theirs = vars(getattr(native, name)), vars(getattr(fallback, name))
        public = {attribute for attribute in ours if not attribute.startswith("_")}
        assert public <= {*theirs, *getattr(getattr(fallback, name), "__annotations__", ()), *INSTANCE[name]}, name


class Grown(log.Append):
    _fields = (*log.Append._fields, "more")


class Reversed(log.BatchCommit):
    _fields = tuple(reversed(log.BatchCommit._fields))


class Renamed(kafka.TurnWorld):
    _fields = ("generations", *kafka.TurnWorld._fields[1:])


@pytest.mark.parametrize(
    ("name", "changed"), [("Append", Grown), ("BatchCommit", Reversed), ("Append", tuple), ("TurnWorld", Renamed)]
)
def test_a_native_kernel_that_was_built_for_other_fields_is_not_imported(
    native: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, changed: type[Any]
) -> None:
    spec = importlib.util.find_spec("bearlake.kernel._native")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(kafka if name == "TurnWorld" else log, name, changed)

    with pytest.raises((ImportError, AttributeError)):
        spec.loader.exec_module(module)


def test_the_types_of_other_packages_have_the_fields_that_the_kernel_expects() -> None:
    assert Append is log.Append
    assert BatchCommit is log.BatchCommit
    assert Slice._fields == ("partition", "base_offset", "record_count", "position", "length", "max_timestamp")
    assert Appended._fields == ("verdict", "base_offset", "start_offset")
    assert Outcome._fields == ("kind", "base_offset", "start_offset")
    assert Delivery._fields == ("base_offset", "record_count", "batch", "redelivery_count", "acknowledged")
