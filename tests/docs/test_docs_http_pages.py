"""The commands of docs/rest.md, docs/schema-registry.md and docs/grpc.md work as they stand, with the answers that the pages show."""

import json
from pathlib import Path

import pytest

from bearlake.protocols.grpc import methods
from fixtures.documented_machine import beside_up

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def test_rest(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--no-tour") as machine:
        ran = machine.follow("docs/rest.md")

    assert json.loads(ran.output("curl -H"))["offsets"][0]["error_code"] is None
    ran.skip_if_incomplete()


def test_schema_registry(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--no-tour") as machine:
        ran = machine.follow("docs/schema-registry.md")

    assert ran.output("import json") == "{'id': 7}\n"
    assert sorted(ran.output("bearlake consume").splitlines()) == ['{"id":7}', '{"id":8}']
    ran.skip_if_incomplete()


def test_grpc(tmp_path: Path) -> None:
    with beside_up(tmp_path, "--no-tour") as machine:
        ran = machine.follow("docs/grpc.md")

    said = [
        line
        for done in ran.done
        if done.text.startswith(("from ", "with ", "import "))
        for line in done.output.splitlines()
    ]
    assert said == [
        "1000 records",
        "[('orders', 0), ('orders', 1), ('orders', 2), ('orders', 3)]",
        "UNEXPECTED_OFFSET 3",
        "[0, 1, 2, 3, 4] [b'first', b'second', b'third', b'1', b'2']",
    ]
    if "curl" not in ran.missing:
        assert json.loads(ran.output("curl"))["offsets"][0]["error_code"] is None
        assert "value=b'\"hello\"'" in ran.output("python -c")
    if "grpcurl" not in ran.missing:
        assert json.loads(ran.output("grpcurl -plaintext -d"))["stream"]["name"] == "greetings"
        assert set(methods.SERVICES) <= set(ran.output("grpcurl -plaintext localhost:50051 list").split())
        assert json.loads(ran.done[-1].output)["record_count"] == 1
    ran.skip_if_incomplete()
