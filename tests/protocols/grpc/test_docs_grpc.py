"""The examples of docs/grpc.md work as described, against a `bearlake up`; its tables are complete."""

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from bearlake.client import AlreadyExists, Client
from bearlake.protocols.grpc import methods
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


def test_the_python_of_the_page_writes_and_reads(server: ServerProcess) -> None:
    code = "".join(blocks("python")).replace("localhost:50051", str(server.ready["grpc"]))
    said = io.StringIO()

    with contextlib.redirect_stdout(said):
        exec(compile(code, PAGE.name, "exec"), {})

    assert said.getvalue().splitlines() == [
        "1000 records",
        "[('greetings', 0), ('greetings', 1), ('greetings', 2), ('greetings', 3)]",
        "UNEXPECTED_OFFSET 3",
        "[0, 1, 2, 3, 4] [b'first', b'second', b'third', b'1', b'2']",
    ]


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
        return packages.obtain_go_tool("github.com/fullstorydev/grpcurl/cmd/grpcurl", "v1.9.3")
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"grpcurl: {error}")


def test_grpcurl_runs_the_lines(server: ServerProcess, grpcurl: Path) -> None:
    address = str(server.ready["grpc"])
    with Client(address) as client, contextlib.suppress(AlreadyExists):
        client.create_stream("greetings", partition_count=4)

    def run(*words: str) -> str:
        done = subprocess.run([grpcurl, *words], capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed, described, produced = (
        run(*shlex.split(line.replace("localhost:50051", address))[1:])
        for line in "".join(blocks("sh")).splitlines()
        if line.startswith("grpcurl")
    )

    assert set(methods.SERVICES) <= set(listed.split())
    assert json.loads(described)["stream"]["partition_count"] == 4
    assert json.loads(produced)["record_count"] == 1
    health = run("-plaintext", address, "grpc.health.v1.Health/Check")
    assert json.loads(health) == {"status": "SERVING"}
    said = run("-plaintext", address, "describe", "bearlake.stream.v1.ProduceRequest")
    assert ".bearlake.stream.v1.Payload payload = 3;" in said


def test_the_lines_of_the_first_example_run(server: ServerProcess, grpcurl: Path) -> None:
    """curl and grpcurl write records, and Python reads them."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    with Client(str(server.ready["grpc"])) as client, contextlib.suppress(AlreadyExists):
        client.create_stream("greetings", partition_count=4)
    text = PAGE.read_text().replace("127.0.0.1:50051", str(server.ready["grpc"]))
    text = text.replace("http://127.0.0.1:8082", str(server.ready["rest"]))
    programs = {"curl": curl, "grpcurl": grpcurl, "python": sys.executable}
    lines = [
        shlex.split(line)
        for line in re.findall(r"^    ((?:curl|grpcurl|python -c) .*(?:topics|grpc|bearlake).*)$", text, re.MULTILINE)
    ]

    said = {
        words[0]: subprocess.run(
            [programs[words[0]], *words[1:]], capture_output=True, text=True, timeout=WAIT_S, check=True
        ).stdout
        for words in lines
    }

    assert list(said) == ["curl", "grpcurl", "python"]
    assert json.loads(said["curl"])["offsets"][0]["error_code"] is None
    assert json.loads(said["grpcurl"])["stream"]["name"] == "greetings"
    assert "value=b'\"hello\"'" in said["python"]


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
