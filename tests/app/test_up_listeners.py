"""Several listeners of one server: each has its own name, address and TLS, and clients learn only the addresses of their listener."""

import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.server_process import finished, started
from fixtures.waiting import WAIT_S

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("TLS NOT TESTED: openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=WAIT_S)
    return folder / "certificate.pem", folder / "key.pem"


def test_records_are_accepted_through_a_tls_listener_and_a_plain_listener(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    config = tmp_path / "bearlake.yaml"
    config.write_text(
        f"listeners:\n  kafka_more:\n  - name: TLS\n    tls_certificate_file: {certificate[0]}\n    tls_key_file: {certificate[1]}\n"
    )
    words = ("up", "--data-dir", tmp_path / "data", "--no-tour", "--config", config)
    with started(*words, ready_file=tmp_path / "ready.json") as server:
        address = server.ready["kafka:TLS"]
        tls = ("-X", "security.protocol=ssl", "-X", f"ssl.ca.location={certificate[0]}")

        sent = finished("produce", "secret", "--bootstrap", address, *tls, stdin=b"one\ntwo\n")
        through_tls = finished("consume", "secret", "--bootstrap", address, *tls, "--from-beginning", "-e")
        in_plain = finished("consume", "secret", "--bootstrap", server.kafka, "--from-beginning", "-e")

        assert sent.returncode == 0, sent.stderr.decode()
        assert (through_tls.stdout, in_plain.stdout) == (b"one\ntwo\n", b"one\ntwo\n")


def test_clients_get_the_advertised_address_of_their_listener(tmp_path: Path) -> None:
    config = tmp_path / "bearlake.yaml"
    config.write_text(
        "listeners: {kafka_more: [{name: OUTSIDE, advertised_host: lake.example, advertised_port: 443}]}\n"
    )
    words = ("up", "--data-dir", tmp_path / "data", "--no-tour", "--config", config)
    with started(*words, ready_file=tmp_path / "ready.json") as server:
        assert server.ready["kafka:OUTSIDE"] == "lake.example:443"

        listed = finished("server", "list", "--admin", server.admin)

        assert f"kafka={server.kafka}" in listed.stdout.decode()
        assert "kafka:OUTSIDE=lake.example:443" in listed.stdout.decode()
