"""The tables of docs/grpc.md are complete; grpcurl finds what the page says. `tests/docs` runs the page's commands."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from bearlake.protocols.grpc.proto import stream_pb2 as pb
from conformance import packages
from fixtures.server_process import ServerProcess, started
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "grpc.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("docs_grpc")
    with started("up", "--data-dir", folder / ".bearlake", "--no-tour", ready_file=folder / "ready.json") as process:
        yield process
        assert process.stop() == 0


def blocks(kind: str) -> list[str]:
    """The page's code blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_grpcurl_lines_name_methods_and_fields_that_there_are() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("grpcurl")]

    assert len(lines) == 3
    for words in map(shlex.split, lines[1:]):
        service, _, method = words[-1].rpartition("/")
        found = pb.DESCRIPTOR.services_by_name[service.rpartition(".")[2]].methods_by_name[method]
        assert set(json.loads(words[words.index("-d") + 1])) <= {field.name for field in found.input_type.fields}


@pytest.fixture(scope="module")
def grpcurl() -> Path:
    """The program, built by Go where there is one."""
    try:
        return packages.obtain_grpcurl()
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"grpcurl: {error}")


def test_reflection_and_health_serve_grpcurl(server: ServerProcess, grpcurl: Path) -> None:
    address = str(server.ready["grpc"])

    def run(*words: str) -> str:
        done = subprocess.run([grpcurl, *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    health = run("-plaintext", address, "grpc.health.v1.Health/Check")
    assert json.loads(health) == {"status": "SERVING"}
    said = run("-plaintext", address, "describe", "bearlake.stream.v1.ProduceRequest")
    assert ".bearlake.stream.v1.Payload payload = 3;" in said


def test_every_method_and_status_of_the_page_exists() -> None:
    text = PAGE.read_text()
    names = {
        f"{service.name}.{method.name}"
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }

    assert {name for name in names if not name.startswith("Admin")} <= set(re.findall(r"`(\w+\.\w+)`", text))
    for row in re.findall(r"^\| ([A-Z_, ]+?)(?: \(retry\))? \|", text, re.MULTILINE):
        assert all(hasattr(grpc.StatusCode, name) for name in row.split(", ")), row
