"""The kernel under AddressSanitizer and UndefinedBehaviorSanitizer, with edge coverage: an extension module of its own in `build/fuzz/`.

    python tests/fuzz/sanitized.py        # builds it if its sources have changed, and prints its path

The wheel's kernel is not touched. gcc brings both sanitizers. A process that loads the module needs AddressSanitizer from its start on
(`environment`), and PYTHONMALLOC=malloc, so that a buffer's neighbours are not other valid objects of Python's allocator.
"""

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "servers" / "bearlake" / "kernel"
FOLDER = ROOT / "build" / "fuzz"
COVERAGE, PROBE = (Path(__file__).with_name(name) for name in ("coverage.c", "probe.c"))
MODULE = "bearlake.kernel._native"

BUILD_S = 1_200
"""Time limit of one call of the compiler."""

COMMON = ["-O1", "-g", "-fno-omit-frame-pointer", "-fPIC", "-std=gnu11"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fsanitize-coverage=trace-pc"]


class CompilerMissing(RuntimeError):
    """There is no C compiler with sanitizers, or there are no headers of Python; the message names what to install."""


def build() -> Path:
    """Return the path of the built module. Of processes that want it at the same time, one builds it.

    Raises:
        CompilerMissing: no gcc, no sanitizers, or no headers of Python.
        RuntimeError: the compiler refused the kernel; the message has its output.
    """
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    include = Path(sysconfig.get_paths()["include"])
    if shutil.which(compiler[0]) is None or not (include / "Python.h").exists():
        raise CompilerMissing("no C compiler or no headers of Python (Debian: gcc, libc6-dev, python3-dev)")
    runtime(compiler)
    sources = [*sorted(KERNEL.rglob("*.c")), PROBE]
    target = FOLDER / f"_native-{_digest(compiler, sources)}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if target.exists():
        return target
    FOLDER.mkdir(parents=True, exist_ok=True)
    with _alone(), tempfile.TemporaryDirectory(prefix="unfinished-", dir=FOLDER) as folder:
        if not target.exists():  # it may have been built while this process waited
            _build(compiler, [f"-I{include}", f"-I{KERNEL}"], sources, Path(folder)).replace(target)
    return target


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process builds: a second build would compile the same files."""
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(compiler: list[str], includes: list[str], sources: list[Path], folder: Path) -> Path:
    """Compile the sources on all cores and link them; return the path of the module in `folder`."""
    flags = [*COMMON, *SANITIZERS]
    objects = [folder / f"{number}.o" for number in range(len(sources) + 1)]
    commands = [
        [*compiler, *flags, *includes, "-c", source, "-o", made]
        for source, made in zip(sources, objects[1:], strict=True)
    ]
    commands.append([*compiler, "-O2", "-fPIC", "-c", COVERAGE, "-o", objects[0]])
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for _ in threads.map(_compile, commands):
            pass
    module = folder / "module.so"
    _compile([*compiler, *flags, "-shared", *objects, "-o", module])
    return module


def runtime(compiler: list[str] | None = None) -> Path:
    """Return the path of AddressSanitizer's library. Raises `CompilerMissing`."""
    compiler = compiler or shlex.split(os.environ.get("CC", "gcc"))
    found = _compile([*compiler, "-print-file-name=libasan.so"]).strip()
    if not Path(found).is_absolute():  # gcc prints the bare name if it has no such file
        raise CompilerMissing("the C compiler has no AddressSanitizer (Debian: libgcc-12-dev or newer)")
    return Path(found)


def environment() -> dict[str, str]:
    """Return the variables with which a process must start to load the module."""
    address = "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024:hard_rss_limit_mb=4096"
    return {
        "LD_PRELOAD": str(runtime()),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": f"{address}:abort_on_error=1:handle_segv=1:disable_coredump=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }


def load(path: Path) -> "Coverage":
    """Make the built module the kernel of this process, which has not imported `bearlake.kernel` yet."""
    assert "bearlake.kernel" not in sys.modules, "the wheel's kernel is loaded already"
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(path))

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
            return importlib.util.spec_from_loader(MODULE, loader) if name == MODULE else None

    sys.meta_path.insert(0, Finder())
    from bearlake import kernel

    assert kernel.IS_NATIVE
    return Coverage(path)


class Coverage:
    """The edges of the kernel that inputs have taken."""

    def __init__(self, path: Path) -> None:
        library = ctypes.PyDLL(str(path))
        self.reset = library.fuzz_reset
        self.new_edges = library.fuzz_new_edges
        self.edge_count = library.fuzz_edge_count


def _digest(compiler: list[str], sources: list[Path]) -> str:
    digest = hashlib.sha256(repr((compiler, COMMON, SANITIZERS, sys.version)).encode())
    for path in (*sources, *sorted(KERNEL.rglob("*.h")), COVERAGE):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(map(str, command))}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    print(build())
