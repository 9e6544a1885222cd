"""`tools/make-venv` among Pythons that only say what they are, and `tools/python-build`."""

import runpy
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from fixtures.waiting import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """#!/bin/sh
case "$*" in
    *version_info*) {version} ;;
    *ensurepip*) exit {incomplete} ;;
    */python-build) echo "{build}"; [ "{build}" = "with PGO" ] ;;
    --version) echo "Python 3" ;;
    "-m venv "*) /bin/mkdir -p "$3/bin"; echo "#!/bin/sh" >"$3/bin/python"; /bin/chmod +x "$3/bin/python" ;;
esac
"""
NO_SIGN = "no sign of PGO"


def add(path: Path, version: str, build: str, *, is_complete: bool = True) -> None:
    """Write a Python of this version; "none": it is too old."""
    path.parent.mkdir(exist_ok=True)
    says = "exit 1" if version == "none" else f"echo {version}"
    path.write_text(PYTHON.format(version=says, incomplete=int(not is_complete), build=build))
    path.chmod(0o755)


def made(folder: Path, *places: str, python: str = "") -> str:
    """Make a virtual environment with the Pythons of these folders; return the line that says with which."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "rm").symlink_to("/bin/rm")
    path = ":".join(str(folder / place) for place in (*places, "tools"))
    command = ["/bin/sh", str(ROOT / "tools" / "make-venv"), str(folder / "venv"), *([python] if python else [])]
    result = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert result.returncode == 0, result.stderr
    assert (folder / "venv" / "bin" / "python").exists()
    return result.stdout


def test_make_venv_prefers_a_build_with_pgo_among_pythons_of_one_version(tmp_path: Path) -> None:
    add(tmp_path / "a" / "python3.11", "3.11", NO_SIGN)
    add(tmp_path / "b" / "python3.11", "3.11", "with PGO")

    assert f"({tmp_path}/b/python3.11, with PGO)" in made(tmp_path, "a", "b")


def test_make_venv_knows_a_version_by_what_the_python_says(tmp_path: Path) -> None:
    add(tmp_path / "a" / "python3.13", "none", "with PGO")
    add(tmp_path / "a" / "python3.11", "3.11", NO_SIGN)
    add(tmp_path / "b" / "python3", "3.11", "with PGO")

    assert f"({tmp_path}/b/python3, with PGO)" in made(tmp_path, "a", "b")


def test_make_venv_takes_the_newest_version_even_without_pgo(tmp_path: Path) -> None:
    add(tmp_path / "a" / "python3.11", "3.11", "with PGO")
    add(tmp_path / "b" / "python3.12", "3.12", NO_SIGN)

    assert f"({tmp_path}/b/python3.12, {NO_SIGN})" in made(tmp_path, "a", "b")


def test_make_venv_prefers_no_build_that_lacks_venv_or_headers(tmp_path: Path) -> None:
    add(tmp_path / "a" / "python3.11", "3.11", NO_SIGN)
    add(tmp_path / "b" / "python3.11", "3.11", "with PGO", is_complete=False)

    assert f"({tmp_path}/a/python3.11, {NO_SIGN})" in made(tmp_path, "a", "b")


def test_make_venv_takes_an_incomplete_python_rather_than_none(tmp_path: Path) -> None:
    add(tmp_path / "a" / "python3", "3.11", "with PGO", is_complete=False)

    assert f"({tmp_path}/a/python3, with PGO)" in made(tmp_path, "a")


def test_make_venv_makes_an_activated_environment_again(tmp_path: Path) -> None:
    add(tmp_path / "a" / "python3.11", "3.11", NO_SIGN)
    (tmp_path / "venv").mkdir()
    add(tmp_path / "venv" / "bin" / "python3.11", "3.11", "with PGO")

    assert f"({tmp_path}/a/python3.11, {NO_SIGN})" in made(tmp_path, "venv/bin", "a")


def test_make_venv_takes_the_python_that_is_named(tmp_path: Path) -> None:
    add(tmp_path / "a" / "python3.11", "3.11", NO_SIGN)
    add(tmp_path / "b" / "python3.13", "3.13", "with PGO")

    assert f"({tmp_path}/a/python3.11, {NO_SIGN})" in made(tmp_path, "b", python=str(tmp_path / "a" / "python3.11"))


@pytest.mark.parametrize(
    ("variables", "schemes", "has_pgo"),
    [
        ({"CONFIG_ARGS": "'--enable-shared' '--enable-optimizations'"}, ("posix_prefix",), True),
        ({"PY_CFLAGS_NODIST": "-std=c11 -fprofile-use -fprofile-correction"}, ("posix_prefix",), True),
        ({"CONFIG_ARGS": "'--prefix=/usr'"}, ("posix_prefix", "deb_system", "posix_local"), True),
        ({"CONFIG_ARGS": "'--enable-shared'", "PGO_PROF_USE_FLAG": "-fprofile-use"}, ("posix_prefix",), False),
        ({}, (), False),
    ],
)
def test_python_build_knows_pgo_by_the_configuration_or_as_debians(
    monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], schemes: tuple[str, ...], has_pgo: bool
) -> None:
    program = runpy.run_path(str(ROOT / "tools" / "python-build"))
    monkeypatch.setattr(sysconfig, "get_config_var", variables.get)
    monkeypatch.setattr(sysconfig, "get_scheme_names", lambda: schemes)

    assert program["has_pgo"]() is has_pgo


def test_python_build_prints_what_its_exit_code_says() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "tools" / "python-build"], capture_output=True, text=True, check=False, timeout=WAIT_S
    )

    assert (result.returncode, result.stdout.strip()) in [(0, "with PGO"), (1, NO_SIGN)]
