"""Every kind of server has the whole admin API, since a deployment may run the servers of one protocol only."""

import json
from pathlib import Path

import pytest

from fixtures.server_process import finished, started

pytestmark = pytest.mark.integration

MORE_PORTS = {
    "kafka": [],
    "rest": ["--registry-port", "0"],
    "catalog": [],
    "grpc": [],
    "pulsar": ["--pulsar-http-port", "0"],
}


@pytest.mark.parametrize("protocol", list(MORE_PORTS))
def test_streams_are_made_through_any_kind_of_server(protocol: str, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    stores = ["--metadata-url", f"sqlite:///{tmp_path}/metadata.db", "--object-store-url", tmp_path.as_uri()]

    with started("serve", protocol, *stores, *MORE_PORTS[protocol], ready_file=ready) as server:
        made = finished("stream", "create", "orders", "--partitions", "2", "--admin", server.admin)
        listed = finished("stream", "list", "--json", "--admin", server.admin)

        assert made.returncode == 0, made.stderr
        assert [stream["name"] for stream in json.loads(listed.stdout)] == ["orders"]
        assert server.stop() == 0
