"""TLS to PostgreSQL by the parameters of the URL: the server's certificate is checked, and its absence is refused."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bearlake.errors import Unavailable
from bearlake.metadata.postgresql.store import open_postgresql
from fixtures.postgresql import PostgresqlServer, execute

OPENSSL = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"


def make_certificate(folder: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl: install the Debian package `openssl`")
    certificate, key = folder / "server.crt", folder / "server.key"
    subprocess.run([*OPENSSL.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


async def test_a_server_is_trusted_by_its_certificate_only(
    postgresql_url: str, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    with pytest.raises(Unavailable):
        await open_postgresql(f"{postgresql_url}?sslmode=require")  # it has no certificate yet

    certificate, key = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = make_certificate(tmp_path / "other")
    given = [postgresql_server.give(file) for file in (certificate, key)]
    await execute(
        postgresql_url,
        f"alter system set ssl_cert_file = '{given[0]}'",
        f"alter system set ssl_key_file = '{given[1]}'",
        "alter system set ssl = on",
    )
    postgresql_server.restart()
    try:
        metadata = await open_postgresql(f"{postgresql_url}?sslmode=verify-full&sslrootcert={certificate}")
        rows = await execute(postgresql_url, "select count(*) from pg_stat_ssl where ssl and pid <> pg_backend_pid()")
        with pytest.raises(Unavailable, match="certificate"):
            await open_postgresql(f"{postgresql_url}?sslmode=verify-full&sslrootcert={other}")
        await metadata.close()
    finally:
        await execute(postgresql_url, "alter system reset all")
        postgresql_server.restart()

    assert rows[0][0] >= 1
