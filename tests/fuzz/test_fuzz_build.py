"""The sanitized kernel is built once, however many processes want it, and a build that fails leaves nothing."""

import fcntl
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fixtures.waiting import WAIT_S
from fuzz import sanitized


class Compiler:
    """Stands for gcc: makes empty files, and links when it may."""

    def __init__(self) -> None:
        self.may_link = threading.Event()
        self.is_linking = threading.Event()
        self.made: list[str] = []
        self.error: Exception | None = None

    def __call__(self, command: Sequence[str | Path]) -> str:
        if any(str(word).startswith("-print-file-name") for word in command):
            return "/lib/libasan.so"
        if "-shared" in command:
            self.is_linking.set()
            assert self.may_link.wait(WAIT_S)
            if self.error is not None:
                raise self.error
        self.made.append(Path(command[-1]).name)
        Path(command[-1]).touch()
        return ""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A compiler, and a kernel of two sources that is built in `tmp_path / "build"`."""
    kernel = tmp_path / "kernel"
    kernel.mkdir()
    for name in ("one.c", "two.c"):
        (kernel / name).touch()
    made = Compiler()
    monkeypatch.setattr(sanitized, "KERNEL", kernel)
    monkeypatch.setattr(sanitized, "FOLDER", tmp_path / "build")
    monkeypatch.setattr(sanitized, "_compile", made)
    monkeypatch.setattr(sanitized.shutil, "which", lambda name: name)
    monkeypatch.setattr(sanitized.Path, "exists", lambda path: path.name == "Python.h" or path.is_file())
    return made


def test_who_comes_second_takes_what_the_first_builds(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, arrived = fcntl.flock, threading.Semaphore(0)

    def noted(file: object, operation: int) -> None:
        arrived.release()
        flock(file, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", noted)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(sanitized.build)
        assert compiler.is_linking.wait(WAIT_S)
        second = threads.submit(sanitized.build)
        try:
            assert all(arrived.acquire(timeout=WAIT_S) for _ in range(2))
        finally:
            compiler.may_link.set()

    assert first.result() == second.result()
    assert first.result().is_file()
    assert sorted(compiler.made) == ["0.o", "1.o", "2.o", "3.o", "module.so"]


def test_a_build_that_fails_leaves_nothing_and_the_next_one_builds(compiler: Compiler) -> None:
    compiler.may_link.set()
    compiler.error = RuntimeError("refused")
    with pytest.raises(RuntimeError, match="refused"):
        sanitized.build()
    assert [path.name for path in sanitized.FOLDER.iterdir()] == ["lock"]

    compiler.error = None

    assert sanitized.build().is_file()
