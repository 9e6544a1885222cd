"""The deployment that docs/security.md sets up "in ten minutes" lets its users in, and refuses them, as the page says."""

import contextlib
import http.server
import json
import re
import shlex
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures.logins import Logins
from fixtures.server_process import ServerProcess, finished, started
from fixtures.waiting import WAIT_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
PASSWORD = "correct-horse"


@contextlib.contextmanager
def issuer(keys_file: Path, certificates: dict[str, Path]) -> Iterator[str]:
    """The URL of an OpenID Connect issuer: its discovery document and its keys, over TLS."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = {
                "/.well-known/openid-configuration": json.dumps({"issuer": url, "jwks_uri": f"{url}/keys"}),
                "/keys": keys_file.read_text(),
            }.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write((found or "").encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["server"], certificates["server_key"])
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = f"https://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join(WAIT_S)


class Machine:
    """Runs the page's lines, with local paths, names and ports in the place of the page's."""

    def __init__(self, folder: Path, certificates: dict[str, Path], issuer_url: str, token: str) -> None:
        self.servers: dict[str, ServerProcess] = {}
        self.stack = contextlib.ExitStack()
        self._config = folder / "settings.yaml"
        self._environ = {"SSL_CERT_FILE": str(certificates["authority"])}
        self._names = {
            "/srv/bearlake": str(folder),
            "https://login.example.com": issuer_url,
            "kafka.example.com:9092": "{kafka}",
            "http://127.0.0.1:8082": "{rest}",
            "kafka.example.com": "localhost",
            "server.pem": str(certificates["server"]),
            "server.key": str(certificates["server_key"]),
            "ca.pem": str(certificates["authority"]),
            "settings.yaml": str(self._config),
            "$TOKEN": token,
            "…": PASSWORD,
            "-u alice": f"-u alice:{PASSWORD}",
        }

    def write_settings(self, text: str) -> None:
        """Write the page's settings file."""
        self._config.write_text(self._local(text))

    def run(self, line: str) -> str:
        """Run a line of the page; returns what it prints. A server that it starts runs until the test ends."""
        words = shlex.split(self._local(line), comments=True)
        if words[:2] == ["bearlake", "serve"]:
            ready = self._config.with_name(f"{words[2]}.json")
            ports = ["--registry-port", "0"] if words[2] == "rest" else []
            given = ["serve", words[2], "--config", self._config, *ports]
            server = started(*given, ready_file=ready, environ=self._environ)
            self.servers[words[2]] = self.stack.enter_context(server)
            return ""
        if words[:2] == ["bearlake", "user"]:
            words += ["--password-file", "-"]
        if words[0] == "bearlake":
            done = finished(*words[1:], stdin=PASSWORD.encode())
        else:
            line = self._local(line).partition(" #")[0]
            done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, (line, done.stderr.decode())
        return done.stdout.decode()

    def listed(self, line: str) -> list[str]:
        """Run a line that lists topics; a server lists a topic that another one has created as soon as it has followed the log."""
        end_s = time.monotonic() + WAIT_S
        names: list[str] = []
        while not names and time.monotonic() < end_s:
            names = json.loads(self.run(line))
        return names

    def _local(self, text: str) -> str:
        for there, here in self._names.items():
            text = text.replace(there, here)
        for name, server in self.servers.items():
            text = text.replace(f"{{{name}}}", str(server.ready[name]))
        return text


@pytest.mark.skipif(not shutil.which("kcat") or not shutil.which("curl"), reason="kcat or curl is not installed")
def test_the_deployment_of_the_page_lets_its_users_in_and_refuses_them(
    tmp_path: Path, certificates: dict[str, Path], logins: Logins
) -> None:
    section = PAGE.read_text().partition("### In ten minutes")[2].partition("\n### ")[0]
    [settings] = re.findall(r"^```yaml\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    [commands] = re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    lines = [line for line in commands.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]

    with issuer(logins.keys_file, certificates) as url:
        machine = Machine(tmp_path, certificates, url, logins.token(iss=url, sub="carol"))
        with machine.stack:
            machine.write_settings(settings)
            for line in lines[:-2]:
                machine.run(line)
            listed = [machine.listed(line) for line in lines[-2:]]
            [producing] = [line for line in lines if "kcat" in line]
            other = machine.run(producing.replace("orders-eu", "other") + " 2>&1 || true")
            stranger = machine.run("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:8082/topics")

    assert listed == [["orders-eu"], ["orders-eu"]]
    assert "Topic authorization failed" in other
    assert stranger == "401"
