"""Servers that share a PostgreSQL database and an S3 bucket are one deployment, as docs/operations.md promises."""

import json
from pathlib import Path

import pytest

from fixtures.s3 import S3Server
from fixtures.server_process import finished, started

pytestmark = pytest.mark.integration


def test_one_server_serves_the_records_that_another_accepted(
    tmp_path: Path, postgresql_url: str, s3_server: S3Server, s3_bucket: str
) -> None:
    stores = ("--metadata-url", postgresql_url, "--object-store-url", f"s3://{s3_bucket}/lake", "--no-tour")
    first_server = started(
        "up", "--data-dir", tmp_path / "1", *stores, ready_file=tmp_path / "1.json", environ=s3_server.environment
    )
    second_server = started(
        "up", "--data-dir", tmp_path / "2", *stores, ready_file=tmp_path / "2.json", environ=s3_server.environment
    )
    with first_server as first, second_server as second:
        lines = b"".join(b"line %d\n" % index for index in range(1_000))

        assert finished("stream", "create", "shared", "--admin", first.admin).returncode == 0
        sent = finished("produce", "shared", "--bootstrap", first.kafka, stdin=lines)
        got = finished("consume", "shared", "--bootstrap", second.kafka, "--from-beginning", "-e")
        servers = json.loads(finished("server", "list", "--admin", second.admin, "--json").stdout)

        assert sent.returncode == 0, sent.stderr.decode()
        assert got.stdout == lines
        assert sorted(server["endpoints"]["kafka"] for server in servers) == sorted([first.kafka, second.kafka])
        assert (first.stop(), second.stop()) == (0, 0)
    assert not (tmp_path / "1" / "metadata.db").exists()
