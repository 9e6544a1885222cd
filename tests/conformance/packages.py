"""Obtain third-party software as ordinary packages, once, into `.cache/conformance/`.

Each `obtain_…` returns a path that is complete: a directory gets its name only when its recipe ran to the end, and a
changed recipe (version, options) builds it again. A missing program raises `ToolMissing`, which names what to install.
Runs that happen at the same time wait for each other at a file lock.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance import processes

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "conformance"
LOGS = CACHE / "logs"
JAVA_SOURCES = Path(__file__).resolve().parent / "java"

DOWNLOAD_TIMEOUT_S = 300
BUILD_TIMEOUT_S = 1200

GO_PACKAGE = "Go 1.26 (https://go.dev/dl), or any Go since 1.21, which fetches it"
GO_MINOR_MIN = 21

FRANZ_GO = "github.com/twmb/franz-go"
FRANZ_GO_VERSION = "v1.22.2"
KAFKA_JAVASCRIPT = "@confluentinc/kafka-javascript@1.10.1"
"""The npm package that carries the sources and integration tests of librdkafka 2.15.1."""


class ToolMissing(RuntimeError):
    """A program is not installed; the message names the package to install."""


class ObtainFailed(RuntimeError):
    """A package could not be fetched; the text names the log."""


class BuildFailed(RuntimeError):
    """A fetched package does not build; the message names the log."""


def require(program: str, package: str) -> str:
    """Path of `program`; raises `ToolMissing` that names its `package`."""
    found = shutil.which(program)
    if found is None:
        raise ToolMissing(f"{program} is not installed: install {package}")
    return found


def obtain_kafka_jars() -> Path:
    """Directory of jars with Kafka's tools and Kafka Connect (118 files, 75 MB; ten seconds when Maven is fast)."""
    return obtain_jars(JAVA_SOURCES / "pom.xml", "kafka-jars")


def obtain_jars(pom: Path, name: str) -> Path:
    """Directory of the jars that the Maven project file `pom` names, with all that they need."""
    require("java", "a Java runtime, 17 or newer (Debian: openjdk-17-jdk-headless)")

    def build(directory: Path) -> None:
        maven = require("mvn", "Apache Maven (Debian: maven)")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
        _fetch([maven, "-q", "-B", "-f", pom, *goal], f"maven-{name}")

    return _obtained(name, pom.read_text(encoding="utf-8"), build)


def obtain_java_program(sources: Path, jars: Path) -> Path:
    """Directory with the classes of the Java files in `sources`, which may use the directory `jars`."""
    javac = require("javac", "a Java compiler, 17 or newer (Debian: openjdk-17-jdk-headless)")
    files = sorted(sources.glob("*.java"))
    recipe = "".join(file.read_text(encoding="utf-8") for file in [sources / "pom.xml", *files])

    def build(directory: Path) -> None:
        command = [javac, "--release", "17", "-proc:none", "-cp", f"{jars}/*", "-d", directory]
        _compile([*command, *files], f"javac-{sources.name}", sources)

    return _obtained(f"java-{sources.name}", recipe, build)


def obtain_kgo_tests() -> tuple[Path, Path]:
    """The test program of franz-go's `kgo` and the directory it must run in (40 to 80 s of compiling)."""
    go = _require_go()
    package = f"{FRANZ_GO}/pkg/kgo"

    def build(directory: Path) -> None:
        _fetch([go, "mod", "init", "bearlake.tests/kgo"], "kgo-init", directory)
        _fetch([go, "get", "-t", f"{package}@{FRANZ_GO_VERSION}"], "kgo-get", directory)
        _compile([go, "test", "-c", "-o", "kgo.test", package], "kgo-build", directory)
        found = _fetch([go, "list", "-m", "-f", "{{.Dir}}", FRANZ_GO], "kgo-list", directory)
        (directory / "module").symlink_to(found.text().strip())

    directory = _obtained("kgo", FRANZ_GO_VERSION, build)
    return directory / "kgo.test", directory / "module" / "pkg" / "kgo"


def obtain_librdkafka_tests() -> Path:
    """Directory with librdkafka's `test-runner`.

    Compiling takes two to four minutes on a busy machine; optimized, it takes five times as long.
    """
    npm = require("npm", "Node.js with npm (Debian: npm)")
    make = require("make", "a C/C++ tool chain (Debian: build-essential)")
    require("g++", "a C/C++ tool chain (Debian: build-essential)")

    def build(directory: Path) -> None:
        _fetch([npm, "pack", "--silent", KAFKA_JAVASCRIPT], "librdkafka-pack", directory)
        shutil.unpack_archive(next(directory.glob("*.tgz")), directory, filter="data")
        sources = directory / "package" / "deps" / "librdkafka"
        jobs = f"-j{os.cpu_count() or 1}"
        _compile(
            ["./configure", "--disable-curl", "--disable-gssapi", "--disable-optimization"], "librdkafka-conf", sources
        )
        _compile([make, jobs, "libs"], "librdkafka-libs", sources)
        _compile([make, jobs, "-C", "tests", "build"], "librdkafka-tests", sources)

    recipe = f"{KAFKA_JAVASCRIPT} without curl, gssapi and optimization"
    return _obtained("librdkafka", recipe, build) / "package" / "deps" / "librdkafka" / "tests"


def obtain_go_program(sources: Path) -> Path:
    """The program built from the Go module in `sources` (go.mod, go.sum, main.go)."""
    go = _require_go()
    recipe = "".join(file.read_text(encoding="utf-8") for file in sorted(sources.iterdir()) if file.is_file())

    def build(directory: Path) -> None:
        output = directory / sources.name
        _fetch([go, "mod", "download"], f"go-{sources.name}-get", sources)
        _compile([go, "build", "-o", output, "."], f"go-{sources.name}", sources)

    return _obtained(f"go-{sources.name}", recipe, build) / sources.name


def obtain_go_tool(package: str, version: str) -> Path:
    """The program that `go install package@version` makes (two minutes for a large one)."""
    go = _require_go()
    name = package.rpartition("/")[2]

    def build(directory: Path) -> None:
        _fetch(["env", f"GOBIN={directory}", go, "install", f"{package}@{version}"], f"go-{name}", directory)

    return _obtained(f"go-{name}", f"{package}@{version}", build) / name


def obtain_grpcurl() -> Path:
    """The program `grpcurl`."""
    return obtain_go_tool("github.com/fullstorydev/grpcurl/cmd/grpcurl", "v1.9.3")


def obtain_npm_program(sources: Path) -> Path:
    """A directory with the npm package in `sources` and its dependencies installed."""
    npm = require("npm", "Node.js with npm (Debian: npm)")
    require("node", "Node.js 18 or newer (Debian: nodejs)")
    files = [file for file in sorted(sources.iterdir()) if file.is_file()]

    def build(directory: Path) -> None:
        for file in files:
            shutil.copy(file, directory)
        quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        _fetch([npm, "install", "--no-package-lock", *quiet], f"npm-{sources.name}", directory)

    return _obtained(f"npm-{sources.name}", "".join(file.read_text(encoding="utf-8") for file in files), build)


def _require_go() -> str:
    """Path of `go`; the modules ask for Go 1.26, which any Go since 1.21 fetches by itself."""
    go = require("go", GO_PACKAGE)
    text = subprocess.run([go, "version"], capture_output=True, text=True, check=True, timeout=30).stdout
    found = re.search(r"go1\.(\d+)", text)
    if found and int(found[1]) < GO_MINOR_MIN:
        raise ToolMissing(f"{found[0]} is too old: install {GO_PACKAGE}")
    return go


def _obtained(name: str, recipe: str, build: Callable[[Path], None]) -> Path:
    """CACHE/name as `build` leaves it; built only when the last complete build had another `recipe`."""
    directory, stamp = CACHE / name, CACHE / f"{name}.recipe"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.is_dir() and stamp.is_file() and stamp.read_text(encoding="utf-8") == recipe:
            return directory
        stamp.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        build(directory)  # in place: librdkafka's build keeps absolute paths; the stamp is what makes it complete
        stamp.write_text(recipe, encoding="utf-8")
    return directory


def _fetch(command: Sequence[str | Path], name: str, cwd: Path | None = None) -> processes.Finished:
    """Run a step that needs the network; raises `ObtainFailed` with the end of its output."""
    finished = _step(command, name, DOWNLOAD_TIMEOUT_S, cwd)
    if not finished.is_success:
        raise ObtainFailed(_complaint(name, finished))
    return finished


def _compile(command: Sequence[str | Path], name: str, cwd: Path) -> None:
    """Run a step that needs no download; raises `BuildFailed` with the end of its output."""
    finished = _step(command, name, BUILD_TIMEOUT_S, cwd)
    if not finished.is_success:
        raise BuildFailed(_complaint(name, finished))


def _step(command: Sequence[str | Path], name: str, timeout_s: float, cwd: Path | None) -> processes.Finished:
    """Run one step of a recipe at low priority."""
    log = LOGS / "obtain" / f"{name}.log"
    return processes.run(["nice", "-n", "10", *command], log=log, timeout_s=timeout_s, cwd=cwd)


def _complaint(name: str, finished: processes.Finished) -> str:
    return f"{name} ended with {finished.code}: {finished.tail()} (see {finished.log})"
