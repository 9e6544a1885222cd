"""What the harness of the suite `junit` does before a test begins, with programs and admin APIs of this file in place of servers."""

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer, ThreadingTCPServer
from typing import TypeVar

import pytest

from conformance import packages, processes, suite_junit

Server = TypeVar("Server", bound=TCPServer)

FIRST, SECOND = "127.0.0.1:1", "127.0.0.1:2"
"""Where the servers say that they listen for the clients of a test; nothing connects to these ports."""
STARTED = "embedded-1"
"""The folder of the first servers of a process."""
TIMEOUT_S = 120.0
PROGRAM = """#!/bin/sh
# serve kafka --config FOLDER/settings.yaml --ready-file FILE …
cp "{folder}/$(basename "$(dirname "$4")").json" "$6.new" && mv "$6.new" "$6"
exec sleep {seconds:.0f}
"""
BEGIN = """
class Begin {
  public static void main(String[] arguments) throws Exception {
    new EmbeddedServers(2, java.util.Map.of()).start();
  }
}
"""


class AdminApi(ThreadingHTTPServer):
    """The admin API of a server that knows more servers with each request."""

    def __init__(self, views: Sequence[Sequence[str]]) -> None:
        """Answers with these addresses of servers, one view after the other; the last one again and again."""
        super().__init__(("127.0.0.1", 0), _ServersRequest)
        self._views = views
        self.request_count = 0

    def view(self) -> Sequence[str]:
        """The servers to list now."""
        self.request_count += 1
        return self._views[min(self.request_count, len(self._views)) - 1]


class _ServersRequest(BaseHTTPRequestHandler):
    server: AdminApi

    def do_GET(self) -> None:
        """`GET /v1/servers`."""
        servers = [{"endpoints": {"kafka": address}, "is_draining": False} for address in self.server.view()]
        body = json.dumps({"servers": servers}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Harness(ThreadingTCPServer):
    """The listener for the harness, which connects when it takes the servers for ready."""

    def __init__(self) -> None:
        """Listens on any port."""
        super().__init__(("127.0.0.1", 0), BaseRequestHandler)
        self.is_connected = threading.Event()

    def verify_request(self, *_: object) -> bool:
        """Serve nobody."""
        self.is_connected.set()
        return False


@pytest.fixture(scope="module")
def class_path() -> str:
    """The classes of the harness, with all that they need."""
    try:
        jars = packages.obtain_jars(suite_junit.SOURCES / "pom.xml", "junit-jars")
        return f"{packages.obtain_java_program(suite_junit.SOURCES, jars)}:{jars}/*"
    except (packages.ToolMissing, packages.ObtainFailed) as error:
        pytest.skip(f"the suite junit cannot run: {error}")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test opens."""
    with ExitStack() as opened:
        yield opened


def test_a_test_begins_when_each_server_knows_all(class_path: str, tmp_path: Path, stack: ExitStack) -> None:
    """A test that stops the only server that its client knows makes the client begin again, and the client's group rebalances."""
    first = _served(stack, AdminApi([[FIRST], [FIRST], [FIRST], [FIRST, SECOND]]))
    second = _served(stack, AdminApi([[FIRST, SECOND]]))
    harness = _served(stack, Harness())
    for number, (address, admin) in enumerate(((FIRST, first), (SECOND, second))):
        ready = {"kafka": address, "kafka:HARNESS": _address(harness), "admin": f"http://{_address(admin)}"}
        (tmp_path / f"server-{number}.json").write_text(json.dumps(ready), encoding="utf-8")

    _start_servers(stack, class_path, tmp_path)

    assert harness.is_connected.wait(TIMEOUT_S)
    assert first.request_count == 4
    settings = json.loads((tmp_path / STARTED / "server-1" / "settings.yaml").read_text(encoding="utf-8"))
    assert settings["server"] == {"name": "server-1", "heartbeat_ms": 50}


def _served(stack: ExitStack, server: Server) -> Server:
    """Serve in a thread until the stack closes."""
    stack.enter_context(server)
    stack.callback(server.shutdown)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _address(server: TCPServer) -> str:
    return f"127.0.0.1:{server.socket.getsockname()[1]}"


def _start_servers(stack: ExitStack, class_path: str, folder: Path) -> None:
    """Let the harness start two servers, which are programs that write the folder's files as their addresses."""
    program, begin = folder / "server", folder / "Begin.java"
    program.write_text(PROGRAM.format(folder=folder, seconds=TIMEOUT_S), encoding="utf-8")
    program.chmod(0o755)
    begin.write_text(BEGIN, encoding="utf-8")
    options = [f"-Dbearlake.program={program}", f"-Dbearlake.folder={folder}", f"-Dbearlake.logs={folder}"]
    log = stack.enter_context((folder / "harness.log").open("wb"))
    command = ["java", *options, "-cp", class_path, str(begin)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    stack.callback(processes.end_group, process)
