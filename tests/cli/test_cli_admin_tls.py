"""The command line against a server whose admin API has TLS: which logins the server accepts, and the errors otherwise."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.server_process import ServerProcess, finished, started

pytestmark = pytest.mark.integration

TOKEN = "sixteen-characters"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: dict[str, Path]) -> Iterator[ServerProcess]:
    """One server that also trusts the certificates of clients; alice is a super user."""
    folder = tmp_path_factory.mktemp("admin-tls")
    settings = {
        "admin": {
            "tls_certificate_file": str(certificates["server"]),
            "tls_key_file": str(certificates["server_key"]),
            "tls_client_ca_file": str(certificates["authority"]),
            "tls_ca_file": str(certificates["authority"]),
            "tls_server_name": "localhost",
        },
        "authentication": {"certificate_rules": ["RULE:CN=(.*)/$1/"]},
        "access": {"super_users": ["User:alice"]},
    }
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    words = ("up", "--data-dir", folder / "data", "--no-tour", "--config", folder / "settings.yaml")
    environ = {"BEARLAKE_ADMIN_TOKEN": TOKEN}
    with started(*words, ready_file=folder / "ready.json", environ=environ) as process:
        yield process


def url(server: ServerProcess, scheme: str = "https") -> str:
    """The address by the name that the certificate has."""
    return f"{scheme}://localhost:{server.admin.rpartition(':')[2]}"


def refusal(*words: object, environ: Mapping[str, str] | None = None) -> str:
    result = finished(*words, environ=environ)
    assert result.returncode != 0
    said: bytes = result.stderr
    return said.decode()


def test_addresses_name_https(server: ServerProcess, certificates: Mapping[str, Path]) -> None:
    environ = {
        "BEARLAKE_ADMIN": url(server),
        "BEARLAKE_ADMIN_CA_FILE": str(certificates["authority"]),
        "BEARLAKE_ADMIN_TOKEN": TOKEN,
    }
    listed: Any = json.loads(finished("server", "list", "--json", environ=environ).stdout)

    assert server.admin.startswith("https://127.0.0.1:")
    assert server.admin in server.said()
    assert listed[0]["endpoints"]["admin"] == server.admin


def test_a_client_certificate_of_a_super_user_needs_no_token(
    server: ServerProcess, certificates: Mapping[str, Path]
) -> None:
    words = ("stream", "create", "orders", "--admin", url(server), "--admin-ca-file", certificates["authority"])
    own = ("--admin-certificate-file", certificates["client"], "--admin-key-file", certificates["client_key"])
    other = ("--admin-certificate-file", certificates["server"], "--admin-key-file", certificates["server_key"])

    assert finished(*words, *own).stdout == b"orders: created\n"
    assert "User:localhost is not one of access.super_users" in refusal(*words, *other)
    assert "Authorization: Bearer" in refusal(*words)


def test_messages_say_what_to_set(server: ServerProcess, certificates: Mapping[str, Path], tmp_path: Path) -> None:
    words = ("stream", "list", "--admin", url(server))
    trusted = (*words, "--admin-ca-file", certificates["authority"])

    untrusted = refusal(*words)
    assert "CERTIFICATE_VERIFY_FAILED" in untrusted
    assert "--admin-ca-file" in untrusted
    assert "https://" in refusal("stream", "list", "--admin", url(server, "http"))
    assert "may have no TLS" in refusal("stream", "list", "--admin", f"https://{server.kafka}")
    own = ("--admin-certificate-file", certificates["client"], "--admin-key-file")
    assert f"cannot use {certificates['client']}" in refusal(*trusted, *own, certificates["server_key"])
    assert "--admin-certificate-file" in refusal(*trusted, "--admin-key-file", certificates["client_key"])
    assert f"cannot use {tmp_path / 'absent'}" in refusal(*words, "--admin-ca-file", tmp_path / "absent")
    assert "ERROR" not in server.said()
