"""Stubs for Go and Java: generated from the .proto file, built, and used for a round trip against a server process.

The languages' own tools fetch modules and jars into their caches. If a tool is missing or cannot fetch, its test is skipped.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bearlake.client import Client
from bearlake.protocols.grpc.proto import generate
from fixtures.server_process import ServerProcess, started
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.long]

HERE = Path(__file__).parent
BUILD_TIMEOUT_S = 280
COUNT = 100
GO_GENERATORS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")
GO_PACKAGE = "bearlake.tests/grpc_go/streamv1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A `bearlake up`."""
    folder = tmp_path_factory.mktemp("grpc_languages")
    with started("up", "--data-dir", folder / ".bearlake", "--no-tour", ready_file=folder / "ready.json") as process:
        yield process


def build(words: Sequence[object], folder: Path, needs: str, **environ: str) -> None:
    """Run one step of a build; skips when it fails for want of the network."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
        env={**os.environ, **environ},
    )
    said = done.stdout + done.stderr
    if done.returncode and any(text in said for text in ("dial tcp", "no such host", "Could not transfer artifact")):
        pytest.skip(f"{needs} cannot be fetched: {said[-300:]}")
    assert done.returncode == 0, said


def check(program: Sequence[object], server: ServerProcess, stream: str, key: str) -> None:
    """The program writes and reads; another language reads the same."""
    words = [*map(str, program), str(server.ready["grpc"]), stream, str(COUNT)]

    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{at} {key} hello {at}" for at in range(COUNT)]
    with Client(str(server.ready["grpc"])) as client:
        found = [(item.key, item.value) for item in client.read(stream, follow=False)]
    assert found == [(key.encode(), b"hello %d" % at) for at in range(COUNT)]


def build_go(folder: Path) -> Path:
    """Stubs and programs for Go; the folder with the programs (`roundtrip`, `load`). Skips if they cannot be built here."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools has the protoc that runs Go's generators")
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed: install Go 1.25 or newer")
    sources, programs = folder / "go", folder / "programs"
    shutil.copytree(HERE / "go", sources)
    build([go, "build", "-o", f"{programs}/", *GO_GENERATORS], sources, "Go modules")
    stubs = sources / "streamv1"
    stubs.mkdir()
    target = f"paths=source_relative,M{generate.SOURCE}={GO_PACKAGE}"
    includes = [f"--proto_path={path}" for path in generate.include_folders()]
    outputs = [f"--go_out={stubs}", f"--go_opt={target}", f"--go-grpc_out={stubs}", f"--go-grpc_opt={target}"]
    plugins = f"{programs}{os.pathsep}{os.environ['PATH']}"
    build([sys.executable, "-m", "grpc_tools.protoc", *includes, *outputs, generate.SOURCE], sources, "", PATH=plugins)
    for made in (stubs / generate.SOURCE).parent.glob("*.go"):
        made.rename(stubs / made.name)
    build([go, "build", "-o", programs / "roundtrip", "."], sources, "Go modules")
    build([go, "build", "-o", programs / "load", "./load"], sources, "Go modules")
    return programs


def test_go_stubs_build_and_make_the_round_trip(server: ServerProcess, tmp_path: Path) -> None:
    programs = build_go(tmp_path)

    check([programs / "roundtrip"], server, "from-go", "go")


def test_java_stubs_build_and_make_the_round_trip(server: ServerProcess, tmp_path: Path) -> None:
    maven, java = shutil.which("mvn"), shutil.which("java")
    if maven is None or java is None or shutil.which("javac") is None:
        pytest.skip("Maven or a JDK is not installed: install maven and openjdk-17-jdk-headless")
    folder = tmp_path / "java"
    shutil.copytree(HERE / "java", folder)
    build([maven, "-q", "-B", "package", f"-Dproto.folder={generate.FOLDER}"], folder, "Maven's packages")

    path = os.pathsep.join([str(folder / "target" / "classes"), f"{folder / 'target' / 'jars'}/*"])
    check([java, "-cp", path, "RoundTrip"], server, "from-java", "java")
